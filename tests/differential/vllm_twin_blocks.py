"""The block pool of the vLLM twin: ids, the free queue, and the cache of full blocks by the hash of their prefix.

Plain and slow on purpose: one Python object a block, one dictionary for each list vLLM keeps. It shares no line with
simulator.allocators. Source: SCHEDULERS.md section 1.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

CacheKey = tuple[int, int]  # (KV group, prefix hash)


class Block:
    """One KV block. ``users`` counts the requests that hold it; ``key`` says what it caches, None when nothing."""

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.users = 0
        self.key: CacheKey | None = None


class BlockPool:
    """``num_blocks`` blocks, of which block 0 is the null block: a place holder that is never free and never cached."""

    def __init__(self, num_blocks: int) -> None:
        blocks = [Block(block_id) for block_id in range(num_blocks)]
        self.null = blocks[0]
        self.free: OrderedDict[int, Block] = OrderedDict((block.block_id, block) for block in blocks[1:])
        self.cached: dict[CacheKey, dict[int, Block]] = {}
        self.evicted = 0  # cached blocks that lost their hash since the pool was made

    def pop(self, count: int) -> list[Block]:
        """Takes ``count`` blocks from the head of the free queue; what they cached is forgotten."""
        taken = []
        for _ in range(count):
            _, block = self.free.popitem(last=False)
            if block.key is not None:
                self._forget(block)
            block.users = 1
            taken.append(block)
        return taken

    def touch(self, blocks: list[Block]) -> None:
        """One more request holds these cached blocks; free ones leave the queue from wherever they are."""
        for block in blocks:
            if block is self.null:
                continue
            if block.users == 0:
                del self.free[block.block_id]
            block.users += 1

    def release(self, blocks: list[Block]) -> None:
        """One request lets go of these blocks, in this order.

        Blocks that nobody holds any more and that cache nothing go to the head of the free queue, the first of them in
        front; those that cache something go to its tail, the last of them at the end.
        """
        unhashed = []
        for block in blocks:
            if block is self.null:
                continue
            block.users -= 1
            if block.users == 0:
                if block.key is None:
                    unhashed.append(block)
                else:
                    self.free[block.block_id] = block
        for block in reversed(unhashed):
            self.free[block.block_id] = block
            self.free.move_to_end(block.block_id, last=False)

    def insert(self, block: Block, key: CacheKey) -> None:
        """From now on ``block`` can be hit as ``key``, after the blocks that cache the same already."""
        assert block.key is None and block is not self.null
        block.key = key
        self.cached.setdefault(key, {})[block.block_id] = block

    def find(self, key: CacheKey) -> Block | None:
        """The block that has cached ``key`` longest, None when none does."""
        found = self.cached.get(key)
        return next(iter(found.values())) if found else None

    def _forget(self, block: Block) -> None:
        assert block.key is not None
        same = self.cached[block.key]
        del same[block.block_id]
        if not same:
            del self.cached[block.key]
        block.key = None
        self.evicted += 1


class PrefixHashes:
    """Gives every distinct chain of blocks of tokens its number: equal number <=> equal tokens from the start on."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._numbers: dict[tuple[int, tuple[int, ...]], int] = {}

    def extend(self, hashes: list[int], tokens: list[int]) -> None:
        """Appends to ``hashes`` one number for each further full block of ``tokens``."""
        size = self.block_size
        while (len(hashes) + 1) * size <= len(tokens):
            start = len(hashes) * size
            link = (hashes[-1] if hashes else -1, tuple(tokens[start : start + size]))
            hashes.append(self._numbers.setdefault(link, len(self._numbers)))


class TwinRequest:
    """One request as the scheduler sees it. All counts are tokens."""

    def __init__(self, row: dict[str, Any], arrival: int, tokens: list[int]) -> None:
        self.request_id: str = row["id"]
        self.arrival = arrival
        self.priority: int = row.get("priority", 0)
        self.prompt_tokens: int = row["prompt_len"]
        self.max_output_tokens: int = row["output_len"]
        self.tokens = tokens  # all that are known: prompt and outputs
        self.hashes: list[int] = []  # of the full hash blocks of ``tokens``
        self.output_tokens = 0
        self.computed = 0  # KV computed or scheduled
        self.in_flight = 0  # scheduled in passes whose batch has not ended
        self.placeholders = 0  # sampled by batches in flight (async)
        self.stale = 0  # in flight from before the last preemption
        self.prefilling = False  # after its last pass prompt or recomputed tokens were left
        self.status = "waiting"  # waiting | preempted | running | finished
        self.junction = 0  # length of a shared prefix whose window blocks are worth keeping

    def queue_key(self) -> tuple[int, int, str]:
        return (self.priority, self.arrival, self.request_id)
