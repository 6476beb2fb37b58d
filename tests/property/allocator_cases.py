"""Every allocator that the conformance suite and the state machine run on: add a new one here, by one line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from simulator.allocators.base import KvAllocator
from simulator.allocators.block_pool import FREE_LIST_POLICIES
from simulator.allocators.contiguous import ContiguousPool, Reservation, reservation_slots
from simulator.allocators.extents import Fit, power_of_two_at_least
from simulator.allocators.paged import PagedAllocator

CONTEXT_TOKENS = 24
"""No request of these tests grows beyond this many tokens."""


@dataclass(frozen=True)
class Case:
    """One allocator: how to make it, and whether a request of (prompt, output) fits what is free now."""

    name: str
    make: Callable[[], KvAllocator]
    fits: Callable[[KvAllocator, int, int], bool]


def _contiguous(reservation: Reservation, fit: Fit, num_slots: int) -> Case:
    def fits(pool: KvAllocator, prompt: int, output: int) -> bool:
        assert isinstance(pool, ContiguousPool)
        wanted = reservation_slots(reservation, prompt, output, CONTEXT_TOKENS)
        if fit == "buddy":
            wanted = power_of_two_at_least(wanted)
        return any(extent.length >= wanted for extent in pool.extents.free_extents())

    return Case(
        f"contiguous-{reservation}-{fit}",
        lambda: ContiguousPool(num_slots, CONTEXT_TOKENS, reservation, fit),
        fits,
    )


def _paged() -> list[Case]:
    cases = []
    for policy in FREE_LIST_POLICIES:
        for num_blocks, block_size in ((9, 4), (30, 1), (4, 16)):

            def make(n: int = num_blocks, b: int = block_size, p: object = policy) -> KvAllocator:
                return PagedAllocator(n, b, p)  # type: ignore[arg-type]

            def fits(pool: KvAllocator, prompt: int, output: int, b: int = block_size) -> bool:
                return -(-prompt // b) * b <= pool.usage().free_slots

            cases.append(Case(f"paged-{policy.name}-{block_size}", make, fits))
    return cases


# 77 slots are no power of two and hold three requests of the longest reservation (32 under buddy: two).
CASES = [
    *(_contiguous(reservation, fit, 77) for reservation in get_args(Reservation) for fit in get_args(Fit)),
    *_paged(),
]
