"""Azure LLM inference traces, 2023 and 2024: ``TIMESTAMP,ContextTokens,GeneratedTokens``.

Times are dates with up to seven decimals (``2023-11-16 18:15:46.6805900``), in 2024 with a UTC offset.
Source: github.com/Azure/AzurePublicDataset (CC-BY 4.0).
"""

from __future__ import annotations

from typing import TextIO

from workloads.traces.config import TraceConfig
from workloads.traces.sink import RowSink
from workloads.traces.table import read_table


def read(text: TextIO, sink: RowSink, config: TraceConfig) -> None:
    """Reads the rows into ``sink``."""
    read_table(text, sink, time_unit=config.time_unit)
