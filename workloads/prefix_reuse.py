"""How much of the prompts an infinite prefix cache would have held: the bound that no real cache passes."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.workload import Segment, Workload

_Node = dict[tuple[str, int], list]  # type: ignore[type-arg]
"""Edges of a radix tree by the first token, (stream, position): [length of the edge, the node below]."""


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
    """Sums for ``workload``, whose ``segments`` must not be None. Cost: its number of segments."""
    assert workload.segments is not None
    tree: _Node = {}
    blocks = hits = cached = sharing = total = 0
    lengths = zip(workload.prompt_tokens.tolist(), workload.output_tokens.tolist(), strict=True)
    for row, (prompt, output) in enumerate(lengths):
        name = workload.request_id(row)
        segments = workload.segments[row] or ((f"p:{name}", 0, prompt),)
        # Of an answer all tokens but the last have been through the model when it ends.
        whole = (*segments, (f"o:{name}", 0, output - 1)) if output > 1 else segments
        common = min(insert(tree, whole), prompt)
        total += prompt
        blocks += -(-prompt // block_size)
        hits += -(-prompt // block_size) if common == prompt else common // block_size
        cached += min(common, prompt - 1) // block_size * block_size
        sharing += common >= block_size
    return PrefixReuse(block_size, blocks, hits, total, cached, sharing)


def insert(tree: _Node, segments: tuple[Segment, ...]) -> int:
    """Adds a sequence of tokens; returns how many of its first tokens some earlier sequence had too."""
    node, common, known = tree, 0, True
    for stream, start, length in segments:
        while length:
            edge = node.get((stream, start))
            if edge is None:
                known = False
                below: _Node = {}
                node[stream, start] = [length, below]
                node, length = below, 0
                continue
            shared = min(edge[0], length)
            if shared < edge[0]:  # split the edge where the new sequence may leave it
                edge[:] = [shared, {(stream, start + shared): [edge[0] - shared, edge[1]]}]
            node = edge[1]
            if known:
                common += shared
            start, length = start + shared, length - shared
    return common
