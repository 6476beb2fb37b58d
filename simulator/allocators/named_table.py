"""What one request holds in a cache that names only blocks which can be shared."""

from __future__ import annotations

from simulator.allocators.prefix_hashes import PrefixChain


class NamedTable:
    """What a request holds, in ``holder.extent``: its first ``shared`` blocks are named, once they are cached.

    ``blocks``: names of the cached ones among them; ``settled``: cached blocks, named or not; ``chain``: the
    request's prefixes, where it has blocks to name.
    """

    __slots__ = ("blocks", "chain", "settled", "shared")

    def __init__(self, blocks: list[int], settled: int, shared: int, chain: PrefixChain | None) -> None:
        self.blocks = blocks
        self.settled = settled
        self.shared = shared
        self.chain = chain
