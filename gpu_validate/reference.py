"""The lesson's paged KV cache with real keys and values, in NumPy float64: the truth that kernels are held to.

One attention head; shapes: a key, value or query is (head_dim,), a pool is (num_blocks, block_size, head_dim).
Source: SEED.md, "The real implementation", "Reading through the table" and "What the cache holds".
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class OutOfBlocks(Exception):
    """No block is free for this request; nothing has changed."""


class BlockManager:
    """K and V pools, a free list, a block table per request, reference counts; fork with copy-on-write.

    Invariant: a block stands in the free list, once, or as many tables name it as ``ref_count`` says; a request
    of n tokens has ceil(n / block_size) blocks.

    Args:
        free_order: the first order of the free list; a permutation makes every table differ from the identity.
        unused: value of slots never written; NaN shows at once when a reader takes one for data.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        head_dim: int = 1,
        *,
        free_order: Sequence[int] | None = None,
        unused: float = 0.0,
    ) -> None:
        self.block_size = block_size
        self.k_pool = np.full((num_blocks, block_size, head_dim), unused)
        self.v_pool = np.full((num_blocks, block_size, head_dim), unused)
        order = range(num_blocks) if free_order is None else free_order
        if sorted(order) != list(range(num_blocks)):
            raise ValueError(f"free_order must name each of the {num_blocks} blocks once")
        self.free_list = deque(int(block) for block in order)  # take from the left, give back on the right
        self.ref_count = [0] * num_blocks
        self.tables: dict[Hashable, list[int]] = {}
        self.lengths: dict[Hashable, int] = {}

    def add_request(self, rid: Hashable) -> None:
        """A request with no token yet. Raises ValueError when it is already there."""
        if rid in self.tables:
            raise ValueError(f"request {rid!r} is already there")
        self.tables[rid], self.lengths[rid] = [], 0

    def append(self, rid: Hashable, k: Floats, v: Floats) -> None:
        """Stores one token's key and value. Raises OutOfBlocks with nothing changed."""
        table, n = self.tables[rid], self.lengths[rid]
        offset = n % self.block_size
        last_is_full = offset == 0  # also true when the table is empty
        last_is_shared = not last_is_full and self.ref_count[table[-1]] > 1
        if (last_is_full or last_is_shared) and not self.free_list:
            raise OutOfBlocks(rid)
        if last_is_full:
            table.append(self._take_block())
        elif last_is_shared:  # copy-on-write: give this request its own copy
            old, new = table[-1], self._take_block()
            self.k_pool[new], self.v_pool[new] = self.k_pool[old], self.v_pool[old]
            self.ref_count[old] -= 1
            table[-1] = new
        self.k_pool[table[-1], offset] = k
        self.v_pool[table[-1], offset] = v
        self.lengths[rid] = n + 1

    def fork(self, parent: Hashable, child: Hashable) -> None:
        """A new request that shares all of the parent's blocks; no key or value moves."""
        table = list(self.tables[parent])
        self.add_request(child)
        self.tables[child], self.lengths[child] = table, self.lengths[parent]
        for block in table:
            self.ref_count[block] += 1

    def free(self, rid: Hashable) -> None:
        """Gives back the blocks that no other table names; nothing is copied or cleared."""
        for block in self.tables.pop(rid):
            self.ref_count[block] -= 1
            if self.ref_count[block] == 0:
                self.free_list.append(block)
        del self.lengths[rid]

    def gather(self, rid: Hashable) -> tuple[Floats, Floats]:
        """The request's keys and values as two flat arrays (tokens, head_dim)."""
        table, n = self.tables[rid], self.lengths[rid]
        head_dim = self.k_pool.shape[2]
        return (
            self.k_pool[table].reshape(-1, head_dim)[:n],
            self.v_pool[table].reshape(-1, head_dim)[:n],
        )

    def check(self) -> None:
        """Raises AssertionError when a block is lost, double-booked or listed twice."""
        named = Counter(block for table in self.tables.values() for block in table)
        assert [named[block] for block in range(len(self.ref_count))] == self.ref_count
        assert sorted([*named, *self.free_list]) == list(range(len(self.ref_count)))
        assert self.tables.keys() == self.lengths.keys()
        for rid, table in self.tables.items():
            assert len(set(table)) == len(table) == -(-self.lengths[rid] // self.block_size)

    def _take_block(self) -> int:
        block = self.free_list.popleft()
        self.ref_count[block] = 1
        return block


def attention_contiguous(q: Floats, keys: Floats, values: Floats) -> Floats:
    """softmax(keys q / sqrt(head_dim)) values, for keys and values (tokens, head_dim), tokens >= 1."""
    scores = keys @ q / np.sqrt(len(q))
    weights = np.exp(scores - scores.max())
    return np.asarray(weights / weights.sum() @ values)


def paged_attention(q: Floats, mgr: BlockManager, rid: Hashable) -> Floats:
    """The same attention, block by block through the request's table (tokens >= 1)."""
    n, size, table = mgr.lengths[rid], mgr.block_size, mgr.tables[rid]
    parts = []
    for j, block in enumerate(table):
        valid = min(size, n - j * size)  # the last block may be partly filled
        parts.append(mgr.k_pool[block, :valid] @ q)
    scores = np.concatenate(parts) / np.sqrt(len(q))
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    out = np.zeros(len(q))
    for j, block in enumerate(table):
        valid = min(size, n - j * size)
        out += weights[j * size : j * size + valid] @ mgr.v_pool[block, :valid]
    return out


def pairs_without_cache(n_steps: int) -> int:
    """Key-value pairs that n decode steps compute when each rebuilds all positions: 1 + 2 + ... + n."""
    return n_steps * (n_steps + 1) // 2


def pairs_with_cache(n_steps: int) -> int:
    """Key-value pairs that n decode steps compute with a cache: one new position a step."""
    return n_steps


@dataclass(frozen=True)
class DecodedBothWays:
    """One attention head decoded without and with a cache: outputs (steps, head_dim) and pairs computed."""

    without_cache: Floats
    with_cache: Floats
    pairs_without: int
    pairs_with: int


def decode_both_ways(n_steps: int, head_dim: int, rng: np.random.Generator) -> DecodedBothWays:
    """Runs n decode steps of one head on random inputs both ways, counting each key-value pair it computes."""
    inputs = rng.standard_normal((n_steps, head_dim))
    to_query, to_key, to_value = rng.standard_normal((3, head_dim, head_dim))
    without, pairs_without = np.empty((n_steps, head_dim)), 0
    for t in range(n_steps):
        past = inputs[: t + 1]
        keys, values = past @ to_key, past @ to_value
        pairs_without += len(keys)
        without[t] = attention_contiguous(inputs[t] @ to_query, keys, values)
    kept_keys: list[Floats] = []
    kept_values: list[Floats] = []
    with_cache, pairs_with = np.empty((n_steps, head_dim)), 0
    for t in range(n_steps):
        kept_keys.append(inputs[t] @ to_key)
        kept_values.append(inputs[t] @ to_value)
        pairs_with += 1
        with_cache[t] = attention_contiguous(inputs[t] @ to_query, np.array(kept_keys), np.array(kept_values))
    return DecodedBothWays(without, with_cache, pairs_without, pairs_with)
