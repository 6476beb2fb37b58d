"""Where cached content is: the blocks of every hash, oldest first (SCHEDULERS.md 1.8: no de-duplication)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence


class CachedBlocks:
    """Hash to block ids, in the order in which they were inserted.

    Invariant: no hash without blocks; a block stands under one hash at most.
    """

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks: dict[Hashable, dict[int, None]] = {}

    def __contains__(self, content: Hashable) -> bool:
        return content in self._blocks

    def oldest(self, content: Hashable) -> int | None:
        """The block of this content that was inserted first and still stands."""
        blocks = self._blocks.get(content)
        return None if blocks is None else next(iter(blocks))

    def leading(self, contents: Iterable[Hashable]) -> list[int]:
        """The oldest block of each content, up to the first content that is not cached."""
        found = []
        for content in contents:
            blocks = self._blocks.get(content)
            if blocks is None:
                break
            found.append(next(iter(blocks)))
        return found

    def add(self, content: Hashable, block: int) -> None:
        """A block holds this content from now on."""
        self._blocks.setdefault(content, {})[block] = None

    def remove(self, content: Hashable, block: int) -> None:
        """The block has lost this content."""
        blocks = self._blocks[content]
        del blocks[block]
        if not blocks:
            del self._blocks[content]

    def check(self, hash_of: Sequence[Hashable | None] | Mapping[int, Hashable]) -> None:
        """Raises AssertionError unless this map and ``hash_of`` (by block) say the same."""
        pairs = hash_of.items() if isinstance(hash_of, Mapping) else enumerate(hash_of)
        stamped = {block: content for block, content in pairs if content is not None}
        listed = [(block, content) for content, blocks in self._blocks.items() for block in blocks]
        assert len(listed) == len(stamped), "a block stands under two hashes, or a hash is not in the map"
        assert dict(listed) == stamped, "the map and the blocks disagree on what is cached"
        assert all(self._blocks.values()), "a hash without blocks"
