"""SEED.md's two tables of the block layout, its question 4 and Figure 1, row by row."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from simulator.allocators.block_pool import LESSON_FIFO, OutOfBlocks
from simulator.allocators.paged import PagedAllocator


@dataclass(frozen=True)
class Row:
    """One row of the hand-worked table: the event, and what stands after it."""

    event: tuple[str, str, int]  # arrives | generates | finishes, request, tokens
    tokens: dict[str, int]
    tables: dict[str, list[int]]
    free_list: list[int]
    wasted: int


HAND_WORKED = (
    Row(("arrives", "A", 6), {"A": 6}, {"A": [0, 1]}, [2, 3, 4, 5, 6, 7], 2),
    Row(("arrives", "B", 3), {"A": 6, "B": 3}, {"A": [0, 1], "B": [2]}, [3, 4, 5, 6, 7], 3),
    Row(
        ("arrives", "C", 5),
        {"A": 6, "B": 3, "C": 5},
        {"A": [0, 1], "B": [2], "C": [3, 4]},
        [5, 6, 7],
        6,
    ),
    Row(
        ("generates", "A", 2),
        {"A": 8, "B": 3, "C": 5},
        {"A": [0, 1], "B": [2], "C": [3, 4]},
        [5, 6, 7],
        4,
    ),
    Row(
        ("generates", "A", 1),
        {"A": 9, "B": 3, "C": 5},
        {"A": [0, 1, 5], "B": [2], "C": [3, 4]},
        [6, 7],
        7,
    ),
    Row(
        ("generates", "B", 2),
        {"A": 9, "B": 5, "C": 5},
        {"A": [0, 1, 5], "B": [2, 6], "C": [3, 4]},
        [7],
        9,
    ),
    Row(("finishes", "B", 0), {"A": 9, "C": 5}, {"A": [0, 1, 5], "C": [3, 4]}, [7, 2, 6], 6),
    Row(("generates", "C", 4), {"A": 9, "C": 9}, {"A": [0, 1, 5], "C": [3, 4, 7]}, [2, 6], 6),
)


def play(allocator: PagedAllocator, event: tuple[str, str, int]) -> None:
    verb, name, tokens = event
    if verb == "arrives":
        allocator.add(name, tokens)
    elif verb == "finishes":
        allocator.free(name)
    else:
        for _ in range(tokens):
            allocator.append(name)


def after_step_8() -> PagedAllocator:
    allocator = PagedAllocator(num_blocks=8, block_size=4, policy=LESSON_FIFO)
    for row in HAND_WORKED:
        play(allocator, row.event)
    return allocator


def test_the_hand_worked_table_holds_in_all_nine_steps() -> None:
    allocator = PagedAllocator(num_blocks=8, block_size=4, policy=LESSON_FIFO)
    assert allocator.requests() == []
    assert allocator.pool.free_list() == list(range(8))
    assert allocator.usage().wasted_slots == 0
    for step, row in enumerate(HAND_WORKED, start=1):
        play(allocator, row.event)
        allocator.check()
        assert {name: allocator.tokens(name) for name in "ABC" if name in allocator.tables} == row.tokens, step
        assert allocator.tables == row.tables, step
        assert allocator.pool.free_list() == row.free_list, step
        usage = allocator.usage()
        assert usage.wasted_slots == row.wasted, step
        assert usage.allocated_slots + usage.free_slots == 32
        assert usage.external_slots == 0


def test_figure_3_token_8_of_a_lives_in_block_5() -> None:
    allocator = after_step_8()
    assert allocator.slots("A") == [0, 1, 2, 3, 4, 5, 6, 7, 5 * 4 + 0]


def test_question_4_a_new_request_takes_blocks_2_and_6() -> None:
    allocator = after_step_8()
    wasted = allocator.usage().wasted_slots
    allocator.add("D", 5)
    assert allocator.tables["D"] == [2, 6]
    assert allocator.pool.free_list() == []
    assert allocator.usage().wasted_slots - wasted == 3
    assert allocator.slots("D")[4] == 6 * 4 + 0


def test_copy_on_write_table() -> None:
    allocator = PagedAllocator(num_blocks=6, block_size=4)

    def state() -> tuple[dict[object, list[int]], list[int], list[int]]:
        allocator.check()
        return dict(allocator.tables), allocator.pool.ref_count[:3], allocator.pool.free_list()

    allocator.add("S1", 6)
    assert state() == ({"S1": [0, 1]}, [1, 1, 0], [2, 3, 4, 5])
    allocator.fork("S1", "S2")
    assert state() == ({"S1": [0, 1], "S2": [0, 1]}, [2, 2, 0], [2, 3, 4, 5])
    first = allocator.append("S1")
    assert first.copied == (1, 2)
    assert first.slot == 2 * 4 + 2
    assert state() == ({"S1": [0, 2], "S2": [0, 1]}, [2, 1, 1], [3, 4, 5])
    second = allocator.append("S2")
    assert second.copied is None
    assert second.slot == 1 * 4 + 2
    assert state() == ({"S1": [0, 2], "S2": [0, 1]}, [2, 1, 1], [3, 4, 5])


def test_a_copy_that_cannot_get_a_block_changes_nothing() -> None:
    allocator = PagedAllocator(num_blocks=2, block_size=4)
    allocator.add("S1", 6)
    allocator.fork("S1", "S2")
    before = (dict(allocator.tables), list(allocator.pool.ref_count), allocator.usage())
    with pytest.raises(OutOfBlocks, match="'S1' needs 1 blocks, 0 of 2 are free"):
        allocator.append("S1")
    assert (dict(allocator.tables), list(allocator.pool.ref_count), allocator.usage()) == before
    assert allocator.tokens("S1") == 6
    # A full shared block is never written: once S2 is gone S1 owns block 1 alone and writes in place.
    allocator.free("S2")
    assert allocator.append("S1").copied is None


def test_figure_1_three_chats_fit_in_blocks_of_2_with_2_slots_empty() -> None:
    allocator = PagedAllocator(num_blocks=10, block_size=2)
    for name, tokens in (("1", 3), ("2", 5), ("3", 4)):
        allocator.add(name, tokens)
    assert allocator.usage().wasted_slots == 2
