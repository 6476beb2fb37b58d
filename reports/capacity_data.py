"""Reads a finished capacity search from its files, and nothing else: what ``kvplan report`` redraws from.

Candidates come from ``candidates.csv`` (best first), every simulated rate from ``probes.csv``, what the search says of
itself from ``answer.json``.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from simulator.errors import InputError

Row = dict[str, Any]
TEXT_COLUMNS = ("candidate", "status", "reason", "gpu", "weight_dtype", "kv_cache_dtype", "binding_limit", "limit_text")
PROBE_TEXT_COLUMNS = ("candidate", "purpose", "why_not", "binding_limit")
BEFORE_SWEPT, BEHIND_SWEPT = "kv_cache_dtype", "replicas"
"""The columns between which ``candidates.csv`` has the further swept settings."""

NEEDED = ("candidate", "status")
REMEDY = "search again with --resume"
OK = "ok"
PLACE = re.compile(r"(?:(?<=\s)|^)\S+:\d+:\d+: (?:gpu: )?")
"""In a scenario file; a reason says what is wrong without it."""

LATENCY_WORDS = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2EL", "queue": "queue"}


@dataclass(frozen=True)
class Limited:
    """A limit on a latency: ``p99_ttft_ms`` at most ``limit_ms``."""

    column: str
    limit_ms: float

    @property
    def label(self) -> str:
        """``p99 TTFT``."""
        stat, name = self.column.removesuffix("_ms").split("_", 1)
        return f"{stat} {LATENCY_WORDS.get(name, name)}"


@dataclass(frozen=True)
class CapacityData:
    """A finished search.

    Attributes:
        answer: ``answer.json``.
        rows: candidates, best first; numbers are numbers, empty cells None.
        probes: what was simulated; empty where the file is missing.
        swept: further settings in which candidates differ, by dotted key.
    """

    answer: Row
    rows: list[Row]
    probes: list[Row]
    swept: tuple[str, ...]
    folder: Path

    @cached_property
    def limits(self) -> tuple[Limited, ...]:
        """The limits of the SLO, each column once with its smallest."""
        return limits_of([self.answer.get("slo"), self.answer.get("classes")])

    @property
    def rate_rps(self) -> float | None:
        """The asked rate, or None."""
        rate = self.answer.get("rate_rps")
        return float(rate) if rate else None

    @cached_property
    def winner(self) -> Row | None:
        """The row of the candidate that the answer names."""
        return row_of(self.rows, self.answer.get("winner"))

    @cached_property
    def serving(self) -> list[Row]:
        """Candidates that answer the question, the best first."""
        return [row for row in self.rows if serves(row)]

    def only(self, column: str) -> list[str]:
        """The different values of a column, as text, in the order of the rows."""
        return list(dict.fromkeys(str(row[column]) for row in self.rows if row.get(column) is not None))

    def sentences(self, key: str) -> list[str]:
        """The sentences of ``answer.json`` under a key."""
        return sentences_of(self.answer, key)


def sentences_of(answer: Row, key: str) -> list[str]:
    """The sentences of ``answer.json`` under a key."""
    found = answer.get(key) or []
    return [PLACE.sub("", str(sentence)) for sentence in ([found] if isinstance(found, str) else found)]


def is_capacity(folder: Path) -> bool:
    """Whether a folder holds a capacity search."""
    return (folder / "answer.json").is_file() and (folder / "candidates.csv").is_file()


def read_capacity(folder: Path) -> CapacityData:
    """The search of a folder. Raises InputError where its files are missing or broken."""
    answer = _answer(folder / "answer.json")
    rows, header = read_table(folder / "candidates.csv", TEXT_COLUMNS)
    if not rows or any(name not in header for name in NEEDED):
        raise InputError("is not the table of a capacity search", where=str(folder / "candidates.csv"), remedy=REMEDY)
    probes, _ = read_table(folder / "probes.csv", PROBE_TEXT_COLUMNS) if (folder / "probes.csv").is_file() else ([], [])
    return CapacityData(answer, rows, probes, swept_of(header), folder)


def serves(row: Row) -> bool:
    """Whether a candidate fits, meets the SLO and, where a rate is asked, meets it there."""
    return row.get("status") == OK and row.get("meets_rate") is not False


def row_of(rows: list[Row], named: Any) -> Row | None:
    """The row of a candidate that ``answer.json`` names, as a row or by its name."""
    if not named:
        return None
    name = named.get("candidate") if isinstance(named, Mapping) else named
    found = next((row for row in rows if row["candidate"] == name), None)
    return found or (dict(named) if isinstance(named, Mapping) and name else None)


def swept_of(header: list[str]) -> tuple[str, ...]:
    """The columns of further swept settings."""
    if BEFORE_SWEPT not in header or BEHIND_SWEPT not in header:
        return ()
    return tuple(header[header.index(BEFORE_SWEPT) + 1 : header.index(BEHIND_SWEPT)])


def limits_of(slo: Any) -> tuple[Limited, ...]:
    """The limits in an SLO: ``{ttft_ms: {p99: 400}}``, also by class, or a list of what was limited."""
    found: dict[str, float] = {}

    def add(metric: str, stat: str, limit: Any) -> None:
        if isinstance(limit, int | float) and not isinstance(limit, bool):
            column = f"{'median' if stat == 'p50' else stat}_{metric}"
            found[column] = min(float(limit), found.get(column, math.inf))

    def walk(part: Any) -> None:
        if isinstance(part, list):
            for one in part:
                if isinstance(one, Mapping) and {"metric", "stat", "limit"} <= set(one):
                    add(str(one["metric"]), str(one["stat"]), one["limit"])
                else:
                    walk(one)
        elif isinstance(part, Mapping):
            for key, value in part.items():
                if str(key).endswith("_ms") and isinstance(value, Mapping):
                    for stat, limit in value.items():
                        add(str(key), str(stat), limit)
                else:
                    walk(value)

    walk(slo)
    return tuple(Limited(column, limit) for column, limit in found.items())


def read_table(path: Path, texts: tuple[str, ...]) -> tuple[list[Row], list[str]]:
    """(rows, header) of a CSV. Columns of ``texts`` stay text; of the others numbers become numbers."""
    if not path.is_file():
        raise InputError("is missing, so the search is not finished", where=str(path), remedy=REMEDY)
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        lines = [line for line in reader if line]
    if any(len(line) != len(header) for line in lines):
        raise InputError("is broken: a row is cut", where=str(path), remedy=REMEDY)
    return [
        {key: (cell or None) if key in texts else _value(cell) for key, cell in zip(header, line, strict=True)}
        for line in lines
    ], header


def _value(cell: str) -> Any:
    """A cell as what it says: a number, yes or no, text; an empty one is None."""
    if cell in ("", "true", "false"):
        return cell == "true" if cell else None
    for read in (int, float):
        try:
            value = read(cell)
        except ValueError:
            continue
        if math.isfinite(value) and cell.strip() == cell and "_" not in cell:
            return value
    return cell


def _answer(path: Path) -> Row:
    if not path.is_file():
        raise InputError(
            "is not the folder of a finished capacity search: it has no answer.json",
            where=str(path.parent),
            remedy="give the folder that `kvplan capacity` named in its last line",
        )
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"is broken: {error}", where=str(path), remedy=REMEDY) from None
    if not isinstance(found, dict):
        raise InputError("is not a JSON object", where=str(path), remedy=REMEDY)
    return found
