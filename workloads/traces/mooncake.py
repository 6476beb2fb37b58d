"""Mooncake JSONL: ``{"timestamp": ms, "input_length", "output_length", "hash_ids": [...]}``, 512 tokens a block.

The same layout with other block sizes and units is used by Alibaba (16 tokens, seconds, ``chat_id``) and Weka
(64 tokens, ``t``). Source: github.com/kvcache-ai/Mooncake (Apache-2.0).
"""

from __future__ import annotations

from typing import TextIO

from workloads.traces.config import TraceConfig
from workloads.traces.json_table import read_json_table
from workloads.traces.sink import RowSink


def read(text: TextIO, sink: RowSink, config: TraceConfig) -> None:
    """Reads the rows into ``sink``."""
    read_json_table(text, sink, config, timestamp_unit="ms")
