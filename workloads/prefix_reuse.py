"""How much of the prompts an infinite prefix cache would have held: the bound that no real cache passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from workloads.prompt_segments import PromptSegments
from workloads.traces.hash_blocks import HashedSegments
from workloads.workload import IntColumn, Segment, Workload

_Node = dict[tuple[str, int], list[Any]]
"""Edges of a radix tree by the first token, (stream, position): [length of the edge, the node below or None]."""


@dataclass(frozen=True)
class PrefixReuse:
    """Sums over all prompts, in the order of the rows, against everything that came before.

    ``blocks`` counts ceil(prompt / block_size); a block hits where all its tokens and all before them came before
    in one earlier request, so a partial last block hits only where the whole prompt did. ``cached_tokens`` is what
    an engine would take from its cache: full blocks, and never the last token, which it must compute.
    """

    block_size: int
    blocks: int
    hit_blocks: int
    prompt_tokens: int
    cached_tokens: int
    rows_with_a_hit: int

    @property
    def hit_rate(self) -> float:
        """Share of blocks that hit."""
        return self.hit_blocks / self.blocks


def prefix_reuse(workload: Workload, block_size: int) -> PrefixReuse:
    """Sums for ``workload``, whose ``segments`` must not be None.

    Segments that follow from columns are counted by column; all others, and always :func:`common_tokens`, by a tree.
    """
    prompt = workload.prompt_tokens
    common: IntColumn | None = None
    if isinstance(workload.segments, HashedSegments):
        hit = workload.segments.leading_hits(block_size)
        common = None if hit is None else np.minimum(hit * block_size, prompt)
    elif isinstance(workload.segments, PromptSegments):
        common = workload.segments.common_tokens(prompt)
    if common is None:
        common = common_tokens(workload)
    blocks = -(-prompt // block_size)
    return PrefixReuse(
        block_size=block_size,
        blocks=int(blocks.sum()),
        hit_blocks=int(np.where(common == prompt, blocks, common // block_size).sum()),
        prompt_tokens=int(prompt.sum()),
        cached_tokens=int((np.minimum(common, prompt - 1) // block_size * block_size).sum()),
        rows_with_a_hit=int((common >= block_size).sum()),
    )


def common_tokens(workload: Workload) -> IntColumn:
    """Per row, how many of its first tokens some earlier row had too, prompt or answer. Needs ``segments``."""
    assert workload.segments is not None
    tree: _Node = {}
    found = np.zeros(len(workload), dtype=np.int64)
    lengths = zip(workload.prompt_tokens.tolist(), workload.output_tokens.tolist(), strict=True)
    for row, (prompt, output) in enumerate(lengths):
        name = workload.request_id(row)
        segments = workload.segments[row] or ((f"p:{name}", 0, prompt),)
        # Of an answer all tokens but the last have been through the model when it ends.
        whole = (*segments, (f"o:{name}", 0, output - 1)) if output > 1 else segments
        found[row] = min(insert(tree, whole), prompt)
    return found


def insert(tree: _Node, segments: tuple[Segment, ...]) -> int:
    """Adds a sequence of tokens; returns how many of its first tokens some earlier sequence had too."""
    node, common, known = tree, 0, True
    above: list[Any] = [0, tree]  # the edge that leads to node
    for stream, start, length in segments:
        while length:
            if above[1] is None:
                above[1] = node = {}
            edge = node.get((stream, start))
            if edge is None:
                known = False
                above = node[stream, start] = [length, None]
                break
            shared = min(edge[0], length)
            if shared < edge[0]:  # split the edge where the new sequence may leave it
                edge[:] = [shared, {(stream, start + shared): [edge[0] - shared, edge[1]]}]
            above, node = edge, edge[1]
            if known:
                common += shared
            start, length = start + shared, length - shared
    return common
