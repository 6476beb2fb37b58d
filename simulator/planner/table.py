"""The table of a sweep: one row a point, its settings first, then every scalar of its ``result.json``."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator.planner.axes import Axis
from simulator.planner.kept_folder import write_durably
from simulator.planner.point import EXIT_CODES, Point, Status
from simulator.result_files import whole_file

Row = dict[str, Any]
_MOVED = {"status": "run_status"}
"""Keys of ``result.json`` whose name a column of the sweep already bears."""
_TEXT_KEYS = ("reject_reasons",)
"""Mappings whose keys are sentences: no columns."""


def row_of(axes: Sequence[Axis], point: Point, status: Status, error: str | None, result: Mapping[str, Any]) -> Row:
    """A point's row; a failed point has the first columns alone."""
    row: Row = {"point": point.index, "variant": point.variant or None}
    row |= {axis.path: _cell(value) for axis, value in zip(axes, point.values, strict=True)}
    row |= {"replication": point.replication, "seed": point.seed, "status": status}
    row |= {"exit_code": EXIT_CODES[status], "error": error}
    row |= {"binding_limit": result.get("binding_limit"), "saturated": result.get("saturated")}
    for key, value in _flat(result):
        row.setdefault(_MOVED.get(key, key), value)
    return row


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def _flat(value: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, Any]]:
    """Scalars by dotted key; a list of two numbers is an interval (``.low``, ``.high``), other lists are left out."""
    for key, item in value.items():
        name = above + key
        if isinstance(item, Mapping):
            if name not in _TEXT_KEYS:
                yield from _flat(item, name + ".")
        elif isinstance(item, list | tuple):
            if len(item) == 2 and all(isinstance(end, int | float) for end in item):
                yield from zip((f"{name}.low", f"{name}.high"), item, strict=True)
        else:
            yield name, item


def columns_of(rows: Iterable[Row]) -> list[str]:
    """Every column of any row; one that an earlier row lacks stands behind the one that it follows in its own row."""
    columns: list[str] = []
    known: set[str] = set()
    for row in rows:
        if known.issuperset(row):
            continue
        at = 0
        for name in row:
            if name in known:
                at = columns.index(name) + 1
            else:
                columns.insert(at, name)
                known.add(name)
                at += 1
    return columns


def write_tables(rows: Sequence[Row], columns: Sequence[str], folder: Path) -> None:
    """``points.csv`` and ``points.json``."""
    write_csv(rows, columns, folder / "points.csv")
    lines = ",\n".join(json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows)
    head = json.dumps(list(columns), ensure_ascii=False)
    write_durably(folder / "points.json", f'{{"columns": {head},\n"rows": [\n{lines}\n]}}\n')


def write_csv(rows: Iterable[Row], columns: Sequence[str], path: Path) -> None:
    """A table whose empty cells are what is not known; floats read back to the same number."""
    with whole_file(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            writer.writerow([_text(row.get(name)) for name in columns])


def _text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
