"""Rules of each engine, ``engines/*.yaml``: what it does, where our code does it, and how we know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from simulator.catalog.names import data_files

EVIDENCE = {
    "executed": "compared pass by pass with the real code",
    "read": "read in the source, not run",
    "paper": "as a paper describes it, or the natural reading where it says no more",
    "memory": "from memory, not verified",
}
"""How we know a rule, the best first."""


@dataclass(frozen=True)
class EngineRule:
    """One rule. ``code``: file of this repository and a name in it; ``source``: what was compared or read."""

    rule: str
    code: str
    evidence: str
    source: str


@dataclass(frozen=True)
class EngineRules:
    """What is known of an engine, and what of it is not simulated."""

    rules: tuple[EngineRule, ...]
    sources: tuple[str, ...]
    not_simulated: tuple[str, ...]

    def counts(self) -> dict[str, int]:
        """Rules by how we know them."""
        return {kind: sum(rule.evidence == kind for rule in self.rules) for kind in EVIDENCE}


def engine_rules() -> dict[str, EngineRules]:
    """The rules of every preset, by its name."""
    found = {}
    for name, entry in data_files("engines", ".yaml").items():
        data = yaml.safe_load(entry.read_text(encoding="utf-8"))
        rules = _rules(name, data)
        found.update(dict.fromkeys(data["presets"], rules))
    return found


def _rules(name: str, data: dict[str, Any]) -> EngineRules:
    sources = data["sources"]
    for row in data["rules"]:
        if row["evidence"] not in EVIDENCE or row["source"] not in sources:
            raise ValueError(f"catalog/engines/{name}.yaml: {row['rule']}: unknown evidence or source")
    rules = tuple(
        EngineRule(row["rule"], row["code"], row["evidence"], sources[row["source"]]) for row in data["rules"]
    )
    return EngineRules(rules, tuple(sources.values()), tuple(data["not_simulated"]))
