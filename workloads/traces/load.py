"""Reads any supported trace into columns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from workloads.errors import WorkloadError
from workloads.measured import Measured
from workloads.prompt_segments import PromptSegments
from workloads.traces import (
    aiperf,
    azure,
    burstgpt,
    guidellm,
    mooncake,
    plain_csv,
    plain_jsonl,
    sharegpt,
    vidur,
    vllm_bench,
)
from workloads.traces.client_settings import ClientSettings
from workloads.traces.config import TraceConfig
from workloads.traces.facts import TraceFacts
from workloads.traces.hash_blocks import HashedSegments, fitting_block_size
from workloads.traces.opening import detect_format, open_trace
from workloads.traces.sink import RowSink
from workloads.workload import PS_PER_S, IntColumn, Segment

_READERS: dict[str, Callable[[TextIO, RowSink, TraceConfig], None]] = {
    "mooncake": mooncake.read,
    "azure": azure.read,
    "burstgpt": burstgpt.read,
    "sharegpt": sharegpt.read,
    "vidur": vidur.read,
    "csv": plain_csv.read,
    "jsonl": plain_jsonl.read,
    "vllm-bench": vllm_bench.read,
    "aiperf": aiperf.read,
    "guidellm": guidellm.read,
}
Segments = HashedSegments | PromptSegments | list[tuple[Segment, ...] | None]

_EPOCH_S = 10**8  # times later than three years are dates, not a run's own clock
_MAX_S = np.iinfo(np.int64).max // PS_PER_S


@dataclass(frozen=True)
class TraceRows:
    """The good rows of a trace, by time where it has times, else in the file's order.

    Attributes:
        arrival_ps: picoseconds from the trace's own zero (from the first row where times are dates); None without.
        turn: place of the row in its session, None where the trace has no sessions.
        lines: line number of each row in the file (of its requests, where ``facts.row_name`` says so).
        client, measured: of a benchmark tool's result: how its requests were sent, and what it measured.
        left_out: good rows behind the limit, where the reader counts them.
    """

    prompt_tokens: IntColumn
    output_tokens: IntColumn
    lines: IntColumn
    arrival_ps: IntColumn | None
    turn: IntColumn | None
    segments: Segments | None
    class_names: list[str] | None
    priority: IntColumn | None
    request_ids: list[str] | None
    facts: TraceFacts
    notes: tuple[str, ...]
    client: ClientSettings | None = None
    measured: Measured | None = None
    left_out: int = 0


def load_trace(config: TraceConfig, *, base_dir: Path | None = None, where: str = "trace") -> TraceRows:
    """Reads ``config.path``.

    Raises:
        WorkloadError: the file cannot be read or understood, or no row of it is usable.
    """
    path = Path(config.path).expanduser()
    path = path if base_dir is None else base_dir / path
    try:
        found = path.stat()
    except OSError:
        return _read(config, path, where)  # which says what is wrong
    return _read_once(config, path, where, found.st_mtime_ns, found.st_size)


@functools.lru_cache(maxsize=1)  # sweeps and capacity searches read the same file again and again
def _read_once(config: TraceConfig, path: Path, where: str, mtime_ns: int, size: int) -> TraceRows:
    return _read(config, path, where)


def _read(config: TraceConfig, path: Path, where: str) -> TraceRows:
    file_format = detect_format(path, f"{where}.path") if config.format == "auto" else config.format
    sink = RowSink(str(path), limit=config.limit, stop_on_bad_row=config.on_bad_row == "error")
    with open_trace(path, f"{where}.path") as text:
        _READERS[file_format](text, sink, config)
    rows = _columns(sink, config, file_format, where)
    if not len(rows.lines):
        raise WorkloadError(
            f"{config.path} has no usable row" + _why(rows.facts),
            where=f"{where}.path",
            remedy="check that format, block_size and the columns' names are right"
            if rows.measured is None
            else "give the result of a benchmark whose requests were served",
        )
    return rows


def _columns(sink: RowSink, config: TraceConfig, file_format: str, where: str) -> TraceRows:
    prompt = np.array(sink.prompt_tokens, dtype=np.int64)
    lines = np.array(sink.lines, dtype=np.int64)
    counts = np.array(sink.hash_counts, dtype=np.int64)
    notes = list(sink.notes)
    keep = np.ones(len(prompt), dtype=bool)
    block_size = None
    if np.any(counts):
        block_size = _block_size(config, prompt, counts, notes, where)
        keep = counts <= -(-prompt // block_size)
        for i in np.flatnonzero(~keep):
            shown = f"{counts[i]} blocks for {prompt[i]} tokens"
            sink.drop(int(lines[i]), f"hash_ids name more blocks of {block_size} tokens than the prompt has", shown)
        short = int(np.sum(counts[keep] < prompt[keep] // block_size))
        if short:
            notes.append(f"{short} rows name fewer hash_ids than full blocks; the rest of their prompts is private")
    arrival = _arrivals(sink, config, keep, where)
    order = np.flatnonzero(keep)
    if arrival is not None and np.any(np.diff(arrival) < 0):
        notes.append(f"{int(np.sum(np.diff(arrival) < 0))} rows came earlier than the row before; sorted by time")
        by_time: IntColumn = np.argsort(arrival, kind="stable")
        arrival, order = arrival[by_time], order[by_time]
    prompt, output = prompt[order], np.array(sink.output_tokens, dtype=np.int64)[order]
    turn = np.array(sink.turn, dtype=np.int64)[order] if config.turns == "all" and len(sink.turn) else None
    segments = _segments(sink, order, prompt, output, turn, block_size)
    return TraceRows(
        prompt_tokens=prompt,
        output_tokens=output,
        lines=lines[order],
        arrival_ps=arrival,
        turn=turn,
        segments=segments,
        class_names=[sink.class_names[i] for i in order] if sink.class_names else None,
        priority=np.array(sink.priority, dtype=np.int64)[order] if len(sink.priority) else None,
        request_ids=_request_ids(sink, order, notes),
        facts=TraceFacts(
            config.path, file_format, sink.rows_read, len(order), sink.dropped(), block_size, sink.row_name
        ),
        notes=tuple(notes),
        client=sink.client,
        measured=sink.measured,
        left_out=sink.left_out,
    )


def _segments(
    sink: RowSink,
    order: IntColumn,
    prompt: IntColumn,
    output: IntColumn,
    turn: IntColumn | None,
    block_size: int | None,
) -> Segments | None:
    """Token identity of the kept rows, in their order, from whatever the trace says about it."""
    if any(row is not None for row in sink.segments):
        return [sink.segments[i] for i in order]
    if block_size is not None:
        counts = np.array(sink.hash_counts, dtype=np.int64)
        starts = np.cumsum(counts) - counts
        ids = np.array(sink.hash_ids, dtype=np.int64)
        return HashedSegments(ids, starts[order], counts[order], prompt, block_size)
    if turn is not None:
        none = np.full(len(turn), -1, dtype=np.int64)
        return PromptSegments(np.array(sink.new_tokens, dtype=np.int64), output, turn, none, none, none, [])
    return None


def _block_size(config: TraceConfig, prompt: IntColumn, counts: IntColumn, notes: list[str], where: str) -> int:
    if config.block_size is not None:
        return config.block_size
    size, share = fitting_block_size(prompt, counts)
    if share < 0.5:
        raise WorkloadError(
            "no block size explains the number of hash_ids", where=f"{where}.block_size", remedy="set block_size"
        )
    if size != 512:
        notes.append(f"hash_ids stand for {size} tokens each, as the prompt lengths say")
    return size


def _arrivals(sink: RowSink, config: TraceConfig, keep: NDArray[np.bool_], where: str) -> IntColumn | None:
    """Scaled picoseconds of the kept rows, exact where time_scale is 1."""
    if not len(sink.whole_s):
        return None
    whole = np.array(sink.whole_s, dtype=np.int64)[keep]
    rest = np.array(sink.rest_ps, dtype=np.int64)[keep]
    if not len(whole):
        return whole
    first = np.lexsort((rest, whole))[0]
    if whole[first] < 0 or whole[first] >= _EPOCH_S:
        whole, rest = whole - whole[first], rest - rest[first]
    last_s = float(whole.max()) * config.time_scale
    if not last_s < _MAX_S - 1:
        raise WorkloadError(
            f"the trace lasts {last_s:.4g} s, but the clock ends at {_MAX_S} s",
            where=where,
            remedy="set limit or a smaller time_scale, or check time_unit",
        )
    if config.time_scale == 1:
        exact: IntColumn = whole * PS_PER_S + rest
        return exact
    scaled: IntColumn = np.rint((whole + rest / PS_PER_S) * config.time_scale * PS_PER_S).astype(np.int64)
    return scaled


def _request_ids(sink: RowSink, order: IntColumn, notes: list[str]) -> list[str] | None:
    if not sink.request_ids or len(sink.turn):
        return None
    if len(set(sink.request_ids)) < len(sink.request_ids):
        notes.append("the trace's request ids repeat; row numbers are used")
        return None
    return [sink.request_ids[i] for i in order]


def _why(facts: TraceFacts) -> str:
    if not facts.dropped:
        return ""
    reasons = []
    for reason in facts.dropped[:3]:
        line, shown = reason.examples[0]
        reasons.append(f"{facts.row_name} {line} {reason.reason}" + (f": {shown}" if shown else ""))
    return f": {facts.rows_dropped} of {facts.rows_read} rows are broken; " + "; ".join(reasons)
