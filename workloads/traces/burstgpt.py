"""BurstGPT: ``Timestamp[,Session ID,Elapsed time],Model,Request tokens,Response tokens,Total tokens,Log Type``.

Times are seconds. A response of 0 tokens is a request that failed: it is dropped and counted.
Source: github.com/HPMLL/BurstGPT (CC-BY 4.0).
"""

from __future__ import annotations

from typing import TextIO

from workloads.traces.config import TraceConfig
from workloads.traces.sink import BadRowError, RowSink
from workloads.traces.table import read_table


def read(text: TextIO, sink: RowSink, config: TraceConfig) -> None:
    """Reads the rows into ``sink``."""
    read_table(text, sink, time_unit=config.time_unit, check=_failed, output_at_least=0)


def _failed(prompt: int, output: int) -> None:
    if output == 0:
        raise BadRowError("response of 0 tokens: the request failed", f"{prompt} request tokens")
