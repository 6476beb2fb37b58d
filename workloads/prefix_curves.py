"""How much a prefix cache of any size would serve of a workload's prompts: the numbers of ``--prefix-cache``.

The rows are served one after another in order of arrival; no clock runs, so requests never overlap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workloads.errors import WorkloadError
from workloads.prefix_lru import ChainCurve, chain_curves
from workloads.prefix_radix import longest_row_tokens, paged_tree, radix_hit_tokens
from workloads.prefix_reuse import prefix_reuse
from workloads.token_tree import TokenTree, token_tree
from workloads.workload import IntColumn, Workload

GIB = 1 << 30
BLOCK_SIZES = (16, 64, 256, 1024)
WITHIN = 0.01
"""Share of the prompt tokens: how near to the infinite cache is near enough for the answer."""
_MANTISSAS = (1, 2, 3, 5)
_MOST_SIZES = 24
_MOST_RADIX_ROWS = 1_000_000
"""Rows that radix caches serve in all, sizes and page sizes together; larger workloads get fewer sizes, or none."""

ORDER = (
    "Requests are served one at a time in order of arrival and never overlap: the cache is all there is for the one in"
    " service, where a server's other running requests would take a part of it."
)
ANSWERS = "Answers are cached too, under names of their own: only prompts that name an earlier answer find it."
SESSIONS = "Answers take no time: a session's later turn comes its think time after the turn before it."
COPIES = (
    "hash chain: full blocks, never a prompt's last token, least recently used first and a chain from its end (vLLM);"
    " one copy of each block; exact at every size."
)
LEAVES = "radix: spans of whole pages, least recently used leaves evicted whole (SGLang); simulated size by size."


@dataclass(frozen=True)
class CacheModel:
    """What a token's KV weighs, to give sizes in GiB."""

    name: str
    kv_bytes_per_token: int


