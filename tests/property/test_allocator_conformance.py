"""What every allocator promises, whatever its layout, one promise a test."""

from __future__ import annotations

import pickle

import pytest

from simulator.allocators.base import CacheFull, Forks, KvAllocator
from tests.property.allocator_cases import CASES, CONTEXT_TOKENS, Case

every_allocator = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def fill(allocator: KvAllocator, prompt: int, output: int) -> list[int]:
    """Adds equal requests until one is refused; the ids that got in."""
    for request in range(allocator.total_slots + 1):
        try:
            allocator.add(request, prompt, output)
        except CacheFull:
            return list(range(request))
    raise AssertionError("a pool took more requests than it has slots")


@every_allocator
def test_an_empty_pool_is_all_free(case: Case) -> None:
    usage = case.make().usage()
    assert usage.free_slots == usage.total_slots > 0
    assert usage.allocated_slots == usage.wasted_slots == 0


@every_allocator
def test_a_full_pool_refuses_and_changes_nothing(case: Case) -> None:
    allocator = case.make()
    admitted = fill(allocator, CONTEXT_TOKENS - 4, 4)
    assert admitted
    before = pickle.dumps(allocator)
    with pytest.raises(CacheFull, match="needs") as refusal:
        allocator.add("late", CONTEXT_TOKENS - 4, 4)
    assert refusal.value.remedy
    assert pickle.dumps(allocator) == before
    allocator.check()


@every_allocator
def test_a_freed_request_makes_room_for_an_equal_one(case: Case) -> None:
    allocator = case.make()
    for request in fill(allocator, 9, 3):
        allocator.free(request)
        allocator.add(request, 9, 3)
        allocator.check()


@every_allocator
def test_all_room_comes_back(case: Case) -> None:
    allocator = case.make()
    admitted = fill(allocator, 5, 7)
    for request in admitted[::2] + admitted[1::2]:
        allocator.free(request)
        allocator.check()
    assert allocator.requests() == []
    assert allocator.usage() == case.make().usage()
    assert fill(allocator, 5, 7) == admitted


@every_allocator
def test_reserved_room_is_filled_and_waste_is_what_stays_empty(case: Case) -> None:
    allocator = case.make()
    allocator.add("r", 6, 3)
    at_start = allocator.usage()
    assert at_start.token_slots == 6
    for _ in range(3):
        allocator.append("r")
    at_end = allocator.usage()
    assert at_end.token_slots == 9
    assert at_end.reserved_slots == 0
    # What will never be filled was known at the start, unless blocks came later.
    assert at_end.internal_slots >= at_start.internal_slots


@every_allocator
def test_stored_tokens_place_a_request_at_any_length(case: Case) -> None:
    allocator, grown = case.make(), case.make()
    allocator.add("r", 6, 5, stored_tokens=10)
    grown.add("r", 6, 5)
    for _ in range(4):
        grown.append("r")
    assert allocator.tokens("r") == 10
    assert allocator.slots("r") == grown.slots("r")
    assert allocator.usage() == grown.usage()
    for wrong in (-1, 12):
        with pytest.raises(ValueError, match="stored tokens"):
            allocator.add("other", 6, 5, stored_tokens=wrong)


@every_allocator
def test_ids_are_unique_and_unknown_ones_are_an_error(case: Case) -> None:
    allocator = case.make()
    allocator.add("r", 3)
    before = pickle.dumps(allocator)
    with pytest.raises(ValueError, match="already in the pool"):
        allocator.add("r", 3)
    with pytest.raises(ValueError, match="negative"):
        allocator.add("s", -1)
    for operation in (allocator.append, allocator.free, allocator.tokens, allocator.slots):
        with pytest.raises(KeyError):
            operation("nobody")
    if isinstance(allocator, Forks):
        with pytest.raises(KeyError):
            allocator.fork("nobody", "s")
        with pytest.raises(ValueError, match="already in the pool"):
            allocator.fork("r", "r")
    assert pickle.dumps(allocator) == before
