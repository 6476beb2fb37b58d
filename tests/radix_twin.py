"""A plain twin of SGLang's radix tree: a dictionary of token paths, one entry a page, written for reading."""

from __future__ import annotations

from simulator.allocators.token_spans import Spans

Token = tuple[str, int]
Path = tuple[Token, ...]


def tokens_of(spans: Spans) -> Path:
    return tuple((stream, start + i) for stream, start, length in spans for i in range(length))


class NaiveTree:
    """All cached prefixes that end a page, each with its locks, its time, and whether a node ends there.

    A node is the stretch from one cut to the next along a path, so a cut is all that splitting leaves behind.
    """

    def __init__(self, page: int) -> None:
        self.page = page
        self.clock = 0
        self.locks: dict[Path, int] = {}
        self.times: dict[Path, int] = {}  # of the nodes, by where they end

    def pages(self, path: Path) -> list[Path]:
        return [path[:end] for end in range(self.page, len(path) + 1, self.page)]

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def found(self, path: Path) -> Path:
        return max((p for p in self.pages(path) if p in self.locks), key=len, default=())

    def below(self, path: Path) -> list[Path]:
        """Nodes that lie below a cut or end there, nearest first."""
        return sorted((p for p in self.times if p[: len(path)] == path), key=lambda p: (len(p), p))

    def match(self, path: Path) -> Path:
        found = self.found(path)
        if found and found not in self.times:
            self.tick()
            self.times[found] = self.clock
        time = self.tick()
        for end in self.pages(found):
            if end in self.times:
                self.times[end] = time
        return found

    def insert(self, path: Path) -> Path:
        found = self.found(path)
        for end in self.pages(found):
            if end in self.times:
                self.times[end] = self.tick()
        if found and found not in self.times:  # the node that goes on below is accessed, then split
            self.times[self.below(found)[0]] = self.tick()
            self.times[found] = self.tick()
        if found != path:
            self.times[path] = self.tick()
        for end in self.pages(path):
            self.locks.setdefault(end, 0)
        return found

    def add_locks(self, path: Path, change: int) -> None:
        for end in self.pages(path):
            self.locks[end] += change

    def evict(self, tokens: int) -> int:
        gone = 0
        while gone < tokens:
            leaves = [p for p in self.times if not self.locks[p] and self.below(p) == [p]]
            if not leaves:
                break
            leaf = min(leaves, key=lambda p: self.times[p])
            del self.times[leaf]
            for end in reversed(self.pages(leaf)):
                if end in self.times:
                    break
                del self.locks[end]
                gone += self.page
        return gone

    @property
    def evictable(self) -> int:
        return self.page * sum(not locks for locks in self.locks.values())
