"""All token sequences of a workload as one radix tree: what a prefix cache can ever hold, in few nodes.

Each row is its prompt and then its answer but for the last token, which never goes through the model (SCHEDULERS 1.10).
The tree is cut wherever rows part or end, so that every row is a path of whole nodes: blocks of one node are always
used together, whatever the block size. Tokens that no other row has are no nodes, only a length per row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workloads.workload import IntColumn, Segment, Workload


@dataclass(frozen=True)
class TokenTree:
    """Node 0 is the root, with no tokens; node v holds the tokens ``end[parent[v]]`` to ``end[v]`` of its paths.

    Attributes:
        parent, end: per node; tokens are counted from the start of the prompt.
        prompt_node, end_node: per row, the last node of its prompt, and of all its tokens.
        prompt_private, answer_private: per row, tokens below those nodes that no other row has.
        prompt_tokens: per row.

    Invariant: a node's tokens lie in a row's prompt or in its answer, never in both; a row with ``prompt_private``
    has ``end_node`` = ``prompt_node``.
    """

    parent: IntColumn
    end: IntColumn
    prompt_node: IntColumn
    end_node: IntColumn
    prompt_private: IntColumn
    answer_private: IntColumn
    prompt_tokens: IntColumn

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    def total_tokens(self) -> IntColumn:
        """Per row, the tokens that went through the model."""
        return self.end[self.end_node] + self.prompt_private + self.answer_private

    def paths(self) -> tuple[IntColumn, IntColumn]:
        """(row, node) of every visit, row after row, the nodes of a row from its last to its first."""
        rows, nodes = np.arange(len(self)), self.end_node
        found = []
        while len(rows):
            on = nodes > 0
            rows, nodes = rows[on], nodes[on]
            found.append((rows, nodes))
            nodes = self.parent[nodes]
        row = np.concatenate([r for r, _ in found] or [rows])
        node = np.concatenate([n for _, n in found] or [nodes])
        order = np.argsort(row, kind="stable")
        return row[order], node[order]


def token_tree(workload: Workload, order: IntColumn) -> TokenTree:
    """The tree of ``workload``'s rows taken in ``order``; its rows are in that order. Needs ``segments``."""
    shared = _shared_streams(workload)
    tree = _Growing()
    prompt_nodes, end_nodes, prompt_rest, answer_rest = [], [], [], []
    prompts, outputs = workload.prompt_tokens.tolist(), workload.output_tokens.tolist()
    for row in order.tolist():
        answer = outputs[row] - 1
        node, rest = tree.add(0, _prompt(workload, row, prompts[row]), shared)
        prompt_nodes.append(node)
        prompt_rest.append(rest)
        if answer and not rest:
            node, answer = tree.add(node, ((f"o:{workload.request_id(row)}", 0, answer),), shared)
        end_nodes.append(node)
        answer_rest.append(answer)
    return _compact(
        TokenTree(
            parent=np.array(tree.parent),
            end=np.array(tree.end),
            prompt_node=np.array(prompt_nodes),
            end_node=np.array(end_nodes),
            prompt_private=np.array(prompt_rest),
            answer_private=np.array(answer_rest),
            prompt_tokens=workload.prompt_tokens[order],
        )
    )


class _Growing:
    """The tree while rows are added. An edge that is cut leaves its lower part under the old number."""

    def __init__(self) -> None:
        self.parent, self.end = [0], [0]
        self._below: dict[tuple[int, int, int], int] = {}  # (node, stream, position) -> the node that begins so

    def add(self, node: int, segments: tuple[Segment, ...], shared: dict[str, int]) -> tuple[int, int]:
        """Follows ``segments`` from ``node``: the last node reached, and the tokens left from the first private one."""
        for number, (name, first, tokens) in enumerate(segments):
            stream = shared.get(name)
            if stream is None:
                return node, sum(length for _, _, length in segments[number:])
            node = self._add(node, stream, first, tokens)
        return node, 0

    def _add(self, node: int, stream: int, start: int, left: int) -> int:
        while left:
            below = self._below.get((node, stream, start))
            if below is None:
                return self._new(node, stream, start, left)
            length = self.end[below] - self.end[node]
            if length > left:
                upper = self._new(node, stream, start, left)
                self._below[upper, stream, start + left] = below
                self.parent[below] = upper
                return upper
            node, start, left = below, start + length, left - length
        return node

    def _new(self, above: int, stream: int, start: int, length: int) -> int:
        node = len(self.parent)
        self.parent.append(above)
        self.end.append(self.end[above] + length)
        self._below[above, stream, start] = node
        return node


def _prompt(workload: Workload, row: int, tokens: int) -> tuple[Segment, ...]:
    assert workload.segments is not None
    return workload.segments[row] or ((f"p:{workload.request_id(row)}", 0, tokens),)


def _shared_streams(workload: Workload) -> dict[str, int]:
    """A number for each stream that two rows have. A row's own streams count as its own only if another has them."""
    assert workload.segments is not None
    seen: dict[str, int] = {}
    for row in range(len(workload)):
        own = f"p:{workload.request_id(row)}"
        for name, _, _ in workload.segments[row] or ():
            if name != own and seen.setdefault(name, row) != row:
                seen[name] = -1
    if seen:
        for row in range(len(workload)):
            for kind in "po":
                own = f"{kind}:{workload.request_id(row)}"
                if own in seen:
                    seen[own] = -1
    names = [name for name, row in seen.items() if row < 0]
    return {name: number for number, name in enumerate(names)}


def _compact(tree: TokenTree) -> TokenTree:
    """The same tree without the nodes at which no row parts or ends."""
    n = len(tree.parent)
    keep = np.bincount(tree.parent[1:], minlength=n) != 1
    keep[tree.prompt_node] = keep[tree.end_node] = keep[0] = True
    above = tree.parent.copy()
    while not np.all(keep[above]):
        above = np.where(keep[above], above, above[above])
    number = np.cumsum(keep) - 1
    return TokenTree(
        parent=number[above[keep]],
        end=tree.end[keep],
        prompt_node=number[tree.prompt_node],
        end_node=number[tree.end_node],
        prompt_private=tree.prompt_private,
        answer_private=tree.answer_private,
        prompt_tokens=tree.prompt_tokens,
    )
