"""What a simulation is asked to serve: one column per fact, one row per request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from workloads.measured import Measured
from workloads.traces.facts import TraceFacts

IntColumn = NDArray[np.int64]

PS_PER_S = 1_000_000_000_000
"""The clock is an integer count of picoseconds."""

Segment = tuple[str, int, int]
"""(stream, start, length): ``length`` tokens of a named stream from ``start``.

Equal (stream, position) means equal token; a prompt is the concatenation of its segments.
"""


@dataclass(frozen=True)
class RequestClass:
    """One class of requests. ``slo`` maps a metric key such as ``ttft_ms`` to {"p99": limit}."""

    name: str = "default"
    slo: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    """Columns of equal length n, sorted by ``arrival_ps`` where arrivals are known beforehand.

    Attributes:
        arrival_ps: time of arrival, picoseconds from the start of the run (int64). For a row that follows
            another (``after`` >= 0) or for a closed loop it is the earliest time (usually 0).
        prompt_tokens, output_tokens: tokens, both >= 1.
        class_index: index into ``classes``.
        priority: lower is more important (vLLM).
        after: row index of the request whose end this one waits for (a session's earlier turn), or -1.
        think_ps: pause between that end and this arrival.
        classes: the request classes.
        request_ids: names; None means the row number.
        segments: per row the token identity of its prompt, None for a private prompt; None when no row has any.
        max_concurrency: closed loop: at most this many requests in flight, the next row is sent when one ends.
        requested_rate_rps: the rate that was asked for (None: closed loop or a trace without one).
        burstiness: shape of the gamma gaps (vLLM's knob), None where it does not apply.
        sequences: sequences that a request asks for (n of parallel sampling, or the width of a beam search), which
            share its prompt and end together; None is 1 each.
        beam: which requests are beam searches (bool); None is none.
        notes: assumptions and warnings for the report ("lengths are a proxy: no tokenizer", ...).
        trace: where the rows came from and which were dropped; None for a synthetic workload.
        measured: what a benchmark tool measured when it sent these rows to a real server; no simulation reads it.
    """

    arrival_ps: IntColumn
    prompt_tokens: IntColumn
    output_tokens: IntColumn
    class_index: IntColumn
    priority: IntColumn
    after: IntColumn
    think_ps: IntColumn
    classes: tuple[RequestClass, ...] = (RequestClass(),)
    request_ids: Sequence[str] | None = None
    segments: Sequence[tuple[Segment, ...] | None] | None = None
    max_concurrency: int | None = None
    requested_rate_rps: float | None = None
    burstiness: float | None = None
    sequences: IntColumn | None = None
    beam: NDArray[np.bool_] | None = None
    notes: tuple[str, ...] = ()
    trace: TraceFacts | None = None
    measured: Measured | None = None

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    def request_id(self, row: int) -> str:
        """The name of a row."""
        return str(row) if self.request_ids is None else self.request_ids[row]

    def sorted_by_arrival(self) -> Workload:
        """The same rows by time of arrival, equal times in the order given; ``after`` must not be used."""
        order = np.argsort(self.arrival_ps, kind="stable")
        rows = order.tolist()
        return replace(
            self,
            arrival_ps=self.arrival_ps[order],
            prompt_tokens=self.prompt_tokens[order],
            output_tokens=self.output_tokens[order],
            class_index=self.class_index[order],
            priority=self.priority[order],
            think_ps=self.think_ps[order],
            request_ids=[self.request_id(row) for row in rows],
            segments=None if self.segments is None else [self.segments[row] for row in rows],
            sequences=None if self.sequences is None else self.sequences[order],
            beam=None if self.beam is None else self.beam[order],
        )

    @classmethod
    def from_columns(
        cls,
        arrival_ps: Sequence[int] | IntColumn,
        prompt_tokens: Sequence[int] | IntColumn,
        output_tokens: Sequence[int] | IntColumn,
        *,
        priority: Sequence[int] | IntColumn | None = None,
        class_index: Sequence[int] | IntColumn | None = None,
        after: Sequence[int] | IntColumn | None = None,
        think_ps: Sequence[int] | IntColumn | None = None,
        classes: tuple[RequestClass, ...] = (RequestClass(),),
        request_ids: Sequence[str] | None = None,
        segments: Sequence[tuple[Segment, ...] | None] | None = None,
        max_concurrency: int | None = None,
        requested_rate_rps: float | None = None,
        burstiness: float | None = None,
        sequences: Sequence[int] | IntColumn | None = None,
        beam: Sequence[bool] | NDArray[np.bool_] | None = None,
        notes: tuple[str, ...] = (),
    ) -> Workload:
        """Builds the columns from plain sequences; what is left out is zero (``after``: -1)."""
        n = len(prompt_tokens)

        def column(values: Sequence[int] | IntColumn | None, default: int) -> IntColumn:
            if values is None:
                return np.full(n, default, dtype=np.int64)
            return np.asarray(values, dtype=np.int64)

        return cls(
            arrival_ps=column(arrival_ps, 0),
            prompt_tokens=column(prompt_tokens, 0),
            output_tokens=column(output_tokens, 0),
            class_index=column(class_index, 0),
            priority=column(priority, 0),
            after=column(after, -1),
            think_ps=column(think_ps, 0),
            classes=classes,
            request_ids=request_ids,
            segments=segments,
            max_concurrency=max_concurrency,
            requested_rate_rps=requested_rate_rps,
            burstiness=burstiness,
            sequences=None if sequences is None else column(sequences, 1),
            beam=None if beam is None else np.asarray(beam, dtype=np.bool_),
            notes=notes,
        )
