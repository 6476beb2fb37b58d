"""The block pool: which block is next under each policy, references, and hashes that outlive their owner."""

from __future__ import annotations

import pytest

from simulator.allocators.block_pool import (
    LESSON_FIFO,
    VLLM_V1,
    VLLM_V1_2025,
    BlockPool,
    FreeListPolicy,
    OutOfBlocks,
)


def ids(pool: BlockPool, count: int) -> list[int]:
    return pool.take(count)[0]


def test_the_null_block_is_never_handed_out() -> None:
    lesson, vllm = BlockPool(4, LESSON_FIFO), BlockPool(4, VLLM_V1)
    assert (lesson.usable_blocks, lesson.free_list()) == (4, [0, 1, 2, 3])
    assert (vllm.usable_blocks, vllm.free_list()) == (3, [1, 2, 3])
    assert ids(vllm, 3) == [1, 2, 3]
    with pytest.raises(OutOfBlocks, match="needs 1 blocks, 0 of 3 are free"):
        vllm.take()
    vllm.check([[1, 2, 3]])
    with pytest.raises(ValueError, match="no usable block"):
        BlockPool(1, VLLM_V1)


@pytest.mark.parametrize(
    ("policy", "after"),
    [
        (LESSON_FIFO, [6, 7, 1, 2, 3]),
        (VLLM_V1, [3, 2, 1, 6, 7]),
        (VLLM_V1_2025, [6, 7, 3, 2, 1]),
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_where_freed_blocks_go(policy: FreeListPolicy, after: list[int]) -> None:
    pool = BlockPool(8, policy)
    if not policy.null_block:
        ids(pool, 1)
    first, second = ids(pool, 3), ids(pool, 2)
    assert (first, second) == ([1, 2, 3], [4, 5])
    pool.drop(first)
    assert pool.free_list() == after


def test_a_shared_block_is_free_only_when_its_last_owner_leaves() -> None:
    pool = BlockPool(8, VLLM_V1)
    table = ids(pool, 3)
    pool.touch(table[:2])
    pool.drop(table)
    assert pool.free_list() == [3, 4, 5, 6, 7]
    pool.check([[1, 2]])
    pool.drop([1, 2])
    assert pool.free_list() == [2, 1, 3, 4, 5, 6, 7]
    with pytest.raises(ValueError, match="block 1 is given back but nobody holds it"):
        pool.drop([1])


def test_a_refused_take_changes_nothing() -> None:
    pool = BlockPool(4, LESSON_FIFO)
    pool.take(2)
    with pytest.raises(OutOfBlocks):
        pool.take(3)
    assert pool.free_list() == [2, 3]
    pool.check([[0, 1]])


def test_hashed_blocks_join_the_tail_last_first_and_the_rest_the_head() -> None:
    pool = BlockPool(9, VLLM_V1)
    table = ids(pool, 5)
    for block in table[:3]:
        pool.stamp(block, f"h{block}")
    pool.drop(table)
    # Tail of the table without hash first (5, 4); cached prefix last, its end older than its start (3, 2, 1).
    assert pool.free_list() == [5, 4, 6, 7, 8, 3, 2, 1]


def test_a_hash_outlives_its_owner_until_the_block_is_popped() -> None:
    pool = BlockPool(4, VLLM_V1)
    table = ids(pool, 2)
    pool.stamp(1, "a")
    pool.stamp(2, "b")
    pool.drop(table)
    assert pool.free_list() == [3, 2, 1]
    pool.touch([1])  # a hit takes the block out of the list wherever it stands
    assert pool.free_list() == [3, 2]
    assert pool.hash_of[1] == "a"
    blocks, evicted = pool.take(2)
    assert blocks == [3, 2]
    assert evicted == [(2, "b")]
    assert pool.hash_of[2] is None
    pool.check([[1], [3, 2]])


def test_only_a_held_block_has_content_to_name() -> None:
    with pytest.raises(ValueError, match="has no owner"):
        BlockPool(4, VLLM_V1).stamp(2, "x")


@pytest.mark.parametrize(
    ("tables", "fault"),
    [
        ([[1, 1]], "names a block twice"),
        ([[1], [1]], "differ from the tables"),
        ([], "differ from the tables"),
    ],
)
def test_check_finds_tables_that_do_not_match(tables: list[list[int]], fault: str) -> None:
    pool = BlockPool(4, VLLM_V1)
    pool.take()
    with pytest.raises(AssertionError, match=fault):
        pool.check(tables)


def test_check_finds_lost_and_double_booked_blocks() -> None:
    pool = BlockPool(4, LESSON_FIFO)
    pool.take()
    pool.ref_count[0] = 0
    with pytest.raises(AssertionError, match="lost or foreign"):
        pool.check([])
    pool.ref_count[2] = 1
    with pytest.raises(AssertionError, match=r"\[2\] are held and free"):
        pool.check([[2]])
