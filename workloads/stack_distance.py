"""LRU at every cache size in one pass: the stack distances of Mattson, Gecsei, Slutz and Traiger (1970).

A visit's stack distance is how much was visited more recently than its own last visit. An LRU cache holds an item
exactly if that, and the item, are within its size: a larger cache holds all that a smaller one does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workloads.workload import IntColumn


def last_visits(items: IntColumn) -> IntColumn:
    """Per visit, the index of the visit before it to the same item, or -1."""
    order = np.argsort(items, kind="stable")
    last = np.full(len(items), -1, dtype=np.int64)
    same = items[order[1:]] == items[order[:-1]]
    last[order[1:][same]] = order[:-1][same]
    return last


def stack_distances(last: IntColumn, weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """Per visit, the summed weight of the different items visited after its own last visit and before it.

    Args:
        last: :func:`last_visits`.
        weights: (visits, m): m weights of each visit's item, the same at each visit to it.

    Returns:
        (visits, m); -1 in the rows of first visits.
    """
    again = np.flatnonzero(last >= 0)
    before = last[again]
    following = np.full(len(last), len(last), dtype=np.int64)
    following[before] = again
    # Of the different items before visit k, those after last[k] are all but those whose latest visit is not.
    known = _before(np.where((last < 0)[:, None], weights, 0))
    done = _before(np.where((following == len(last))[:, None], weights, 0))
    order = np.argsort(before)  # by the last visit; as ``again`` ascends, this is also the rank of the visit after it
    older = np.empty((len(again), weights.shape[1]), dtype=np.int64)
    older[order] = _larger_before(order, weights[before[order]])
    result = np.full(weights.shape, -1, dtype=np.int64)
    result[again] = known[again] - done[before] - older - weights[again]
    return result


def _before(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Per row, the sum of the rows above it."""
    result: NDArray[np.int64] = np.cumsum(values, axis=0) - values
    return result


def _larger_before(rank: IntColumn, weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """Per place, the summed weights of the earlier places whose rank is larger; ``rank`` is a permutation.

    What a Fenwick tree sums one place after another, here for all at once, bit by bit from the highest: of the
    ranks that agree in all higher bits, those with a 1 are larger than those with a 0. Then both are parted, each
    kept in its order; as no rank is missing, the ranks that agree above bit b fill the places from rank >> b << b.
    """
    n = len(rank)
    result = np.zeros_like(weights)
    place, ranks = np.arange(n), rank  # the places in their present order, and their ranks
    for bit in reversed(range(max(n - 1, 0).bit_length())):
        one = ((ranks >> bit) & 1).astype(bool)
        start = ranks >> (bit + 1) << (bit + 1)
        zero_places = place[~one]
        for column in range(weights.shape[1]):
            ones = np.concatenate(([0], np.cumsum(np.where(one, weights[place, column], 0))))
            result[zero_places, column] += (ones[:-1] - ones[start])[~one]
        count = np.concatenate(([0], np.cumsum(one)))
        ones_before = count[:-1] - count[start]
        zeros_before = np.arange(n) - start - ones_before
        target = np.where(one, start + (1 << bit) + ones_before, start + zeros_before)
        moved, moved_ranks = np.empty_like(place), np.empty_like(ranks)
        moved[target], moved_ranks[target] = place, ranks
        place, ranks = moved, moved_ranks
    return result
