"""Hashes of token prefixes: equal hash, equal tokens from the first one on.

vLLM hashes a block together with the hash of the block before it, so that a block's hash names the whole prefix that
ends with it. Here tokens have names (stream, position), so no digest is needed: a prefix is its maximal runs of
consecutive positions of one stream, and that list is unique. The runs are interned as a tree; a prefix is then one
node (the runs, the last one open) and a length. One node a run serves every block size, and a hash can never collide.
"""

from __future__ import annotations

from bisect import bisect_left

from simulator.allocators.content import TokenContent

PrefixHash = int
"""Names a prefix; comparable within one ``PrefixHashes``."""

_LENGTH_BITS = 40  # of a hash: the prefix's length; the node stands above


class PrefixChain:
    """The prefixes of one row's tokens.

    ``ends[i]``: tokens of the row up to the end of its i-th run; ``nodes[i]``: that run's node.
    """

    __slots__ = ("ends", "nodes")

    def __init__(self, ends: list[int], nodes: list[int]) -> None:
        self.ends = ends
        self.nodes = nodes

    def hash(self, tokens: int) -> PrefixHash:
        """Names the row's first ``tokens`` tokens (1 or more, at most all)."""
        return self.nodes[bisect_left(self.ends, tokens)] << _LENGTH_BITS | tokens

    def hashes(self, block_size: int, blocks: int) -> list[PrefixHash]:
        """Names the prefixes that the row's first ``blocks`` blocks end, as ``hash`` does one by one."""
        names: list[PrefixHash] = []
        last = blocks * block_size
        for end, node in zip(self.ends, self.nodes, strict=True):
            next_tokens = (len(names) + 1) * block_size
            if next_tokens > last:
                break
            base = node << _LENGTH_BITS
            names.extend(range(base + next_tokens, base + min(end, last) + 1, block_size))
        return names


class PrefixHashes:
    """Interns the prefixes of all rows of one cache.

    Invariant: a node is interned under (parent node, tokens before it, stream, first position) and under nothing
    else; node numbers count up from 0.
    """

    def __init__(self, content: TokenContent) -> None:
        self._content = content
        self._nodes: dict[tuple[int, int, str, int], int] = {}

    def chain(self, row: int, most_tokens: int | None = None) -> PrefixChain:
        """The prefixes of a row: its prompt, then its whole answer; or at least those of ``most_tokens`` tokens."""
        nodes = self._nodes
        ends: list[int] = []
        chain: list[int] = []
        tokens, node, open_stream, open_end = 0, -1, None, 0
        for stream, start, length in self._content.segments(row):
            if length < 1:
                continue
            if stream != open_stream or start != open_end:  # else the segment goes on with the run
                node = nodes.setdefault((node, tokens, stream, start), len(nodes))
                chain.append(node)
                ends.append(tokens)
            tokens += length
            ends[-1] = tokens
            open_stream, open_end = stream, start + length
            if most_tokens is not None and tokens >= most_tokens:
                break
        return PrefixChain(ends, chain)
