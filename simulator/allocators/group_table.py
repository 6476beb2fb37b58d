"""The blocks of one request in every KV group."""

from __future__ import annotations

from simulator.allocators.prefix_hashes import PrefixChain
from simulator.allocators.prefix_lookup import NULL_BLOCK


class GroupTable:
    """Block tables of a request, one a group; ``NULL_BLOCK`` where the window has passed.

    Attributes:
        blocks: per group, the block of each stretch of its block size, from token 0 on.
        settled: per group, how many leading blocks have had their turn to be cached (cached or passed over).
        chain: the request's prefixes; None where nothing is cached.
        held: blocks that the request points at; whoever changes the tables keeps it.
        junction_tokens: where the prefix that it shares ends (``Found``).
    """

    __slots__ = ("blocks", "chain", "held", "junction_tokens", "settled")

    def __init__(self, blocks: list[list[int]], chain: PrefixChain | None, junction_tokens: int) -> None:
        self.blocks = blocks
        self.settled = [len(table) for table in blocks]
        self.chain = chain
        self.junction_tokens = junction_tokens
        self.held = sum(len(self.real(group)) for group in range(len(blocks)))

    def real(self, group: int) -> list[int]:
        """The group's blocks without the null ones, in order."""
        return [block for block in self.blocks[group] if block != NULL_BLOCK]

    def pass_out(self, group: int, count: int) -> list[int]:
        """Nulls the first ``count`` entries; returns the blocks that stood there and had not been nulled before."""
        table = self.blocks[group]
        end = min(count, len(table))
        start = end
        while start and table[start - 1] != NULL_BLOCK:
            start -= 1
        passed = table[start:end]
        table[start:end] = [NULL_BLOCK] * (end - start)
        return passed
