"""A scenario with every default written out: the file that repeats a run, and the hash of its content."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from pathlib import Path
from typing import Any

import yaml

from simulator.capacity_settings import CapacitySettings
from simulator.scenario_settings import ScenarioSettings
from simulator.scenario_yaml import core_resolvers

HEADER = "# The scenario as it was run: kvplan run on this file repeats the run.\n"


class _CoreDumper(yaml.SafeDumper):
    """Quotes exactly what our strict loader would otherwise read as something else ("3.35e12" as text)."""

    yaml_implicit_resolvers = core_resolvers()

    def ignore_aliases(self, data: Any) -> bool:
        return True


def plain(settings: ScenarioSettings | CapacitySettings) -> dict[str, Any]:
    """The settings as plain data in the order of their fields; what is None or empty is left out."""
    tree = _plain(settings)
    assert isinstance(tree, dict)
    return tree


def plain_section(section: Any) -> dict[str, Any]:
    """The same of one section."""
    tree = _plain(section)
    assert isinstance(tree, dict)
    return tree


def resolved_yaml(data: dict[str, Any]) -> str:
    """Text that the strict loader reads back to the same data."""
    body = yaml.dump(data, Dumper=_CoreDumper, sort_keys=False, allow_unicode=True, width=110)
    return HEADER + body


def scenario_sha256(data: dict[str, Any]) -> str:
    """Hash of the resolved content: files count by what they hold, so that it does not depend on where they lie."""
    settings = {key: value for key, value in data.items() if key != "assumptions"}
    text = json.dumps(_without_places(settings, ""), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        found = {name: _plain(item) for name, item in pairs if item is not None and item != () and item != {}}
        return {"kind": found.pop("kind"), **found} if "kind" in found else found
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _without_places(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: _without_places(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_places(item, key) for item in value]
    if key in ("path", "model", "calibration") and isinstance(value, str) and Path(value).is_absolute():
        return _content(Path(value))
    return value


def _content(path: Path) -> str:
    if path.is_dir():
        path = path / "config.json"
    if not path.is_file():
        return path.name
    facts = path.stat()
    return _digest(path, facts.st_mtime_ns, facts.st_size)


@functools.lru_cache(maxsize=32)  # a sweep names the same trace at each of its points
def _digest(path: Path, mtime_ns: int, size: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"
