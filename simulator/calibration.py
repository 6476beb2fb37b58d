"""How much of a GPU's data sheet a server achieves: a calibration file, read and written.

A file is YAML or JSON::

    schema: kvplan-calibration
    schema_version: 1
    name: default
    measured_on: generic          # or the GPU it was measured on
    measured_at: 2026-11-29       # optional
    values:
      memory_efficiency: {value: 0.88, source: "where the number comes from"}

Numbers that a file does not give are those of the shipped default, and their source says so. Standard library,
NumPy and PyYAML alone: ``gpu_validate`` writes these files on a bare GPU image.
"""

from __future__ import annotations

import difflib
import functools
import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from simulator.calibration_document import Entry, read_entries
from simulator.errors import InputError

SCHEMA = "kvplan-calibration"
SCHEMA_VERSION = 1
SHIPPED = Path(__file__).parent / "catalog" / "calibrations"
_INHERITED = "not in this calibration: the shipped default"


def _share(meaning: str) -> Any:
    """A share of a physical peak: above 0, at most 1, so that no setting undercuts the hardware."""
    return field(metadata={"unit": "share of peak", "meaning": meaning, "share": True})


def _amount(unit: str, meaning: str) -> Any:
    """A finite number, not negative."""
    return field(metadata={"unit": unit, "meaning": meaning, "share": False})


