"""The radix tree against its plain twin, rule by rule."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from simulator.allocators.radix_tree import Node, RadixTree
from simulator.allocators.token_spans import Spans, merged
from tests.radix_twin import NaiveTree, Path, tokens_of

sequences = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 4), st.integers(1, 9)), min_size=1, max_size=4
).map(merged)


class RadixMachine(RuleBasedStateMachine):
    tree: RadixTree
    twin: NaiveTree

    @initialize(page=st.sampled_from([1, 2, 4]))
    def begin(self, page: int) -> None:
        self.tree = RadixTree(page)
        self.twin = NaiveTree(page)
        self.kept: list[tuple[Node, Path]] = []

    def aligned(self, tokens: int) -> int:
        return tokens // self.tree.page * self.tree.page

    @rule(spans=sequences, less=st.integers(0, 3))
    def match(self, spans: Spans, less: int) -> None:
        path = tokens_of(spans)
        most = max(0, len(path) - less)
        found, node = self.tree.match(spans, most)
        assert self.twin.match(path[:most]) == path[:found] == self.path_to(node)

    @rule(spans=sequences, less=st.integers(0, 3), lock=st.booleans())
    def insert(self, spans: Spans, less: int, lock: bool) -> None:
        path = tokens_of(spans)
        stored = self.aligned(max(0, len(path) - less))
        found, node = self.tree.insert(spans, stored)
        assert len(self.twin.insert(path[:stored])) == found
        assert self.path_to(node) == path[:stored]
        if lock:
            free = self.tree.evictable
            assert free - self.tree.lock(node) == self.tree.evictable
            self.twin.add_locks(path[:stored], 1)
            self.kept.append((node, path[:stored]))

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), more=sequences)
    def go_on(self, data: st.DataObject, more: Spans) -> None:
        """Who holds a path stores more behind it, and a node ends somewhere on the way."""
        node, path = data.draw(st.sampled_from(self.kept))
        spans = merged([*((stream, start, 1) for stream, start in path), *more])
        whole = tokens_of(spans)
        stored = self.aligned(len(whole))
        found, end = self.tree.insert(spans, stored, node, len(path))
        assert len(self.twin.insert(whole[:stored])) == found
        assert self.path_to(end) == whole[:stored]
        pages = data.draw(st.integers(0, stored // self.tree.page))
        if pages:
            self.tree.cut(end, stored, pages * self.tree.page)
            self.twin.insert(whole[: pages * self.tree.page])

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def unlock(self, data: st.DataObject) -> None:
        node, path = self.kept.pop(data.draw(st.integers(0, len(self.kept) - 1)))
        self.tree.unlock(node)
        self.twin.add_locks(path, -1)

    @rule(tokens=st.integers(1, 30))
    def evict(self, tokens: int) -> None:
        assert self.tree.evict(tokens) == self.twin.evict(tokens)

    def path_to(self, node: Node) -> Path:
        stretches = []
        while node.parent is not None:
            stretches.append(tokens_of(node.spans))
            node = node.parent
        return tuple(token for stretch in reversed(stretches) for token in stretch)

    @invariant()
    def same(self) -> None:
        if hasattr(self, "tree"):
            self.tree.check()
            assert self.tree.clock == self.twin.clock
            nodes = {self.path_to(node): node for node in self.tree.nodes()}
            assert {path: node.time for path, node in nodes.items()} == self.twin.times
            assert {path: node.locks for path, node in nodes.items()} == {p: self.twin.locks[p] for p in nodes}
            assert self.tree.evictable == self.twin.evictable


TestRadixMachine = RadixMachine.TestCase
TestRadixMachine.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
