"""JSON rows with lengths, times and perhaps hash_ids: what Mooncake's and plain JSONL have in common."""

from __future__ import annotations

from typing import Any, TextIO

from workloads.errors import WorkloadError
from workloads.traces.columns import Columns, find_columns
from workloads.traces.config import TraceConfig
from workloads.traces.json_rows import json_rows
from workloads.traces.sink import BadRowError, RowSink
from workloads.traces.values import time_ps, token_count
from workloads.workload import Segment


def read_json_table(text: TextIO, sink: RowSink, config: TraceConfig, *, timestamp_unit: str) -> Columns | None:
    """Reads rows into ``sink``; ``timestamp_unit`` holds where the name of the time column states none.

    The first usable object names the columns. Returns them, or None where there was no object at all.
    """
    columns: Columns | None = None
    unnamed: WorkloadError | None = None
    known: dict[Any, int] = {}
    for number, row in json_rows(text, sink):
        if columns is None:
            unit = "s" if "chat_id" in row or "t" in row else timestamp_unit  # Alibaba's and Weka's are seconds
            where = f"{sink.path}:{number}"
            try:
                columns = find_columns(row, where=where, time_unit=config.time_unit, default_unit=unit)
            except WorkloadError as error:
                unnamed = unnamed or error
                sink.drop(number, "names no prompt or no output length", ", ".join(row)[:40])
                continue
        try:
            _add(sink, number, row, columns, known)
        except BadRowError as bad:
            sink.drop(number, bad.reason, bad.shown)
    if columns is None and unnamed is not None:
        raise unnamed
    return columns


def _add(sink: RowSink, number: int, row: dict[str, Any], columns: Columns, known: dict[Any, int]) -> None:
    """Keeps one row. Raises BadRowError, before anything is kept, for a row that cannot be used."""
    time = None if columns.time is None else time_ps(row.get(columns.time), columns.time, columns.unit_ps)
    prompt = token_count(row.get(columns.prompt), columns.prompt)
    output = token_count(row.get(columns.output), columns.output)
    blocks = _hash_ids(row.get("hash_ids"), known)
    segments = _segments(row.get("segments"), prompt)
    priority = None if columns.priority is None else _priority(row.get(columns.priority, 0))
    sink.add(number, time, prompt, output)
    sink.hash_ids.extend(blocks)
    sink.hash_counts.append(len(blocks))
    sink.segments.append(segments)
    if priority is not None:
        sink.priority.append(priority)
    if columns.request_class is not None:
        sink.class_names.append(str(row.get(columns.request_class)))
    if columns.request_id is not None:
        sink.request_ids.append(str(row.get(columns.request_id)))


def _hash_ids(value: Any, known: dict[Any, int]) -> list[int]:
    """The ids as 64-bit integers: as they are, or numbered in order of appearance (text, larger numbers)."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadRowError("hash_ids is not a list", repr(value)[:40])
    if all(type(entry) is int and 0 <= entry < 1 << 62 for entry in value):
        return value
    if any(isinstance(entry, bool) or not isinstance(entry, (int, str)) for entry in value):
        raise BadRowError("hash_ids holds something else than numbers and text", repr(value)[:40])
    return [-1 - known.setdefault(entry, len(known)) for entry in value]


def _segments(value: Any, prompt_tokens: int) -> tuple[Segment, ...] | None:
    """[[stream, start, length], ...] of a prompt, as in data/vllm_golden."""
    if value is None:
        return None
    try:
        segments = tuple((str(stream), int(start), int(length)) for stream, start, length in value)
    except (TypeError, ValueError):
        raise BadRowError("segments is not a list of [stream, start, length]", repr(value)[:40]) from None
    if any(start < 0 or length < 1 for _, start, length in segments):
        raise BadRowError("segments holds a negative start or an empty piece", repr(value)[:40])
    if sum(length for _, _, length in segments) != prompt_tokens:
        raise BadRowError("segments do not add up to the prompt", repr(value)[:40])
    return segments


def _priority(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRowError("priority is not a whole number", repr(value)[:40])
    return value
