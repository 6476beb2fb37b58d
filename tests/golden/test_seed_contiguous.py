"""SEED.md's Figures 1 and 2: what a reservation wastes, and the free runs of 8 and 4 that refuse a 12."""

from __future__ import annotations

import pytest

from simulator.allocators.contiguous import ContiguousPool, OutOfSlots
from simulator.allocators.extents import Extent


def figure_2() -> ContiguousPool:
    """32 slots; R1 reserves 12 and holds 5, R2 reserves 8 and holds 3, R3 reserves 8 and holds 6."""
    pool = ContiguousPool(num_slots=32, max_model_len=32)
    for name, reserved, held in (("R1", 12, 5), ("R2", 8, 3), ("R3", 8, 6)):
        assert pool.reserve(name, reserved, held) is not None
    return pool


def test_figure_2a_14_reserved_slots_hold_nothing() -> None:
    usage = figure_2().usage()
    assert usage.wasted_slots == 14
    assert usage.token_slots == 14
    assert usage.free_slots == 4


def test_figure_2b_12_free_slots_in_runs_of_8_and_4_refuse_a_12() -> None:
    pool = figure_2()
    pool.free("R2")
    assert pool.extents.free_extents() == [Extent(12, 8), Extent(28, 4)]
    before = (pool.requests(), pool.usage())
    assert before[1].free_slots == 12
    assert before[1].external_slots == 4
    assert pool.external_fragmentation == pytest.approx(1 / 3)
    assert pool.reserve("R4", 12) is None
    assert (pool.requests(), pool.usage()) == before
    assert pool.reserve("R4", 8) == Extent(12, 8)
    pool.check()


def test_figure_1_two_chats_reserve_16_of_20_slots_and_the_third_waits() -> None:
    pool = ContiguousPool(num_slots=20, max_model_len=8, reservation="max")
    pool.add("1", 3)
    pool.add("2", 5)
    assert pool.usage().wasted_slots == 8
    with pytest.raises(OutOfSlots, match="needs 8 slots in a row; 4 are free"):
        pool.add("3", 4)
    assert pool.requests() == ["1", "2"]
