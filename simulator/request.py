"""One request inside a replica: its sizes, its state and the moves that are legal."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from simulator.run_log import NOT_YET


class RequestState(IntEnum):
    """Where a request is."""

    WAITING = 0
    PREFILLING = 1
    DECODING = 2
    PREEMPTED = 3  # waits again, its KV is gone, its outputs are kept
    FINISHED = 4
    REJECTED = 5
    ENDING = 6  # its last token is in flight (async scheduling): it still runs and holds its KV, and computes no more
    SWAPPED = 7  # preempted, its KV lies in the CPU's memory (vLLM v0): it decodes on when it is back


LEGAL_MOVES: dict[RequestState, frozenset[RequestState]] = {
    RequestState.WAITING: frozenset({RequestState.PREFILLING, RequestState.REJECTED}),
    RequestState.PREFILLING: frozenset(
        {
            RequestState.DECODING,
            RequestState.PREEMPTED,
            RequestState.ENDING,
            RequestState.FINISHED,
            RequestState.WAITING,  # taken back by the pass that admitted it
        }
    ),
    RequestState.DECODING: frozenset(
        {RequestState.PREEMPTED, RequestState.SWAPPED, RequestState.ENDING, RequestState.FINISHED}
    ),
    RequestState.SWAPPED: frozenset({RequestState.DECODING}),
    RequestState.ENDING: frozenset({RequestState.PREEMPTED, RequestState.FINISHED}),
    RequestState.PREEMPTED: frozenset({RequestState.PREFILLING, RequestState.FINISHED, RequestState.REJECTED}),
    RequestState.FINISHED: frozenset(),
    RequestState.REJECTED: frozenset(),
}
"""The state machine; tests drive the engine and check every move against it."""


WAITING, DECODING = RequestState.WAITING, RequestState.DECODING


class Request:
    """A request and its progress; lengths in tokens, times in picoseconds.

    Invariant: ``generated`` <= ``output_tokens``; ``computed`` <= ``prompt_tokens`` + ``generated``.
    While DECODING, ``computed`` and ``generated`` are those of the step it joined at (``joined_step``): it gains one
    token a step, and ``computed_at`` / ``generated_at`` say how far it is. Everybody else's are up to date.

    What only an admitted request has is set at its admission (``seq``, its place in that order, ``admitted_ps``), when
    it joins the decoders (``joined_step``, ``finish_step``, ``phase``), or when a decoder misses a step
    (``last_token_ps``: when its last token came), or is preempted (``lost_tokens``: computed tokens that it lost then).

    ``cached_tokens`` is the prefix-cache hit of the first admission, ``hit_tokens`` that of the last one;
    ``in_flight`` are tokens scheduled and not yet known to be computed (async scheduling); ``sequences`` share the
    prompt and end together (parallel sampling, or with ``beam`` beam search).

    ``output_tokens`` is capped so that prompt + output <= max_model_len. ``final_tokens`` is the KV it will hold at
    its end: the last sampled token's KV is never computed.
    """

    __slots__ = (
        "admitted_ps",
        "arrival_ps",
        "beam",
        "cached_tokens",
        "computed",
        "extent",
        "final_tokens",
        "finish_step",
        "first_token_ps",
        "generated",
        "held",
        "hit_tokens",
        "in_flight",
        "joined_step",
        "last_token_ps",
        "lost_tokens",
        "output_tokens",
        "phase",
        "preempted_ps",
        "preemptions",
        "priority",
        "prompt_tokens",
        "recomputed",
        "row",
        "scheduled_ps",
        "seq",
        "sequences",
        "state",
        "tie",
    )

    seq: int
    admitted_ps: int
    joined_step: int
    finish_step: int
    phase: int
    last_token_ps: int
    lost_tokens: int

    def __init__(
        self,
        row: int,
        arrival_ps: int,
        prompt_tokens: int,
        output_tokens: int,
        priority: int = 0,
        tie: Any = 0,
        sequences: int = 1,
        beam: bool = False,
    ) -> None:
        self.row = row
        self.arrival_ps = arrival_ps
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.final_tokens = prompt_tokens + output_tokens - 1
        self.priority = priority
        self.tie = tie
        self.state = WAITING
        self.computed = 0
        self.generated = 0
        self.held = 0
        self.extent: Any = None
        self.scheduled_ps = NOT_YET
        self.first_token_ps = NOT_YET
        self.preempted_ps = NOT_YET
        self.preemptions = 0
        self.recomputed = 0
        self.in_flight = 0
        self.cached_tokens = 0
        self.hit_tokens = 0
        self.sequences = sequences
        self.beam = beam

    def computed_at(self, step: int) -> int:
        """KV tokens stored just before ``step``."""
        if self.state is DECODING:
            return self.computed + step - self.joined_step
        return self.computed

    def generated_at(self, step: int) -> int:
        """Output tokens that exist just before ``step``."""
        if self.state is DECODING:
            return self.generated + step - self.joined_step
        return self.generated

    @property
    def queue_key(self) -> tuple[int, int, Any]:
        """Order under the priority policy: lower value first, then arrival, then id (vLLM)."""
        return (self.priority, self.arrival_ps, self.tie)
