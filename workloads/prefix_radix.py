"""A radix prefix cache (SGLang's) of one size: evicting whole leaves is no stack algorithm, so each size is simulated.

A stack algorithm keeps, at any size, what smaller sizes keep. Here a leaf that is one token too large goes whole, and
how rows are cut into leaves depends on what was evicted before them.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from workloads.token_tree import TokenTree
from workloads.workload import IntColumn


@dataclass(frozen=True)
class PagedTree:
    """A token tree in whole pages: nodes without a page's end are left out.

    Attributes:
        parent, pages: per node.
        paths: nodes of all rows from the root on, one row after another; row r's are ``paths[first[r]:first[r + 1]]``.
        prompt_nodes: per row, how many of them are its prompt's.
        prompt_private, answer_private: per row, pages that no other row has.
        limit: per row, the most pages that a look-up may find: never the prompt's last token.
    """

    page_size: int
    parent: list[int]
    pages: list[int]
    paths: list[int]
    first: list[int]
    prompt_nodes: list[int]
    prompt_private: list[int]
    answer_private: list[int]
    limit: list[int]


def paged_tree(tree: TokenTree, page_size: int) -> PagedTree:
    """``tree`` in pages of ``page_size`` tokens."""
    pages = tree.end // page_size - tree.end[tree.parent] // page_size
    above = tree.parent
    while np.any(empty := (pages[above] == 0) & (above > 0)):
        above = np.where(empty, above[above], above)
    row, node = tree.paths()
    has = pages[node] > 0
    row, node = row[has][::-1], node[has][::-1]
    order = np.argsort(row, kind="stable")
    row, node = row[order], node[order]
    in_prompt = tree.end[node] <= tree.prompt_tokens[row]
    n = len(tree)
    shared_end = tree.end[tree.end_node]
    prompt_private = np.where(tree.prompt_private > 0, tree.prompt_tokens // page_size - shared_end // page_size, 0)
    answer_from = np.maximum(tree.prompt_tokens, shared_end)
    return PagedTree(
        page_size=page_size,
        parent=above.tolist(),
        pages=pages.tolist(),
        paths=node.tolist(),
        first=np.searchsorted(row, np.arange(n + 1)).tolist(),
        prompt_nodes=np.bincount(row[in_prompt], minlength=n).tolist(),
        prompt_private=prompt_private.tolist(),
        answer_private=(tree.total_tokens() // page_size - answer_from // page_size).tolist(),
        limit=((tree.prompt_tokens - 1) // page_size).tolist(),
    )


def radix_hit_tokens(tree: PagedTree, cache_tokens: int) -> int:
    """Prompt tokens served, all rows one after another, by a radix cache of ``cache_tokens`` tokens.

    The rules are SGLang's (SCHEDULERS.md, 9.3): a look-up cuts the edge at which it ends and stamps its path; the rest
    of the prompt becomes one leaf, the answer another below it; room is made by removing whole leaves outside the path,
    least recently stamped first, and a parent without leaves is a leaf. The cut one token before the end of a fully
    cached prompt is not made. ``cache_tokens`` must hold the longest row.
    """
    return _Radix(tree, cache_tokens // tree.page_size).run() * tree.page_size


class _Radix:
    """The cache. An edge of it is a stretch of the tree's nodes, named by the last; private pages have own numbers.

    Lists are by node, then two places a row for its private pages. ``edge[v]`` is the edge that holds node v, or -1;
    of an edge ``size`` are its pages, ``last`` its last node (0: none), ``stamp`` when it was last used (-1: it is
    gone), ``above`` the edge it hangs on and ``children`` how many hang on it.

    Invariant: ``used`` = sum of the pages of all edges <= ``capacity``. ``leaves`` holds every leaf but those of the
    row in service, as stamp * ``places`` + edge; what no longer is a leaf with that stamp is passed over.
    """

    def __init__(self, tree: PagedTree, capacity: int) -> None:
        self.tree, self.capacity = tree, capacity
        self.used = 0
        nodes = len(tree.parent)
        self.places = nodes + 2 * len(tree.limit)
        self.edge = [-1] * nodes
        self.size, self.above, self.children = [0] * self.places, [0] * self.places, [0] * self.places
        self.last = [*range(nodes), *[0] * (self.places - nodes)]
        self.stamp = [-1] * self.places
        self.stamp[0], self.children[0] = 0, 1  # the root is never a leaf
        self.leaves: list[int] = []

    def run(self) -> int:
        """Hits in pages."""
        tree, hits, private = self.tree, 0, len(self.edge)
        rows = zip(
            tree.first, tree.first[1:], tree.prompt_nodes, tree.prompt_private, tree.answer_private, tree.limit,
            strict=False,
        )  # fmt: skip
        for now, (first, end, prompt, prompt_private, answer_private, limit) in enumerate(rows, start=1):
            path = tree.paths[first:end]
            node, matched, pages = self._match(path, now) if path else (0, 0, 0)
            hits += pages if pages < limit else limit
            if matched < prompt or prompt_private:
                node = self._add(node, path[matched:prompt], prompt_private, private, now)
                matched = prompt
            if matched < len(path) or answer_private:
                node = self._add(node, path[matched:], answer_private, private + 1, now)
            if not self.children[node]:
                heappush(self.leaves, self.stamp[node] * self.places + node)
            private += 2
        return hits

    def _match(self, path: list[int], now: int) -> tuple[int, int, int]:
        """(the last edge found, how many nodes of the path were, their pages); stamps them, and cuts there."""
        edge, stamp, matched, pages, last = self.edge, self.stamp, 0, 0, 0
        for node in path:
            if edge[node] < 0:
                break
            matched += 1
            pages += self.tree.pages[node]
            last = node
            if stamp[node] >= 0:
                stamp[node] = now
        if last and edge[last] != last:
            self._cut(last, now)
        return last, matched, pages

    def _cut(self, upper: int, now: int) -> None:
        """Cuts an edge below the node ``upper``."""
        lower, node, pages = self.edge[upper], upper, 0
        while node and self.edge[node] == lower:
            self.edge[node] = upper
            pages += self.tree.pages[node]
            node = self.tree.parent[node]
        self.size[upper] = pages
        self.size[lower] -= pages
        self.above[upper], self.above[lower] = self.above[lower], upper
        self.stamp[upper], self.children[upper] = now, 1

    def _add(self, above: int, nodes: list[int], private_pages: int, private: int, now: int) -> int:
        """A new leaf of ``nodes`` and then private pages under ``above``, after making room for it."""
        pages = private_pages
        for node in nodes:
            pages += self.tree.pages[node]
        self.children[above] += 1  # before the room is made: it stays
        if self.used + pages > self.capacity:
            self._make_room(pages)
        leaf = private if private_pages else nodes[-1]
        for node in nodes:
            self.edge[node] = leaf
        if private_pages:
            self.last[leaf] = nodes[-1] if nodes else 0
        self.used += pages
        self.size[leaf], self.stamp[leaf], self.above[leaf], self.children[leaf] = pages, now, above, 0
        return leaf

    def _make_room(self, pages: int) -> None:
        edge, stamps, children, parent = self.edge, self.stamp, self.children, self.tree.parent
        while self.used + pages > self.capacity:
            stamp, leaf = divmod(heappop(self.leaves), self.places)
            if stamps[leaf] != stamp or children[leaf]:
                continue
            node = self.last[leaf]
            while node and edge[node] == leaf:
                edge[node] = -1
                node = parent[node]
            above = self.above[leaf]
            self.used -= self.size[leaf]
            stamps[leaf] = -1
            children[above] -= 1
            if not children[above]:
                heappush(self.leaves, stamps[above] * self.places + above)


def longest_row_tokens(tree: TokenTree, block_size: int) -> int:
    """Tokens of the smallest cache, in whole blocks, that holds any one row."""
    longest: IntColumn = -(-tree.total_tokens() // block_size) * block_size
    return int(longest.max())
