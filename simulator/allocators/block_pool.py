"""Blocks of one size: which are free and in what order, and how many tables point at each of the others.

The order of the free list is a policy (``FreeListPolicy``), because it decides which block is reused next,
and with caching which cached block is lost: the lesson's first in, first out, or vLLM's rule.

The door for prefix caching: a block may carry a content hash (``stamp``). As in vLLM, a block that nobody
holds keeps its hash while it waits in the free list; popping it evicts the hash; ``touch`` takes it back out of
the list. Where the blocks of a hash are is for the cache to know: ``take`` tells it which hashes were lost.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from simulator.allocators.base import CacheFull

FreeList = OrderedDict[int, None]
"""Free block ids from head to tail; any one can be taken out in O(1)."""


class OutOfBlocks(CacheFull):
    """Fewer blocks are free than an operation needs; nothing has changed."""


@dataclass(frozen=True)
class FreeListPolicy:
    """How freed blocks enter the free list.

    Attributes:
        name: as it stands in messages and reports.
        null_block: whether block 0 is set aside and never handed out.
        give_back: called with the free list and the (block, has a hash) pairs of one table that nobody holds
            any more, in the table's order.
    """

    name: str
    null_block: bool
    give_back: Callable[[FreeList, Sequence[tuple[int, bool]]], None]


def _join_the_back(free: FreeList, freed: Sequence[tuple[int, bool]]) -> None:
    for block, _ in freed:
        free[block] = None


def _vllm_head_and_tail(free: FreeList, freed: Sequence[tuple[int, bool]]) -> None:
    """Walks last to first: hashed blocks join the tail, the others stand at the head, both in walked order.

    So the table's last block is the very first to be reused, and a cached prefix outlives what follows it.
    """
    for block, hashed in reversed(freed):
        if hashed:
            free[block] = None
    for block, hashed in freed:
        if not hashed:
            free[block] = None
            free.move_to_end(block, last=False)


def _vllm_tail(free: FreeList, freed: Sequence[tuple[int, bool]]) -> None:
    for block, _ in reversed(freed):
        free[block] = None


LESSON_FIFO = FreeListPolicy("lesson", null_block=False, give_back=_join_the_back)
"""SEED.md: new blocks come from the front, freed blocks join the back in the table's order."""

VLLM_V1 = FreeListPolicy("vllm-v1", null_block=True, give_back=_vllm_head_and_tail)
"""SCHEDULERS.md 1.5: vLLM v1 since PR #42656 (May 2026)."""

VLLM_V1_2025 = FreeListPolicy("vllm-v1-2025", null_block=True, give_back=_vllm_tail)
"""SCHEDULERS.md 1.5: older vLLM v1, every freed block joins the tail in walked order."""

FREE_LIST_POLICIES = (LESSON_FIFO, VLLM_V1, VLLM_V1_2025)


class BlockPool:
    """The blocks of one cache.

    Invariant: a usable block has references, or it stands in the free list exactly once; never both. The null
    block (id 0, where the policy sets it aside) does neither.
    """

    def __init__(self, num_blocks: int, policy: FreeListPolicy = LESSON_FIFO) -> None:
        first = 1 if policy.null_block else 0
        if num_blocks <= first:
            raise ValueError(f"a pool of {num_blocks} blocks has no usable block under {policy.name}")
        self.num_blocks = num_blocks
        self.policy = policy
        self.ref_count = [0] * num_blocks
        self.hash_of: list[Hashable | None] = [None] * num_blocks
        self._first = first
        self._free: FreeList = OrderedDict.fromkeys(range(first, num_blocks))

    @property
    def usable_blocks(self) -> int:
        """Blocks that can be handed out: all but the null block."""
        return self.num_blocks - self._first

    @property
    def free_blocks(self) -> int:
        """Blocks that no table points at, cached or not."""
        return len(self._free)

    def free_list(self) -> list[int]:
        """Free block ids, the next one to be taken first."""
        return list(self._free)

    def take(self, count: int = 1) -> tuple[list[int], list[tuple[int, Hashable]]]:
        """Pops ``count`` blocks off the head, one reference each; and the (block, hash) pairs this evicts.

        Raises OutOfBlocks with nothing changed.
        """
        if count > len(self._free):
            raise OutOfBlocks(
                f"needs {count} blocks, {len(self._free)} of {self.usable_blocks} are free",
                remedy="free a request or use a larger pool",
            )
        blocks: list[int] = []
        evicted: list[tuple[int, Hashable]] = []
        for _ in range(count):
            block, _none = self._free.popitem(last=False)
            self.ref_count[block] = 1
            content = self.hash_of[block]
            if content is not None:
                evicted.append((block, content))
                self.hash_of[block] = None
            blocks.append(block)
        return blocks, evicted

    def touch(self, blocks: Iterable[int]) -> None:
        """One more table points at each block; a free one leaves the free list and keeps its hash."""
        for block in blocks:
            if self.ref_count[block] == 0:
                del self._free[block]
            self.ref_count[block] += 1

    def drop(self, blocks: Sequence[int]) -> None:
        """One table less points at each block (in the table's order); the policy places the freed ones."""
        freed: list[tuple[int, bool]] = []
        for block in blocks:
            if self.ref_count[block] < 1:
                raise ValueError(f"block {block} is given back but nobody holds it")
            self.ref_count[block] -= 1
            if self.ref_count[block] == 0:
                freed.append((block, self.hash_of[block] is not None))
        self.policy.give_back(self._free, freed)

    def stamp(self, block: int, content: Hashable) -> None:
        """Names the content of a held block."""
        if self.ref_count[block] < 1:
            raise ValueError(f"block {block} has no owner, so its content cannot be named")
        self.hash_of[block] = content

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """Raises AssertionError unless ``tables`` (all of them) account for every reference."""
        pointed = [0] * self.num_blocks
        for table in tables:
            assert len(set(table)) == len(table), f"a table names a block twice: {list(table)}"
            for block in table:
                pointed[block] += 1
        assert pointed == self.ref_count, "reference counts differ from the tables"
        used = {block for block, count in enumerate(self.ref_count) if count}
        free = set(self._free)
        assert not used & free, f"blocks {sorted(used & free)} are held and free"
        everything = set(range(self._first, self.num_blocks))
        assert used | free == everything, f"blocks {sorted(everything ^ (used | free))} are lost or foreign"
