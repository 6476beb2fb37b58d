"""Lengths from a file: one number a line, or a column of a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from workloads.errors import WorkloadError
from workloads.traces.opening import open_trace
from workloads.traces.sink import BadRowError
from workloads.traces.table import split_line
from workloads.traces.values import token_count
from workloads.workload import IntColumn


def read_numbers(path: Path, *, column: str | None = None, where: str = "path") -> IntColumn:
    """Whole numbers >= 1. Raises WorkloadError, with the line, for anything else: a sample must be clean."""
    with open_trace(path, where) as text:
        lines = [(number, line) for number, line in enumerate(text, 1) if line.strip()]
    if not lines:
        raise WorkloadError(f"{path} is empty", where=where, remedy="give one length a line")
    delimiter = max(",;\t", key=lines[0][1].count)
    try:
        header = [name.strip() for name in split_line(lines[0][1], delimiter)]
    except BadRowError as bad:
        raise WorkloadError(bad.reason, where=f"{path}:{lines[0][0]}", remedy="mend the line") from None
    at = 0
    if column is not None:
        if column not in header:
            raise WorkloadError(
                f"{path} has no column {column!r}", where=where, remedy=f"choose from {', '.join(header)}"
            )
        at = header.index(column)
    elif len(header) > 1:
        raise WorkloadError(
            f"{path} has {len(header)} columns", where=where, remedy=f"set column to one of {', '.join(header)}"
        )
    named = column is not None or not header[0].replace(".", "", 1).isdigit()
    values = []
    for number, line in lines[1:] if named else lines:
        try:
            fields = split_line(line, delimiter)
            values.append(token_count(fields[at].strip() if at < len(fields) else None, column or "length"))
        except BadRowError as bad:
            shown = f": {bad.shown}" if bad.shown else ""
            raise WorkloadError(bad.reason + shown, where=f"{path}:{number}", remedy="mend the line") from None
    if not values:
        raise WorkloadError(f"{path} has a header and no row", where=where, remedy="give one length a line")
    return np.asarray(values, dtype=np.int64)
