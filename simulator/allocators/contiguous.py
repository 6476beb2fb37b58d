"""The old layout: one run of slots per request, reserved when it comes, to grow in place."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from simulator.allocators.base import CacheFull, MemoryUsage, Placement, RequestId, checked_store
from simulator.allocators.extents import (
    Extent,
    Fit,
    extent_pool,
    external_fragmentation,
    power_of_two_at_least,
)

Reservation = Literal["max", "pow2", "oracle"]


def reservation_slots(reservation: Reservation, prompt_tokens: int, output_tokens: int, max_model_len: int) -> int:
    """Slots reserved for a request (the three Orca variants of the PagedAttention paper).

    max: the model's context, always. pow2: the prompt and the next power of two of the true output length.
    oracle: the prompt and the true output length. None exceeds the context, as no request outgrows it.
    """
    if reservation == "max":
        return max_model_len
    if reservation == "pow2" and output_tokens > 0:
        output_tokens = power_of_two_at_least(output_tokens)
    return max(1, min(prompt_tokens + output_tokens, max_model_len))


class OutOfSlots(CacheFull):
    """No free run is long enough, or a request has filled its reservation."""


@dataclass
class _Run:
    """One request: its extent, the tokens stored in it, and the tokens it will have when it ends."""

    extent: Extent
    tokens: int
    final_tokens: int


class ContiguousPool:
    """Contiguous allocator: reserves on ``add``, never grows, never shares.

    Invariant: each request owns one extent of the pool and stores at most that many tokens.
    """

    def __init__(
        self, num_slots: int, max_model_len: int, reservation: Reservation = "max", fit: Fit = "first"
    ) -> None:
        self.extents = extent_pool(num_slots, fit)
        self.max_model_len = max_model_len
        self.reservation: Reservation = reservation
        self._runs: dict[RequestId, _Run] = {}

    @property
    def total_slots(self) -> int:
        return self.extents.num_slots

    @property
    def external_fragmentation(self) -> float:
        """Share of the free slots outside the longest free run."""
        return external_fragmentation(self.extents)

    def requests(self) -> list[RequestId]:
        return list(self._runs)

    def reserve(self, request_id: RequestId, slots: int, stored_tokens: int = 0) -> Extent | None:
        """Reserves ``slots`` slots in a row, whatever the reservation rule; None changes nothing."""
        if request_id in self._runs:
            raise ValueError(f"request {request_id!r} is already in the pool")
        if not 0 <= stored_tokens <= slots:
            raise ValueError(f"{stored_tokens} stored tokens do not fit a reservation of {slots} slots")
        extent = self.extents.allocate(slots)
        if extent is not None:
            self._runs[request_id] = _Run(extent, stored_tokens, slots)
        return extent

    def add(
        self,
        request_id: RequestId,
        prompt_tokens: int,
        output_tokens: int = 0,
        *,
        stored_tokens: int | None = None,
    ) -> None:
        stored = checked_store(prompt_tokens, output_tokens, stored_tokens)
        slots = reservation_slots(self.reservation, prompt_tokens, output_tokens, self.max_model_len)
        if self.reserve(request_id, slots, stored) is None:
            raise OutOfSlots(
                f"request {request_id!r} needs {slots} slots in a row; "
                f"{self.extents.free_slots} are free, {self.extents.largest_free_run} of them in a row",
                remedy="free a request or use a larger pool",
            )
        self._runs[request_id].final_tokens = prompt_tokens + output_tokens

    def append(self, request_id: RequestId) -> Placement:
        run = self._runs[request_id]
        if run.tokens == run.extent.length:
            raise OutOfSlots(
                f"request {request_id!r} has filled its reservation of {run.extent.length} slots",
                remedy="reserve more when the request is added",
            )
        run.tokens += 1
        return Placement(run.extent.start + run.tokens - 1)

    def free(self, request_id: RequestId) -> None:
        self.extents.release(self._runs.pop(request_id).extent)

    def tokens(self, request_id: RequestId) -> int:
        return self._runs[request_id].tokens

    def extent(self, request_id: RequestId) -> Extent:
        """The run of slots that a request holds."""
        return self._runs[request_id].extent

    def slots(self, request_id: RequestId) -> list[int]:
        run = self._runs[request_id]
        return list(range(run.extent.start, run.extent.start + run.tokens))

    def usage(self) -> MemoryUsage:
        runs = self._runs.values()
        held = sum(run.extent.length for run in runs)
        tokens = sum(run.tokens for run in runs)
        reserved = sum(max(0, min(run.final_tokens, run.extent.length) - run.tokens) for run in runs)
        return MemoryUsage(
            total_slots=self.total_slots,
            token_slots=tokens,
            reserved_slots=reserved,
            internal_slots=held - tokens - reserved,
            external_slots=self.extents.free_slots - self.extents.largest_free_run,
            free_slots=self.extents.free_slots,
        )

    def check(self) -> None:
        self.extents.check()
        held = sum(run.extent.length for run in self._runs.values())
        assert held + self.extents.free_slots == self.total_slots, "an extent has no owner"
        edges = sorted((run.extent.start, run.extent.end) for run in self._runs.values())
        for (_, end), (start, _) in pairwise(edges):
            assert end <= start, f"slot {start} has two owners"
        for request_id, run in self._runs.items():
            assert 0 <= run.tokens <= run.extent.length, f"request {request_id!r} overflows its extent"
