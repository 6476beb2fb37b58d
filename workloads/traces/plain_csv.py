"""Any table with a header whose names say what they hold (see columns.py for the names).

The arrival column's unit is the suffix of its name (``arrival_ns``, ``timestamp_ms``), else seconds; without an
arrival column the table gives lengths alone.
"""

from __future__ import annotations

from typing import TextIO

from workloads.traces.config import TraceConfig
from workloads.traces.sink import RowSink
from workloads.traces.table import read_table


def read(text: TextIO, sink: RowSink, config: TraceConfig) -> None:
    """Reads the rows into ``sink``."""
    columns = read_table(text, sink, time_unit=config.time_unit)
    if columns.time is not None and config.time_unit == "auto":
        sink.notes.append(f"trace times are column {columns.time!r} in {columns.unit} (numbers; dates as they stand)")