@dataclass(frozen=True)
class Calibration:
    """The numbers a roofline needs beside the data sheet. ``sources`` has one text per number.

    Invariant: shares lie in (0, 1], amounts are finite and not negative.
    """

    name: str
    measured_on: str
    measured_at: str
    memory_efficiency: float = _share("bandwidth reached while 16-bit weights are read")
    memory_efficiency_8bit: float = _share("the same for weights of fewer than 16 bits")
    compute_efficiency: float = _share("FLOP/s reached by large 16-bit matrix products")
    compute_efficiency_8bit: float = _share("the same in fp8 or int8")
    kv_read_efficiency: float = _share("bandwidth reached while 16-bit KV is read")
    kv_read_efficiency_8bit: float = _share("the same for 8-bit KV")
    attention_compute_efficiency: float = _share("16-bit FLOP/s reached by attention kernels")
    link_efficiency: float = _share("of the GPU link, by an all-reduce's traffic")
    pcie_efficiency: float = _share("of PCIe, by an all-reduce's traffic where there is no GPU link")
    overhead_ms: float = _amount("ms a step", "host: schedule, prepare, sample, hand over")
    layer_overhead_us: float = _amount("µs a layer and step", "start and end of the kernels of one layer")
    per_request_us: float = _amount("µs a request and step", "host work per scheduled request")
    replicated_activation_passes: float = _amount(
        "reads or writes of a 16-bit hidden vector, a token and layer", "on every tensor-parallel rank"
    )
    sharded_activation_passes: float = _amount(
        "reads or writes of a 16-bit hidden vector, a token and layer", "divided among the ranks"
    )
    all_reduce_latency_us: float = _amount("µs a call", "least time of an all-reduce over a GPU link")
    pcie_hop_latency_us: float = _amount("µs a call and peer", "least time of an all-reduce through PCIe")
    sources: dict[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        for number in NUMBERS:
            check_number(number, getattr(self, number), where=f"calibration {self.name}: {number}")

    def with_overrides(self, overrides: Mapping[str, float], *, where: str) -> Calibration:
        """Some numbers replaced by a user's own.

        Args:
            where: dotted path of the settings, for errors (``step_time``).
        """
        for number, value in overrides.items():
            check_number(number, value, where=f"{where}.{number}")
        sources = {**self.sources, **{number: f"set by {where}.{number}" for number in overrides}}
        changed: dict[str, Any] = {number: float(value) for number, value in overrides.items()}
        return replace(self, sources=sources, **changed)


NUMBERS = tuple(f.name for f in fields(Calibration) if "unit" in f.metadata)
_METADATA = {f.name: f.metadata for f in fields(Calibration)}


def check_number(number: str, value: object, *, where: str) -> float:
    """The value as a float. Raises InputError where the number cannot be true."""
    share = _METADATA[number]["share"]
    good = f"a share above 0 and at most 1, such as {0.85}" if share else "a number that is not negative"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{number} is {value!r}, not a number", where=where, remedy=f"write {good}")
    if share and value > 1.0:
        raise InputError(
            f"{number} is {value:g}: no server exceeds the data sheet",
            where=where,
            remedy=f"write {good}; where a measurement gave more, check the peak it was divided by",
        )
    if not math.isfinite(value) or value < 0.0 or (share and value == 0.0):
        raise InputError(f"{number} is {value:g}", where=where, remedy=f"write {good}")
    return float(value)


def shipped_calibrations() -> tuple[str, ...]:
    """Names of the calibrations that come with kvplan."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.yaml")))


def find_calibration(name_or_path: str | Path) -> Calibration:
    """A shipped calibration by name, or a file by path. Raises InputError."""
    text = str(name_or_path)
    path = Path(text)
    if path.suffix.lower() in (".yaml", ".yml", ".json") or len(path.parts) > 1:
        return load_calibration(path)
    key = text.strip().lower().replace("_", "-").replace(" ", "-")
    if key in shipped_calibrations():
        return _shipped(key)
    close = difflib.get_close_matches(key, shipped_calibrations(), n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise InputError(
        f"no calibration is called {text!r}",
        where="step_time.calibration",
        remedy=f"{hint}shipped: {', '.join(shipped_calibrations())}; or give the path of a .yaml or .json file",
    )


@functools.cache  # a sweep builds hundreds of scenarios, and reading the file is most of the time of each
def _shipped(key: str) -> Calibration:
    return load_calibration(SHIPPED / f"{key}.yaml")


def load_calibration(path: Path) -> Calibration:
    """Reads and checks a file. Raises InputError with ``file:line`` where there is one."""
    entries = read_entries(path)
    _refuse_unknown(entries, ("schema", "schema_version", "name", "measured_on", "measured_at", "values"), "")
    _check_schema(entries, path)
    values = entries.get("values")
    if values is None or not isinstance(values.value, dict):
        raise InputError(
            "has no numbers under values",
            where=values.place if values else str(path),
            remedy="write values: {memory_efficiency: {value: 0.88, source: ...}}",
        )
    _refuse_unknown(values.value, NUMBERS, "values.")
    numbers: dict[str, float] = {}
    sources: dict[str, str] = {}
    for number, entry in values.value.items():
        numbers[number], sources[number] = _number(number, entry)
    missing = [number for number in NUMBERS if number not in numbers]
    if missing:
        default = _default_for(path, missing)
        for number in missing:
            numbers[number] = getattr(default, number)
            sources[number] = f"{_INHERITED} ({default.sources[number]})"
    texts = {key: str(entries[key].value) for key in ("name", "measured_on", "measured_at") if key in entries}
    return Calibration(
        name=texts.get("name", path.stem),
        measured_on=texts.get("measured_on", "not stated"),
        measured_at=texts.get("measured_at", "not stated"),
        sources=sources,
        **numbers,
    )


def save_calibration(calibration: Calibration, path: Path) -> None:
    """Writes the file whole or not at all. Numbers come back to the last bit."""
    document = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "name": calibration.name,
        "measured_on": calibration.measured_on,
        "measured_at": calibration.measured_at,
        "values": {
            number: {
                "value": float(getattr(calibration, number)),
                "unit": str(_METADATA[number]["unit"]),
                "source": calibration.sources.get(number, "not stated"),
            }
            for number in NUMBERS
        },
    }
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _default_for(path: Path, missing: list[str]) -> Calibration:
    default = SHIPPED / "default.yaml"
    if path.resolve() == default.resolve():
        raise InputError(f"the shipped default lacks {', '.join(missing)}", where=str(path))
    return load_calibration(default)


def _check_schema(entries: Mapping[str, Entry], path: Path) -> None:
    schema, version = entries.get("schema"), entries.get("schema_version")
    if schema is None or schema.value != SCHEMA:
        raise InputError(
            "is not a calibration file",
            where=schema.place if schema else str(path),
            remedy=f"its first line should be schema: {SCHEMA}",
        )
    if version is None or version.value != SCHEMA_VERSION:
        raise InputError(
            f"schema_version is {version.value if version else 'not given'}",
            where=version.place if version else str(path),
            remedy=f"this kvplan reads version {SCHEMA_VERSION}",
        )


def _number(number: str, entry: Entry) -> tuple[float, str]:
    """Value and source of one entry under ``values``."""
    if not isinstance(entry.value, dict):
        raise InputError(
            f"{number} has no source", where=entry.place, remedy=f"write {number}: {{value: ..., source: ...}}"
        )
    _refuse_unknown(entry.value, ("value", "unit", "source"), f"values.{number}.")
    for key in ("value", "source"):
        if key not in entry.value:
            raise InputError(f"{number} has no {key}", where=entry.place, remedy=f"add {key}: ...")
    unit = entry.value.get("unit")
    if unit is not None and unit.value != _METADATA[number]["unit"]:
        raise InputError(
            f"{number} is in {unit.value!r}", where=unit.place, remedy=f"give it in {_METADATA[number]['unit']}"
        )
    value = entry.value["value"]
    return check_number(number, value.value, where=value.place), str(entry.value["source"].value)


def _refuse_unknown(entries: Mapping[str, Entry], known: tuple[str, ...], above: str) -> None:
    for key, entry in entries.items():
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            raise InputError(
                f"{above}{key} is not part of a calibration",
                where=entry.place,
                remedy=f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}",
            )
