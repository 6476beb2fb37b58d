"""Vidur's request traces: ``arrived_at,num_prefill_tokens,num_decode_tokens``, times in seconds.

Source: github.com/microsoft/vidur.
"""

from __future__ import annotations

from typing import TextIO

from workloads.traces.config import TraceConfig
from workloads.traces.sink import RowSink
from workloads.traces.table import read_table


def read(text: TextIO, sink: RowSink, config: TraceConfig) -> None:
    """Reads the rows into ``sink``."""
    read_table(text, sink, time_unit=config.time_unit)
