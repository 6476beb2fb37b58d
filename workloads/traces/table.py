"""Tables of text: one row a line, so that a broken row costs itself alone."""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import TextIO

from workloads.errors import WorkloadError
from workloads.traces.columns import Columns, find_columns
from workloads.traces.sink import BadRowError, RowSink
from workloads.traces.values import time_ps, token_count

RowCheck = Callable[[int, int], None]
"""(prompt, output) -> None; raises BadRowError for a row that the format calls unusable."""


def read_table(
    text: TextIO,
    sink: RowSink,
    *,
    time_unit: str,
    default_unit: str = "s",
    check: RowCheck | None = None,
    output_at_least: int = 1,
) -> Columns:
    """Reads a table with a header into ``sink``; quoted fields may hold the delimiter but no line break.

    Raises:
        WorkloadError: the header names no prompt or output column.
    """
    header_line, skipped = "", 0
    while not header_line.strip():
        header_line, skipped = text.readline(), skipped + 1
        if not header_line:
            raise WorkloadError("is empty", where=sink.path, remedy="give a table with a header and a row")
    delimiter = max(",;\t", key=header_line.count)
    header = [name.strip() for name in split_line(header_line, delimiter)]
    where = f"{sink.path}:{skipped}"
    columns = find_columns(header, where=where, time_unit=time_unit, default_unit=default_unit)
    index = {name: i for i, name in reversed(list(enumerate(header)))}
    for number, line in enumerate(text, skipped + 1):
        if sink.full:
            break
        if not line.strip():
            continue
        sink.rows_read += 1
        try:
            fields = split_line(line, delimiter)
            if len(fields) != len(header):
                raise BadRowError(f"has not {len(header)} fields as the header", f"{len(fields)} fields")
            _add(sink, number, fields, columns, index, check, output_at_least)
        except BadRowError as bad:
            sink.drop(number, bad.reason, bad.shown)
    return columns


def _add(
    sink: RowSink,
    number: int,
    fields: list[str],
    columns: Columns,
    index: dict[str, int],
    check: RowCheck | None,
    output_at_least: int,
) -> None:
    """Keeps one row. Raises BadRowError, before anything is kept, for a row that cannot be used."""
    time = None if columns.time is None else time_ps(fields[index[columns.time]], columns.time, columns.unit_ps)
    prompt = token_count(fields[index[columns.prompt]], columns.prompt)
    output = token_count(fields[index[columns.output]], columns.output, at_least=output_at_least)
    if check is not None:
        check(prompt, output)
    priority = None if columns.priority is None else _priority(fields[index[columns.priority]])
    sink.add(number, time, prompt, output)
    if columns.request_class is not None:
        sink.class_names.append(fields[index[columns.request_class]].strip())
    if priority is not None:
        sink.priority.append(priority)
    if columns.request_id is not None:
        sink.request_ids.append(fields[index[columns.request_id]].strip())


def split_line(line: str, delimiter: str) -> list[str]:
    """The fields of one line. Raises BadRowError for quotes that do not close."""
    line = line.rstrip("\r\n")
    if '"' not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise BadRowError("has broken quotes", str(error)) from None


def _priority(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise BadRowError("priority is not a whole number", repr(value)[:40]) from None
