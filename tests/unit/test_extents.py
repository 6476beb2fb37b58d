"""Free extents: which hole each rule picks, joining on release, pools that are no power of two."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.allocators.extents import (
    BuddyExtents,
    Extent,
    Fit,
    FitExtents,
    binary_pieces,
    extent_pool,
    external_fragmentation,
    power_of_two_at_least,
)

FITS: tuple[Fit, ...] = ("first", "best", "buddy")


def holes(fit: Fit) -> FitExtents:
    """A pool of 32 slots with free runs of 10 (at 0), 4 (at 14) and 6 (at 26)."""
    assert fit != "buddy"
    pool = FitExtents(32, fit)
    pieces = [pool.allocate(n) for n in (10, 4, 4, 8, 6)]
    for at in (0, 2, 4):
        piece = pieces[at]
        assert piece is not None
        pool.release(piece)
    return pool


def test_first_fit_takes_the_lowest_hole_and_best_fit_the_tightest() -> None:
    assert holes("first").allocate(4) == Extent(0, 4)
    assert holes("best").allocate(4) == Extent(14, 4)
    assert holes("best").allocate(5) == Extent(26, 5)


def test_free_total_is_enough_but_no_run_is() -> None:
    pool = holes("first")
    assert pool.free_slots == 20
    assert pool.largest_free_run == 10
    assert external_fragmentation(pool) == 0.5
    before = pool.free_extents()
    assert pool.allocate(11) is None
    assert pool.free_extents() == before


def test_release_joins_both_neighbours() -> None:
    pool = FitExtents(12, "first")
    first, middle, last = (pool.allocate(4) for _ in range(3))
    assert first and middle and last
    assert pool.largest_free_run == 0
    assert external_fragmentation(pool) == 0.0
    pool.release(first)
    pool.release(last)
    assert pool.free_extents() == [Extent(0, 4), Extent(8, 4)]
    pool.release(middle)
    assert pool.free_extents() == [Extent(0, 12)]


@pytest.mark.parametrize(("slots", "pieces"), [(1, [1]), (16, [16]), (20, [16, 4]), (11, [8, 2, 1])])
def test_a_buddy_pool_is_cut_into_its_binary_pieces(slots: int, pieces: list[int]) -> None:
    assert binary_pieces(slots) == pieces
    pool = BuddyExtents(slots)
    assert [e.length for e in pool.free_extents()] == pieces
    assert pool.largest_when_empty == pieces[0]
    # Every piece can be handed out and comes back, and the pieces never join into something longer.
    taken = [pool.allocate(length) for length in pieces]
    assert all(taken)
    assert pool.free_slots == 0
    for extent in taken:
        assert extent is not None
        pool.release(extent)
        pool.check()
    assert [e.length for e in pool.free_extents()] == pieces


def test_buddy_rounds_up_splits_and_joins_again() -> None:
    pool = BuddyExtents(16)
    five = pool.allocate(5)
    assert five == Extent(0, 8)
    one = pool.allocate(1)
    assert one == Extent(8, 1)
    assert pool.free_extents() == [Extent(9, 1), Extent(10, 2), Extent(12, 4)]
    # 7 slots are free, 4 of them in a block that an allocation can get.
    assert external_fragmentation(pool) == 1 - 4 / 7
    pool.release(five)
    pool.release(one)
    assert pool.free_extents() == [Extent(0, 16)]


@pytest.mark.parametrize("fit", FITS)
def test_only_what_was_handed_out_comes_back(fit: Fit) -> None:
    pool = extent_pool(16, fit)
    extent = pool.allocate(4)
    assert extent is not None
    for foreign in (Extent(0, 2), Extent(2, 2), Extent(4, 4)):
        with pytest.raises(ValueError, match="not an extent"):
            pool.release(foreign)
    pool.release(extent)
    with pytest.raises(ValueError, match="not an extent"):
        pool.release(extent)
    pool.check()


@pytest.mark.parametrize("fit", FITS)
def test_sizes_below_one_are_refused(fit: Fit) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        extent_pool(0, fit)
    with pytest.raises(ValueError, match="at least 1"):
        extent_pool(8, fit).allocate(0)


@given(
    fit=st.sampled_from(FITS),
    num_slots=st.integers(1, 70),
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=40),
)
def test_a_pool_never_loses_a_slot_and_refuses_only_when_no_run_is_long_enough(
    fit: Fit, num_slots: int, steps: list[tuple[bool, int]]
) -> None:
    pool = extent_pool(num_slots, fit)
    held: list[Extent] = []
    for grow, number in steps:
        if grow:
            before, largest = pool.free_extents(), pool.largest_free_run
            extent = pool.allocate(number)
            wanted = power_of_two_at_least(number) if fit == "buddy" else number
            assert (extent is None) == (wanted > largest)
            if extent is None:
                assert pool.free_extents() == before
            else:
                assert extent.length == wanted
                held.append(extent)
        elif held:
            pool.release(held.pop(number % len(held)))
        pool.check()
        assert pool.free_slots == num_slots - sum(e.length for e in held)
    for extent in held:
        pool.release(extent)
    whole = binary_pieces(num_slots) if fit == "buddy" else [num_slots]
    assert [e.length for e in pool.free_extents()] == whole
