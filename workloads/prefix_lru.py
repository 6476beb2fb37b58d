"""A hash-chain prefix cache (vLLM's) at every size in one pass over the rows, one after another, without a clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workloads.stack_distance import last_visits, stack_distances
from workloads.token_tree import TokenTree
from workloads.workload import IntColumn

_MOST_CELLS = 4_000_000
"""Visits times block sizes that are worked on at once: some 100 bytes each."""


@dataclass(frozen=True)
class ChainCurve:
    """Hits of an LRU cache of full blocks, at every size, exactly.

    Visit i finds the block j = 1 ... ``blocks[i]`` of its node in a cache of at least ``above[i] + j`` blocks.

    Attributes:
        block_size: tokens.
        footprint_blocks: different full blocks of all rows: what an infinite cache holds at the end.
    """

    block_size: int
    above: IntColumn
    blocks: IntColumn
    footprint_blocks: int

    def hit_blocks(self, cache_blocks: int) -> int:
        """Hits of a cache that holds so many blocks."""
        return int(np.clip(cache_blocks - self.above, 0, self.blocks).sum())

    def hit_tokens(self, cache_tokens: int) -> int:
        """Prompt tokens served by a cache of so many tokens, in whole blocks."""
        return self.hit_blocks(cache_tokens // self.block_size) * self.block_size

    @property
    def ideal_tokens(self) -> int:
        """Prompt tokens served by a cache that never evicts."""
        return int(self.blocks.sum()) * self.block_size

    def smallest_cache_tokens(self, hit_tokens: int) -> int | None:
        """The smallest cache, in whole blocks, that serves so many prompt tokens; None where none does."""
        if hit_tokens > self.ideal_tokens:
            return None
        low, high = 0, int((self.above + self.blocks).max(initial=0))
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.hit_tokens(middle * self.block_size) >= hit_tokens else (middle + 1, high)
        return low * self.block_size


def chain_curves(tree: TokenTree, block_sizes: list[int]) -> list[ChainCurve]:
    """The curve of each block size.

    The rules are vLLM's (SCHEDULERS.md, sections 1 and 2): only full blocks of prompt and answer are kept; a look-up
    ends at the first missing block and before the prompt's last token; a request's blocks are renewed when it ends,
    last to first, so that a block is always older than the one before it in its chain, and eviction takes the oldest.
    A block is kept once (vLLM computes the last block of a fully cached, aligned prompt into a second copy), and the
    unhashed last block of the request in service stands beside the cache.
    """
    visits = tree.paths()
    last = last_visits(visits[1])
    together = max(1, _MOST_CELLS // max(len(last), 1))
    curves = []
    for first in range(0, len(block_sizes), together):
        curves += _curves(tree, *visits, last, block_sizes[first : first + together])
    return curves


def _curves(
    tree: TokenTree, row: IntColumn, node: IntColumn, last: IntColumn, block_sizes: list[int]
) -> list[ChainCurve]:
    size = np.array(block_sizes, dtype=np.int64)
    start, end = tree.end[tree.parent], tree.end
    weight = end[:, None] // size - start[:, None] // size
    weights = weight[node]
    distance = stack_distances(last, weights)
    again = last >= 0
    private = tree.total_tokens()[:, None] // size - tree.end[tree.end_node][:, None] // size
    private_before = np.concatenate((np.zeros((1, len(size)), dtype=np.int64), np.cumsum(private, axis=0)))
    # Private tokens lie at the end of their rows, so those of the row of the last visit are older than that visit.
    # Nodes of this row below the visited one are counted as visited before it, and are not: the look-up comes first.
    above = distance[again] - _below(row, weights)[again]
    above += private_before[row[again]] - private_before[row[last[again]] + 1]
    limit = (tree.prompt_tokens - 1)[row[again]][:, None]
    found = (
        np.minimum(end[node[again]][:, None], limit) // size - np.minimum(start[node[again]][:, None], limit) // size
    )
    used = np.bincount(node, minlength=len(tree.end)) > 0
    footprint = weight[used].sum(axis=0) + private_before[-1]
    curves = []
    for column, block_size in enumerate(block_sizes):
        hit = found[:, column] > 0
        curves.append(ChainCurve(block_size, above[hit, column], found[hit, column], int(footprint[column])))
    return curves


def _below(row: IntColumn, weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """Per visit, the weights of the visits before it in the same row: of the nodes below it."""
    before = np.concatenate((np.zeros((1, weights.shape[1]), dtype=np.int64), np.cumsum(weights, axis=0)))
    first = np.searchsorted(row, row)
    result: NDArray[np.int64] = before[:-1] - before[first]
    return result
