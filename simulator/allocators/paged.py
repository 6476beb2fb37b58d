"""The new layout: blocks handed out one by one, a table per request, shared blocks copied before a write."""

from __future__ import annotations

from simulator.allocators.base import MemoryUsage, Placement, RequestId, checked_store
from simulator.allocators.block_pool import LESSON_FIFO, BlockPool, FreeListPolicy, OutOfBlocks


def blocks_for(tokens: int, block_size: int) -> int:
    """Blocks that hold ``tokens`` tokens."""
    return -(-tokens // block_size)


class PagedAllocator:
    """Block tables over a block pool, with fork and copy-on-write, exactly as SEED.md states.

    Token position p of a request lives in block ``table[p // B]`` at offset ``p % B``. Many requests may read
    a block; one may write only into a block that it owns alone.

    Invariant: a request of n tokens has ceil(n / B) blocks, and the pool's reference counts are the number of
    tables that name each block. A shared block that has room stores the same number of tokens of each owner.
    """

    def __init__(self, num_blocks: int, block_size: int, policy: FreeListPolicy = LESSON_FIFO) -> None:
        if block_size < 1:
            raise ValueError(f"a block holds at least 1 token, got {block_size}")
        self.pool = BlockPool(num_blocks, policy)
        self.block_size = block_size
        self.tables: dict[RequestId, list[int]] = {}
        self._tokens: dict[RequestId, int] = {}
        self._final_tokens: dict[RequestId, int] = {}

    @property
    def total_slots(self) -> int:
        return self.pool.usable_blocks * self.block_size

    def requests(self) -> list[RequestId]:
        return list(self.tables)

    def add(
        self,
        request_id: RequestId,
        prompt_tokens: int,
        output_tokens: int = 0,
        *,
        stored_tokens: int | None = None,
    ) -> None:
        stored = checked_store(prompt_tokens, output_tokens, stored_tokens)
        self._check_new(request_id)
        self.tables[request_id] = self._take(request_id, blocks_for(stored, self.block_size))
        self._tokens[request_id] = stored
        self._final_tokens[request_id] = prompt_tokens + output_tokens

    def append(self, request_id: RequestId) -> Placement:
        table, tokens = self.tables[request_id], self._tokens[request_id]
        offset = tokens % self.block_size
        copied = None
        if offset == 0:  # the last block is full, or there is none yet
            table.extend(self._take(request_id, 1))
        elif self.pool.ref_count[table[-1]] > 1:
            copied = (table[-1], self._take(request_id, 1)[0])
            self.pool.drop(table[-1:])
            table[-1] = copied[1]
        self._tokens[request_id] = tokens + 1
        return Placement(table[-1] * self.block_size + offset, copied)

    def fork(self, parent_id: RequestId, child_id: RequestId) -> None:
        table = list(self.tables[parent_id])
        self._check_new(child_id)
        self.pool.touch(table)
        self.tables[child_id] = table
        self._tokens[child_id] = self._tokens[parent_id]
        self._final_tokens[child_id] = self._final_tokens[parent_id]

    def free(self, request_id: RequestId) -> None:
        self.pool.drop(self.tables.pop(request_id))
        del self._tokens[request_id], self._final_tokens[request_id]

    def tokens(self, request_id: RequestId) -> int:
        return self._tokens[request_id]

    def slots(self, request_id: RequestId) -> list[int]:
        table, size = self.tables[request_id], self.block_size
        return [table[p // size] * size + p % size for p in range(self._tokens[request_id])]

    def usage(self) -> MemoryUsage:
        stored, wanted = self._filled(self._tokens), self._filled(self._final_tokens)
        tokens = sum(stored.values())
        reserved = sum(max(0, wanted[block] - stored[block]) for block in stored)
        return MemoryUsage(
            total_slots=self.total_slots,
            token_slots=tokens,
            reserved_slots=reserved,
            internal_slots=len(stored) * self.block_size - tokens - reserved,
            external_slots=0,  # any free block serves any request
            free_slots=self.pool.free_blocks * self.block_size,
        )

    def check(self) -> None:
        self.pool.check(self.tables.values())
        assert self.tables.keys() == self._tokens.keys() == self._final_tokens.keys()
        for request_id, table in self.tables.items():
            tokens = self._tokens[request_id]
            assert len(table) == blocks_for(tokens, self.block_size), f"table of {request_id!r}: {table}"

    def _filled(self, tokens_of: dict[RequestId, int]) -> dict[int, int]:
        """Slots filled of each held block if every request stored ``tokens_of`` it."""
        filled: dict[int, int] = {}
        for request_id, table in self.tables.items():
            tokens = tokens_of[request_id]
            for j, block in enumerate(table):
                here = min(self.block_size, tokens - j * self.block_size)
                filled[block] = max(filled.get(block, 0), here)
        return filled

    def _check_new(self, request_id: RequestId) -> None:
        if request_id in self.tables:
            raise ValueError(f"request {request_id!r} is already in the pool")

    def _take(self, request_id: RequestId, count: int) -> list[int]:
        try:
            return self.pool.take(count)[0]
        except OutOfBlocks as error:
            raise OutOfBlocks(f"request {request_id!r} {error.what}", remedy=error.remedy) from None
