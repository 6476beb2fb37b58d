"""A radix tree of cached token sequences with page granularity, as SGLang keeps one."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from simulator.allocators.token_spans import Reader, Spans, merged


class Node:
    """A stretch of tokens below its parent: ``spans``, ``tokens`` in all, a whole number of pages.

    ``locks`` counts the users whose path goes through it. ``time`` is its last access.
    """

    __slots__ = ("children", "locks", "parent", "spans", "time", "tokens")

    def __init__(self, parent: Node | None, spans: Spans, tokens: int, locks: int, time: int) -> None:
        self.parent = parent
        self.spans = spans
        self.tokens = tokens
        self.locks = locks
        self.time = time
        self.children: dict[Spans, Node] = {}  # by first page


class RadixTree:
    """SGLang's tree (0.5.23, ``UnifiedTreeCore`` with full attention): match, insert, lock, evict.

    Users lock the path of what they use. Unlocked tokens can be evicted: whole leaves, the longest not accessed first,
    parents when they have become leaves. The clock of accesses counts them, so no two leaves are of the same time.

    Invariant (``check``): lengths are whole pages and children are filed by their first page; a parent has at least as
    many locks as each child; ``evictable`` and ``locked`` are the tokens of nodes without and with locks; the heap has
    an entry for every unlocked leaf, at its time (entries of others are stale and passed over).
    """

    __slots__ = ("_heap", "_nodes", "_serial", "clock", "evictable", "locked", "page", "root")

    def __init__(self, page: int = 1) -> None:
        self.page = page
        self.clock = 0
        self.root = Node(None, (), 0, 1, 0)
        self.evictable = 0
        self.locked = 0
        self._heap: list[tuple[int, int, Node]] = []  # (time, serial number, leaf)
        self._serial = 0
        self._nodes = 0

    def match(self, spans: Spans, most: int) -> tuple[int, Node]:
        """How many of the first ``most`` tokens are cached, and the node that ends there.

        Splits a node in which the match ends, and marks the path as accessed.
        """
        found, node, _ = self._walk(spans, most // self.page * self.page, self.root, 0, touch=False)
        deepest, time = node, self._tick()
        while node.parent is not None:
            node.time = time
            node = node.parent
        self._file(deepest)  # all others have children
        return found, deepest

    def insert(self, spans: Spans, tokens: int, known: Node | None = None, known_tokens: int = 0) -> tuple[int, Node]:
        """Stores the first ``tokens`` tokens (whole pages); returns how many were there, and the node of the last.

        ``known`` is a node of the tree that ends the first ``known_tokens`` of them, to begin from.
        """
        if known is not None:
            self._touch_path(known)
        found, node, reader = self._walk(spans, tokens, known or self.root, known_tokens, touch=True)
        if found < tokens:
            leaf = Node(node, reader.peek(tokens - found), tokens - found, 0, self._tick())
            node.children[reader.peek(self.page)] = leaf
            self._nodes += 1
            self.evictable += leaf.tokens
            self._file(leaf)
            node = leaf
        return found, node

    def cut(self, node: Node, end: int, at: int) -> None:
        """Lets a node end at token ``at`` of the path to ``node``, which ends at ``end``: as inserting that much again.

        0 < ``at`` <= ``end``, whole pages.
        """
        while end - node.tokens >= at:
            assert node.parent is not None
            end, node = end - node.tokens, node.parent
        self._touch_path(node)
        if at < end:
            self._split(node, at - end + node.tokens)

    def lock(self, node: Node) -> int:
        """Keeps the path to ``node``; returns how many tokens have become unevictable."""
        kept = 0
        while node.parent is not None:
            if not node.locks:
                kept += node.tokens
            node.locks += 1
            node = node.parent
        self.evictable -= kept
        self.locked += kept
        return kept

    def unlock(self, node: Node) -> int:
        """Lets go of the path to ``node``; returns how many tokens have become evictable."""
        freed = 0
        while node.parent is not None:
            node.locks -= 1
            if not node.locks:
                freed += node.tokens
                self._file(node)
            node = node.parent
        self.evictable += freed
        self.locked -= freed
        return freed

    def evict(self, tokens: int) -> int:
        """Drops leaves until ``tokens`` tokens are gone, or no leaf is left unlocked; returns how many went."""
        gone = 0
        heap = self._heap
        while gone < tokens and heap:
            time, _, node = heappop(heap)
            parent = node.parent
            if parent is None or node.time != time or node.locks or node.children:
                continue
            del parent.children[Reader(node.spans).peek(self.page)]
            node.parent = None
            self._nodes -= 1
            gone += node.tokens
            self._file(parent)
        self.evictable -= gone
        return gone

    def _walk(self, spans: Spans, tokens: int, node: Node, found: int, *, touch: bool) -> tuple[int, Node, Reader]:
        """Follows the first ``tokens`` tokens from ``node``, the end of the first ``found``.

        The node in which they leave the tree is split.
        """
        page, reader = self.page, Reader(spans)
        reader.skip(found)
        while found < tokens:
            child = node.children.get(reader.peek(page))
            if child is None:
                break
            if touch:
                self._touch(child, self._tick())
            if len(child.spans) == 1 and child.tokens <= tokens - found and reader.run >= child.tokens:
                common = child.tokens  # one run against one run, and their first tokens are equal
            else:
                common = reader.shared(child.spans, tokens - found) // page * page
            node = child if common == child.tokens else self._split(child, common)
            reader.skip(common)
            found += common
            if node is not child:
                break
        return found, node, reader

    def _split(self, node: Node, tokens: int) -> Node:
        """A new parent for the first ``tokens`` tokens of a node; the rest keeps the node and its time."""
        parent, reader = node.parent, Reader(node.spans)
        assert parent is not None
        upper = Node(parent, reader.peek(tokens), tokens, node.locks, self._tick())
        parent.children[reader.peek(self.page)] = upper
        reader.skip(tokens)
        node.tokens -= tokens
        node.spans = reader.peek(node.tokens)
        node.parent = upper
        upper.children[reader.peek(self.page)] = node
        self._nodes += 1
        return upper

    def _tick(self) -> int:
        self.clock += 1
        return self.clock

    def _touch(self, node: Node, time: int) -> None:
        node.time = time
        self._file(node)

    def _file(self, node: Node) -> None:
        """Notes a node that can be evicted now."""
        if node.locks or node.children or node.parent is None:
            return
        heap = self._heap
        if len(heap) > 64 + 4 * self._nodes:  # mostly stale
            heap[:] = [entry for entry in heap if entry[0] == entry[2].time and entry[2].parent is not None]
            heapify(heap)
        self._serial += 1
        heappush(heap, (node.time, self._serial, node))

    def _touch_path(self, node: Node) -> None:
        """Marks what leads to a node as accessed, from the root on."""
        path, deepest = [], node
        while node.parent is not None:
            path.append(node)
            node = node.parent
        for node in reversed(path):
            self.clock += 1
            node.time = self.clock
        self._file(deepest)  # all others have children

    def nodes(self) -> Iterator[Node]:
        """All nodes but the root, parents first."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            yield node

    def check(self) -> None:
        """Raises AssertionError when the invariant is broken."""
        filed = {(time, id(node)) for time, _, node in self._heap}
        locked = evictable = count = 0
        for node in self.nodes():
            count += 1
            assert node.parent is not None
            assert node.tokens and node.tokens % self.page == 0
            assert node.tokens == sum(length for _, _, length in node.spans)
            assert node.spans == merged(node.spans)
            assert node.parent.children[Reader(node.spans).peek(self.page)] is node
            assert node.parent is self.root or node.locks <= node.parent.locks
            if node.locks:
                locked += node.tokens
            else:
                evictable += node.tokens
                assert node.children or (node.time, id(node)) in filed
        assert (locked, evictable, count) == (self.locked, self.evictable, self._nodes)
