"""The three reservations, and what each wastes."""

from __future__ import annotations

import pytest

from simulator.allocators.contiguous import ContiguousPool, OutOfSlots, Reservation, reservation_slots
from simulator.allocators.extents import Extent


@pytest.mark.parametrize(
    ("reservation", "prompt", "output", "slots"),
    [
        ("max", 10, 25, 2048),
        ("pow2", 10, 25, 10 + 32),  # the paper's example: 25 outputs -> 32
        ("pow2", 10, 32, 10 + 32),
        ("pow2", 10, 33, 10 + 64),
        ("pow2", 10, 1, 11),
        ("pow2", 10, 0, 10),
        ("oracle", 10, 25, 35),
        ("oracle", 0, 0, 1),
        ("pow2", 1500, 540, 2048),  # never more than the context
        ("oracle", 2000, 100, 2048),
    ],
)
def test_reservations(reservation: Reservation, prompt: int, output: int, slots: int) -> None:
    assert reservation_slots(reservation, prompt, output, 2048) == slots


@pytest.mark.parametrize(
    ("reservation", "reserved", "internal"), [("max", 20, 64 - 30), ("pow2", 20, 12), ("oracle", 20, 0)]
)
def test_empty_slots_are_split_into_those_that_will_be_filled_and_those_that_never_will(
    reservation: Reservation, reserved: int, internal: int
) -> None:
    pool = ContiguousPool(100, 64, reservation)
    pool.add("r", 10, 20)
    usage = pool.usage()
    assert (usage.token_slots, usage.reserved_slots, usage.internal_slots) == (10, reserved, internal)
    for _ in range(20):
        pool.append("r")
    usage = pool.usage()
    assert (usage.token_slots, usage.reserved_slots, usage.internal_slots) == (30, 0, internal)


def test_a_full_reservation_refuses_the_next_token() -> None:
    pool = ContiguousPool(100, 64, "oracle")
    pool.add("r", 3, 1)
    assert pool.append("r").slot == 3
    with pytest.raises(OutOfSlots, match="filled its reservation of 4 slots"):
        pool.append("r")
    assert pool.tokens("r") == 4


def test_a_buddy_pool_wastes_what_it_rounds_up() -> None:
    pool = ContiguousPool(100, 64, "oracle", "buddy")
    pool.add("r", 10, 7)
    assert pool.extent("r") == Extent(64, 32)  # the tightest of the pieces 64, 32 and 4
    assert pool.usage().internal_slots == 15


def test_holes_are_external_waste() -> None:
    pool = ContiguousPool(40, 40, "oracle")
    for name in "abcd":
        pool.add(name, 10)
    pool.free("a")
    pool.free("c")
    usage = pool.usage()
    assert (usage.free_slots, usage.external_slots) == (20, 10)
    assert pool.external_fragmentation == 0.5
    with pytest.raises(OutOfSlots, match="needs 11 slots in a row; 20 are free, 10 of them in a row"):
        pool.add("e", 11)


def test_a_reservation_must_hold_what_is_stored() -> None:
    pool = ContiguousPool(40, 20, "max")
    with pytest.raises(ValueError, match="do not fit a reservation of 20"):
        pool.add("a", 25)
    assert pool.requests() == []
