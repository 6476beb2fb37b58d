"""Prefix caches at every size in one pass, and leaf by leaf, against twins that really evict."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.prefix_twins import chain_hits, fewest_blocks, radix_hits, sequences, workloads
from workloads.prefix_curves import prefix_curves
from workloads.prefix_lru import ChainCurve, chain_curves
from workloads.prefix_radix import longest_row_tokens, paged_tree, radix_hit_tokens
from workloads.prefix_reuse import prefix_reuse
from workloads.stack_distance import last_visits, stack_distances
from workloads.token_tree import TokenTree, token_tree
from workloads.workload import Workload

SIZES = st.integers(1, 5)


def tree_of(workload: Workload) -> TokenTree:
    return token_tree(workload, np.arange(len(workload)))


def curve_of(workload: Workload, block_size: int) -> ChainCurve:
    return chain_curves(tree_of(workload), [3, block_size])[1]


class Fenwick:
    """Sums of prefixes of a list of weights that change, each in O(log n): a place is set when it is the latest."""

    def __init__(self, n: int) -> None:
        self.sums = [0] * (n + 1)

    def add(self, place: int, weight: int) -> None:
        place += 1
        while place < len(self.sums):
            self.sums[place] += weight
            place += place & -place

    def before(self, place: int) -> int:
        total = 0
        while place:
            total += self.sums[place]
            place -= place & -place
        return total


@given(st.lists(st.integers(0, 9), max_size=60), st.lists(st.integers(0, 8), min_size=10, max_size=10))
def test_stack_distances_are_those_of_a_fenwick_tree(items: list[int], weight: list[int]) -> None:
    visits = np.array(items, dtype=np.int64)
    weights = np.array([[weight[item], 1] for item in items], dtype=np.int64).reshape(-1, 2)
    found = stack_distances(last_visits(visits), weights)
    tree = Fenwick(len(items))
    last: dict[int, int] = {}
    for visit, item in enumerate(items):
        if item in last:
            assert found[visit, 0] == tree.before(visit) - tree.before(last[item] + 1)
            assert found[visit, 1] == len(set(items[last[item] + 1 : visit]))
            tree.add(last[item], -weight[item])
        else:
            assert found[visit].tolist() == [-1, -1]
        last[item] = visit
        tree.add(visit, weight[item])


@given(workloads(), SIZES)
def test_one_pass_is_a_queue_that_evicts_at_every_size(workload: Workload, block_size: int) -> None:
    curve = curve_of(workload, block_size)
    for blocks in range(fewest_blocks(workload, block_size), curve.footprint_blocks + 2):
        assert curve.hit_blocks(blocks) == chain_hits(workload, block_size, blocks, tail_inside=False)


@given(workloads(), SIZES)
def test_the_partial_block_in_service_costs_at_most_one_block(workload: Workload, block_size: int) -> None:
    curve = curve_of(workload, block_size)
    for blocks in range(fewest_blocks(workload, block_size), curve.footprint_blocks + 2):
        real = chain_hits(workload, block_size, blocks, tail_inside=True)
        assert curve.hit_blocks(blocks - 1) <= real <= curve.hit_blocks(blocks)


@given(workloads(), SIZES)
def test_radix_caches_evict_as_a_tree_of_token_lists_does(workload: Workload, page_size: int) -> None:
    tree = tree_of(workload)
    paged = paged_tree(tree, page_size)
    most = chain_curves(tree, [page_size])[0].footprint_blocks
    for pages in range(longest_row_tokens(tree, page_size) // page_size, most + 2):
        assert radix_hit_tokens(paged, pages * page_size) == page_size * radix_hits(workload, page_size, pages)


@given(workloads(), SIZES)
def test_without_eviction_all_agree(workload: Workload, block_size: int) -> None:
    tree, reuse = tree_of(workload), prefix_reuse(workload, block_size)
    curve = chain_curves(tree, [block_size])[0]
    everything = curve.footprint_blocks * block_size
    assert curve.ideal_tokens == reuse.cached_tokens
    assert curve.hit_tokens(everything) == reuse.cached_tokens
    paged = paged_tree(tree, block_size)
    assert radix_hit_tokens(paged, max(everything, longest_row_tokens(tree, block_size))) == reuse.cached_tokens
    blocks = {tuple(t[:end]) for t, _ in sequences(workload) for end in range(block_size, len(t) + 1, block_size)}
    assert curve.footprint_blocks == len(blocks)


@given(workloads(), SIZES)
def test_a_larger_cache_never_serves_less_and_the_answer_is_the_smallest(workload: Workload, block_size: int) -> None:
    curve = curve_of(workload, block_size)
    hits = [curve.hit_tokens(size) for size in range((curve.footprint_blocks + 1) * block_size)]
    assert hits == sorted(hits) and hits[-1] == curve.ideal_tokens
    for wanted in {0, curve.ideal_tokens // 2, curve.ideal_tokens}:
        size = curve.smallest_cache_tokens(wanted)
        assert size is not None and hits[size] >= wanted
        assert size == 0 or hits[size - 1] < wanted
    assert curve.smallest_cache_tokens(curve.ideal_tokens + 1) is None


@given(workloads())
def test_larger_blocks_never_serve_more_where_they_divide(workload: Workload) -> None:
    ideal = [curve.ideal_tokens for curve in chain_curves(tree_of(workload), [1, 2, 4, 8])]
    assert ideal == sorted(ideal, reverse=True)


@given(workloads(), st.integers(2, 30))
def test_a_context_limit_leaves_out_what_a_server_refuses(workload: Workload, limit: int) -> None:
    assume(bool(np.any(workload.prompt_tokens < limit)))
    facts = prefix_curves(workload, block_size=2, max_model_len=limit)
    kept = [row for row in range(len(workload)) if workload.prompt_tokens[row] < limit]
    assert (facts["rows"], facts["rows_left_out"]) == (len(kept), len(workload) - len(kept))
    assert facts["prompt_tokens"] == int(workload.prompt_tokens[kept].sum())
    assert facts["smallest_cache_tokens"] <= -(-limit // 1024) * 1024