def prefix_curves(
    workload: Workload,
    *,
    block_size: int | None = None,
    max_model_len: int | None = None,
    model: CacheModel | None = None,
    where: str | None = None,
) -> dict[str, Any]:
    """The dict of ``kvplan workload --prefix-cache``.

    Args:
        block_size: of the first curve and the answer; default: the trace's own hash blocks, else 16 tokens.
        max_model_len: rows whose prompt leaves no room for an answer are left out, answers are cut to fit.

    Raises:
        WorkloadError: no prompt has token identity, so that nothing is known of common prefixes.
    """
    trace = workload.trace
    if workload.segments is None:
        raise WorkloadError(
            "no prompt has token identity, so nothing is known of common prefixes",
            where=where,
            remedy="use a trace with hash_ids or sessions, or set workload.prefix or workload.session",
        )
    dropped = 0
    if max_model_len is not None:
        before = len(workload)
        workload = _served(workload, max_model_len, where)
        dropped = before - len(workload)
    main = block_size or (trace.block_size if trace is not None else None) or BLOCK_SIZES[0]
    sizes = [main, *(size for size in BLOCK_SIZES if size != main)]
    pages = [1] if main == 1 else [1, main]
    tree = token_tree(workload, serving_order(workload))
    chains = chain_curves(tree, sizes)
    least = max(longest_row_tokens(tree, size) for size in sizes)
    grid = cache_sizes(least, max(curve.footprint_blocks * curve.block_size for curve in chains))
    radix_grid = _thinned(grid, _MOST_RADIX_ROWS // (len(tree) * len(pages)))
    pages = pages if radix_grid else []
    facts = _Facts(int(workload.prompt_tokens.sum()), model)
    curves = [facts.chain(curve, grid) for curve in chains]
    curves += [facts.radix(tree, curve, radix_grid) for curve in chain_curves(tree, pages)]
    reuse = prefix_reuse(workload, main)
    return {
        "rows": len(workload),
        "rows_left_out": dropped,
        "prompt_tokens": facts.prompt_tokens,
        "block_size_tokens": main,
        "prompt_blocks": reuse.blocks,
        "ideal_block_hit_rate": reuse.hit_rate,
        "ideal_token_hit_rate": curves[0]["ideal_token_hit_rate"],
        "model": None if model is None else model.name,
        "kv_bytes_per_token": None if model is None else model.kv_bytes_per_token,
        "smallest_cache_tokens": least,
        "within_share": WITHIN,
        **facts.answer(chains[0], least),
        "curves": curves,
        "assumptions": _assumptions(workload, len(radix_grid), len(grid)),
        "notes": list(workload.notes),
    }


def _assumptions(workload: Workload, radix_sizes: int, sizes: int) -> list[str]:
    lines = [ORDER]
    if np.any(workload.after >= 0):
        lines.append(SESSIONS)
    lines.append(ANSWERS)
    if workload.trace is not None and (workload.trace.block_size or 1) > 1:
        named = workload.trace.block_size
        lines.append(f"The trace names its tokens in blocks of {named}: of a block that differs, no part is in common.")
    lines.append(COPIES)
    if radix_sizes:
        lines.append(LEAVES)
    else:
        lines.append("The workload is too large for radix caches, which would be simulated size by size.")
    if 0 < radix_sizes < sizes:
        lines.append(f"The workload is large: radix caches are simulated at {radix_sizes} of the {sizes} sizes.")
    return lines


def serving_order(workload: Workload) -> IntColumn:
    """Row numbers by time of arrival, answers taking no time; equal times by turn, then by row."""
    due = workload.arrival_ps.copy()
    turn = np.zeros(len(workload), dtype=np.int64)
    for row in np.flatnonzero(workload.after >= 0).tolist():  # a row stands after the one that it follows
        earlier = workload.after[row]
        due[row] = max(due[row], due[earlier] + workload.think_ps[row])
        turn[row] = turn[earlier] + 1
    order: IntColumn = np.lexsort((turn, due))
    return order


def cache_sizes(least: int, footprint: int) -> list[int]:
    """Sizes in tokens, four a decade: from ``least`` to the first that holds ``footprint``, so that nothing goes."""
    grid = (mantissa * 10**exponent for exponent in range(20) for mantissa in _MANTISSAS)
    sizes: list[int] = []
    for size in grid:
        if size >= least:
            sizes.append(size)
            if size >= footprint:
                break
    return _thinned(sizes, _MOST_SIZES)


def _thinned(sizes: list[int], most: int) -> list[int]:
    """At most ``most`` of the sizes, evenly spread, first and last among them; none where only one may be."""
    if len(sizes) <= most:
        return sizes
    if most < 2:
        return []
    return [sizes[round(i * (len(sizes) - 1) / (most - 1))] for i in range(most)]


def _served(workload: Workload, max_model_len: int, where: str | None) -> Workload:
    """The rows that a server with this context takes, their answers cut where it ends."""
    keep = workload.prompt_tokens < max_model_len
    if not np.any(keep):
        raise WorkloadError(
            f"every prompt has {max_model_len} tokens or more", where=where, remedy="raise --max-model-len"
        )
    rows = np.flatnonzero(keep)
    number = np.cumsum(keep) - 1
    after = workload.after[rows]
    assert workload.segments is not None
    # A turn that follows one left out keeps its own earliest time.
    after = np.where((after >= 0) & keep[after], number[after], -1)
    return replace(
        workload,
        arrival_ps=workload.arrival_ps[rows],
        prompt_tokens=workload.prompt_tokens[rows],
        output_tokens=np.minimum(workload.output_tokens[rows], max_model_len - workload.prompt_tokens[rows]),
        class_index=workload.class_index[rows],
        priority=workload.priority[rows],
        after=after,
        think_ps=workload.think_ps[rows],
        request_ids=[workload.request_id(row) for row in rows.tolist()],
        segments=[workload.segments[row] for row in rows.tolist()],
    )


@dataclass(frozen=True)
class _Facts:
    """Curves as plain values."""

    prompt_tokens: int
    model: CacheModel | None

    def chain(self, curve: ChainCurve, grid: list[int]) -> dict[str, Any]:
        points = [self._point(size, curve.hit_tokens(size)) for size in grid]
        return self._curve("hash_chain", "lru", curve, points)

    def radix(self, tree: TokenTree, ideal: ChainCurve, grid: list[int]) -> dict[str, Any]:
        paged = paged_tree(tree, ideal.block_size)
        points = [self._point(size, radix_hit_tokens(paged, size)) for size in grid]
        return self._curve("radix", "lru_leaves", ideal, points)

    def answer(self, curve: ChainCurve, least: int) -> dict[str, Any]:
        """The smallest cache that serves the longest row and is near enough to the infinite one."""
        near = curve.smallest_cache_tokens(max(0, math.ceil(curve.ideal_tokens - WITHIN * self.prompt_tokens)))
        tokens = max(least, near or 0)
        return {
            "near_ideal_cache_tokens": tokens,
            "near_ideal_cache_gib": self._gib(tokens),
            "near_ideal_token_hit_rate": curve.hit_tokens(tokens) / self.prompt_tokens,
        }

    def _curve(self, cache: str, eviction: str, ideal: ChainCurve, points: list[dict[str, Any]]) -> dict[str, Any]:
        footprint = ideal.footprint_blocks * ideal.block_size
        return {
            "cache": cache,
            "eviction": eviction,
            "block_size_tokens": ideal.block_size,
            "ideal_cached_tokens": ideal.ideal_tokens,
            "ideal_token_hit_rate": ideal.ideal_tokens / self.prompt_tokens,
            "footprint_tokens": footprint,
            "footprint_gib": self._gib(footprint),
            "points": points,
        }

    def _point(self, cache_tokens: int, cached_tokens: int) -> dict[str, Any]:
        return {
            "cache_tokens": cache_tokens,
            "cache_gib": self._gib(cache_tokens),
            "cached_tokens": cached_tokens,
            "token_hit_rate": cached_tokens / self.prompt_tokens,
        }

    def _gib(self, tokens: int) -> float | None:
        return None if self.model is None else tokens * self.model.kv_bytes_per_token / GIB
