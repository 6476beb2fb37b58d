"""The probes of a search on disk: each lands whole, and none is run twice, whatever ends the process."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict
from typing import Any, ClassVar

from simulator.planner.capacity.probe import ProbeOutcome
from simulator.planner.kept_folder import KeptFolder, write_durably
from simulator.result_files import json_text

PROBES = "probes"
ANSWER = "answer.json"


class ProbeStore(KeptFolder):
    """``probes/KEY.json``: an outcome, and the hash that says that it is whole and unchanged."""

    PARTS, LANDED = PROBES, "*.json"
    WHOLE = (ANSWER, "candidates.csv", "probes.csv", "winner.yaml", "scenario.yaml", "provenance.json")
    FOREIGN: ClassVar = {"result.json": "a run", "points": "a sweep"}
    WHAT = "probes of a search"

    def ready(self, *, resume: bool, restart: bool) -> None:
        """Readies the folder for a search. Raises InputError where another one was cut short in it."""
        if resume:
            self.open_again()
            return
        if not restart:
            self.refuse_unfinished()
        self.clear()

    def clear(self) -> None:
        """Removes an earlier search."""
        self.open_again()
        shutil.rmtree(self.out / PROBES)
        (self.out / PROBES).mkdir()

    def read(self, key: str) -> ProbeOutcome | None:
        """A probe that stands there; not one that ``failed``, which gets another try."""
        try:
            whole = json.loads((self.out / PROBES / f"{key}.json").read_text(encoding="utf-8"))
            outcome = ProbeOutcome(**whole["outcome"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if whole.get("sha256") != _sha256(whole["outcome"]) or outcome.status == "failed":
            return None
        return outcome

    def save(self, key: str, outcome: ProbeOutcome) -> None:
        """Writes an outcome, on the disk itself before it bears its name."""
        facts = json.loads(json_text(asdict(outcome)))
        write_durably(self.out / PROBES / f"{key}.json", json_text({"sha256": _sha256(facts), "outcome": facts}))


def _sha256(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
