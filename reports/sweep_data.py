"""Reads a finished sweep from its files, and nothing else: what ``kvplan report`` redraws from.

Numbers come from ``points.csv``, what the sweep says of itself from ``sweep.json``; warnings and assumptions from the
``result.json`` of its points, where these still lie beside them.
"""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from reports.sweep_sentences import sentences_of
from simulator.errors import InputError

Row = dict[str, Any]
BEFORE_AXES, BEHIND_AXES = "point", "replication"
"""The columns between which ``points.csv`` has ``variant`` and the swept settings."""

NOT_SET = "not set"
"""Stands for null among the values of an axis."""

NOT_OF_THE_LOAD = ("engine.", "gpu", "model", "parallelism.", "router", "step_time.", "variant", "cost.")
"""Axes that somebody chooses. The others (``workload.``, ``seed``) are conditions under which the choice is judged."""

TEXT_COLUMNS = ("variant", "status", "error", "binding_limit", "scenario_sha256", "name", "model_id", "gpu")


@dataclass(frozen=True)
class Axis:
    """A swept setting: its dotted path (or ``variant``) and its values, each once, in the order of the sweep."""

    path: str
    values: tuple[Any, ...]

    @property
    def label(self) -> str:
        """The last part of the path: ``block_size``; kept with its section where that alone says little."""
        *section, last = self.path.split(".")
        if section and last == "tokens":
            return section[-1]  # workload.prompt_tokens.tokens
        return f"{section[-1]}.{last}" if section and last in ("kind", "mean", "max", "min", "cv") else last

    @property
    def numeric(self) -> bool:
        """Whether the values have a place on a scale."""
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)

    @property
    def is_condition(self) -> bool:
        """Whether this is the load, not a choice."""
        return not self.path.startswith(NOT_OF_THE_LOAD)

    @property
    def is_log(self) -> bool:
        """Whether the values double (or so) from one to the next: even steps on a logarithmic scale."""
        if not self.numeric or len(self.values) < 4 or min(self.values) <= 0:
            return False
        ordered = sorted(self.values)
        steps = [math.log2(b / a) for a, b in pairwise(ordered)]
        return bool(min(steps) > 0.3 and ordered[-1] / ordered[0] >= 8)


@dataclass(frozen=True)
class SweepData:
    """A finished sweep.

    Attributes:
        axes: the swept settings that take more than one value, ``variant`` first where the scenario has variants.
        rows: one for each line of ``points.csv``; numbers are numbers, empty cells None.
        fixed: swept settings with a single value.
        findings: sentences of the sweep, such as a knob that changed nothing; ``warnings`` and ``assumptions``: of its
            points.
    """

    name: str
    question: str
    axes: tuple[Axis, ...]
    fixed: tuple[Axis, ...]
    rows: list[Row]
    findings: tuple[str, ...]
    warnings: tuple[str, ...]
    assumptions: tuple[str, ...]
    folder: Path

    @cached_property
    def columns(self) -> frozenset[str]:
        """Columns that hold a value in some row."""
        return frozenset(key for row in self.rows for key, value in row.items() if value is not None)

    def only(self, column: str) -> list[str]:
        """The different values of a column, as text, in the order of the rows."""
        return list(dict.fromkeys(str(row[column]) for row in self.rows if row.get(column) is not None))


def is_sweep(folder: Path) -> bool:
    """Whether a folder holds a sweep rather than a run."""
    return (folder / "sweep.json").is_file()


def read_sweep(folder: Path) -> SweepData:
    """The sweep of a folder. Raises InputError where its files are missing or broken."""
    facts = _facts(folder / "sweep.json")
    rows = _rows(folder / "points.csv")
    header = list(rows[0])
    folders = [folder / str(name) for name in facts.get("folders") or []]
    first, last = header.index(BEFORE_AXES) + 1, header.index(BEHIND_AXES)
    axes = [
        Axis(path, tuple(dict.fromkeys(row[path] for row in rows if row[path] is not None)))
        for path in header[first:last]
    ]
    return SweepData(
        name=str(facts.get("name") or folder.resolve().name),
        question=str(facts.get("question") or ""),
        axes=tuple(axis for axis in axes if len(axis.values) > 1),
        fixed=tuple(axis for axis in axes if len(axis.values) == 1),
        rows=rows,
        findings=_sentences(facts, "findings"),
        warnings=sentences_of(folders, "warnings"),
        assumptions=sentences_of(folders, "assumptions"),
        folder=folder,
    )


def _facts(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(
            "is not the folder of a finished sweep: it has no sweep.json",
            where=str(path.parent),
            remedy="give the folder that `kvplan sweep` named in its last line",
        )
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"is broken: {error}", where=str(path), remedy="sweep again with --resume") from None
    if not isinstance(found, dict):
        raise InputError("is not a JSON object", where=str(path), remedy="sweep again with --resume")
    return found


def _sentences(facts: dict[str, Any], key: str) -> tuple[str, ...]:
    found = facts.get(key) or []
    return tuple(str(sentence) for sentence in found)


def _rows(path: Path) -> list[Row]:
    remedy = "sweep again with --resume"
    if not path.is_file():
        raise InputError("is missing, so the sweep is not finished", where=str(path), remedy=remedy)
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        if BEFORE_AXES not in header or BEHIND_AXES not in header:
            raise InputError("is not the table of a sweep", where=str(path), remedy=remedy)
        lines = [line for line in reader if line]
    if not lines or any(len(line) != len(header) for line in lines):
        raise InputError("is broken: rows are missing or cut", where=str(path), remedy=remedy)
    axes = header[header.index(BEFORE_AXES) + 2 : header.index(BEHIND_AXES)]
    rows = [
        {key: (cell or None) if key in TEXT_COLUMNS else _value(cell) for key, cell in zip(header, line, strict=True)}
        for line in lines
    ]
    for row in rows:
        row |= {path: NOT_SET for path in axes if row[path] is None}
    return rows


def _value(cell: str) -> Any:
    """A cell as what it says: a number, yes or no, text; an empty one is None."""
    if cell == "":
        return None
    if cell.lower() in ("true", "false"):
        return cell.lower() == "true"
    for read in (int, float):
        try:
            value = read(cell)
        except ValueError:
            continue
        if math.isfinite(value) and cell.strip() == cell and "_" not in cell:
            return value
    return cell
