"""Plain twins of the prefix caches: lists of tokens, one request after another, a queue that really evicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from simulator.allocators.content import TokenContent
from workloads.workload import Workload

Token = tuple[str, int]

_SEGMENT = st.tuples(st.sampled_from(["x", "y", "o:0", "o:1", "p:0"]), st.integers(0, 5), st.integers(1, 7))
_ROW = st.tuples(st.none() | st.lists(_SEGMENT, min_size=1, max_size=4).map(tuple), st.integers(1, 9))


@st.composite
def workloads(draw: st.DrawFn, most_rows: int = 14) -> Workload:
    """Rows over few streams, so that many begin alike, some private, some that go on from an earlier answer."""
    rows: list[Any] = draw(st.lists(_ROW, min_size=1, max_size=most_rows))
    again = draw(st.lists(st.integers(0, len(rows) - 1), max_size=6))  # whole prompts that come once more
    rows += [rows[i] for i in again]
    for i in draw(st.lists(st.integers(0, len(rows) - 1), max_size=4)):  # a turn that goes on from row i
        segments = rows[i][0] or ((f"p:{i}", 0, 5),)
        rows.append(((*segments, (f"o:{i}", 0, rows[i][1]), ("x", 3, 2)), draw(st.integers(1, 6))))
    lengths = [5 if s is None else sum(length for _, _, length in s) for s, _ in rows]
    segments = [s for s, _ in rows]
    return Workload.from_columns([0] * len(rows), lengths, [out for _, out in rows], segments=segments)


def sequences(workload: Workload) -> list[tuple[list[Token], int]]:
    """Per row: all tokens that go through the model, and how many of them are the prompt's."""
    content = TokenContent(workload)
    found = []
    for row in range(len(workload)):
        tokens = [(s, start + k) for s, start, length in content.segments(row) for k in range(length)]
        found.append((tokens[:-1], int(workload.prompt_tokens[row])))
    return found


def fewest_blocks(workload: Workload, block_size: int) -> int:
    """Blocks that hold any one row."""
    return max(-(-len(tokens) // block_size) for tokens, _ in sequences(workload))


def chain_hits(workload: Workload, block_size: int, blocks: int, *, tail_inside: bool) -> int:
    """Hit blocks of a pool with vLLM's free queue: popped at its head, freed last block first.

    ``tail_inside``: the last, partial block of the request in service takes one of the pool's blocks, as in vLLM;
    else it stands beside the pool.
    """
    queue: list[Any] = [None] * blocks  # head first: None is an empty block, else the chain up to a block's end
    hits = 0
    for tokens, prompt in sequences(workload):
        chain = [tuple(tokens[:end]) for end in range(block_size, len(tokens) + 1, block_size)]
        found = 0
        while found < min(len(chain), (prompt - 1) // block_size) and chain[found] in queue:
            found += 1
        hits += found
        used = [block for block in chain if block in queue]  # kept once: computed anew or not, it is renewed
        for block in used:
            queue.remove(block)
        tail = 1 if tail_inside and len(tokens) % block_size else 0
        for _ in range(len(chain) - len(used) + tail):
            queue.pop(0)
        queue[:0] = [None] * tail
        queue += reversed(chain)
        assert len(queue) == blocks
    return hits


@dataclass
class Edge:
    """An edge of a radix tree: its pages, the edges below, and when it was last used."""

    pages: list[tuple[Token, ...]]
    stamp: int
    below: list[Edge] = field(default_factory=list)


def radix_hits(workload: Workload, page_size: int, capacity_pages: int) -> int:
    """Hit pages of a radix cache that evicts whole leaves, least recently used first."""
    root, hits = Edge([], 0), 0
    for now, (tokens, prompt) in enumerate(sequences(workload), start=1):
        pages = [tuple(tokens[at : at + page_size]) for at in range(0, len(tokens) - page_size + 1, page_size)]
        path, matched = [root], 0
        while True:
            edge = next((e for e in path[-1].below if pages[matched : matched + 1] == e.pages[:1]), None)
            if edge is None:
                break
            same = 0
            while same < len(edge.pages) and pages[matched + same : matched + same + 1] == edge.pages[same : same + 1]:
                same += 1
            if same < len(edge.pages):
                upper = Edge(edge.pages[:same], now, [edge])
                path[-1].below[path[-1].below.index(edge)] = upper
                edge.pages = edge.pages[same:]
                edge = upper
            edge.stamp = now
            path.append(edge)
            matched += same
        hits += min(matched, (prompt - 1) // page_size)
        for end in (prompt // page_size, len(pages)):
            if end > matched:
                _make_room(root, path, capacity_pages - (end - matched))
                path[-1].below.append(Edge(pages[matched:end], now))
                path.append(path[-1].below[-1])
                matched = end
        assert _size(root) <= capacity_pages
    return hits


def _size(edge: Edge) -> int:
    return len(edge.pages) + sum(_size(e) for e in edge.below)


def _make_room(root: Edge, path: list[Edge], room: int) -> None:
    while _size(root) > room:
        leaves = []
        stack = [root]
        while stack:
            above = stack.pop()
            stack += above.below
            leaves += [(e.stamp, id(e), e, above) for e in above.below if not e.below and all(e is not p for p in path)]
        _, _, leaf, above = min(leaves)
        above.below = [e for e in above.below if e is not leaf]
