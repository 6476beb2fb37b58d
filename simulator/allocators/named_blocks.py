"""Cached blocks that several requests may share: each has a name, a content and references."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.allocators.cached_blocks import CachedBlocks
from simulator.allocators.free_content import FreeContent
from simulator.allocators.prefix_hashes import PrefixChain, PrefixHash


class NamedBlocks:
    """The named blocks of a cache. A name is a number that is never given twice.

    ``saved``: table entries beyond the first of each block.

    Invariant (``check``): a named block has references or is in ``free``; the map of contents lists exactly them.
    """

    __slots__ = ("_block_size", "_cached", "_content_of", "_free", "_leading", "_names", "_references", "saved")

    def __init__(self, block_size: int, free: FreeContent) -> None:
        self._block_size = block_size
        self._free = free
        self._cached = CachedBlocks()
        self._references: dict[int, int] = {}
        self._content_of: dict[int, PrefixHash] = {}
        self._leading: dict[PrefixHash, list[int]] = {}  # prefix -> its leading blocks, while no block comes or goes
        self._names = 0
        self.saved = 0

    def new_name(self) -> int:
        """A number that no block or run has."""
        self._names += 1
        return self._names

    def add(self, name: int, chain: PrefixChain, index: int, references: int) -> None:
        """The block ``name`` caches block number ``index`` of a prefix."""
        content = chain.hash((index + 1) * self._block_size)
        self._content_of[name] = content
        self._references[name] = references
        self._cached.add(content, name)
        if self._leading:
            self._leading = {}

    def leading(self, chain: PrefixChain, blocks: int) -> list[int]:
        """The cached ones of a prefix's first ``blocks`` blocks, up to the first that is not."""
        prefix = chain.hash(blocks * self._block_size)  # the same for all that have these blocks in common
        found = self._leading.get(prefix)
        if found is None:
            found = self._leading[prefix] = self._cached.leading(chain.hashes(self._block_size, blocks))
        return found.copy()

    def unheld(self, blocks: Sequence[int]) -> int:
        """How many of these nobody points at."""
        return list(map(self._references.__getitem__, blocks)).count(0)

    def touch(self, blocks: Sequence[int]) -> None:
        """One more table points at each; free ones are free no longer."""
        references = self._references
        for block in blocks:
            if references[block]:
                self.saved += 1
            else:
                self._free.remove(block)
            references[block] += 1

    def drop(self, blocks: Sequence[int]) -> int:
        """One table less points at each (in the table's order); returns how many are free now."""
        references, freed = self._references, 0
        for block in reversed(blocks):
            left = references[block] - 1
            references[block] = left
            if not left:
                self._free.add(block)
                freed += 1
        self.saved -= len(blocks) - freed
        return freed

    def forget(self, blocks: Sequence[int]) -> None:
        """These blocks, which were free, hold something else now."""
        for block in blocks:
            self._cached.remove(self._content_of.pop(block), block)
            del self._references[block]
        self._leading = {}

    def check(self) -> None:
        """Raises AssertionError when the invariant is broken."""
        self._cached.check(self._content_of)
        assert self._references.keys() == self._content_of.keys()
        for block, references in self._references.items():
            assert references >= 0
            assert (references == 0) == (block in self._free), f"named block {block} has {references} references"
        assert self.saved == sum(references - 1 for references in self._references.values() if references)
