"""JSON lines, or one JSON array, whose keys say what they hold (see columns.py for the names).

``timestamp`` without a unit is seconds, as guidellm's ``trace_synthetic``; ``hash_ids`` are read where they stand.
"""

from __future__ import annotations

from typing import TextIO

from workloads.traces.config import TraceConfig
from workloads.traces.json_table import read_json_table
from workloads.traces.sink import RowSink


def read(text: TextIO, sink: RowSink, config: TraceConfig) -> None:
    """Reads the rows into ``sink``."""
    columns = read_json_table(text, sink, config, timestamp_unit="s")
    if columns is not None and columns.time is not None and config.time_unit == "auto":
        sink.notes.append(f"trace times are column {columns.time!r} in {columns.unit}")
