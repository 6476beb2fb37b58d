"""Token identity of synthetic prompts, made when it is asked for: a million rows hold no tuples."""

from __future__ import annotations

import numpy as np

from workloads.lazy_rows import LazyRows, Row
from workloads.workload import IntColumn, Segment


class PromptSegments(LazyRows):
    """Segments of prompts with shared prefixes and earlier turns, as in the format of data/vllm_golden.

    Row r of turn t is [prefix of its group], then for each earlier turn its own tokens ``p:<row>`` and its output
    ``o:<row>``, then ``p:<r>``. The request ids are the row numbers. Rows of one session stand together.

    Invariant: the lengths of a row's segments sum to its prompt.
    """

    def __init__(
        self,
        new_tokens: IntColumn,
        output_tokens: IntColumn,
        turn: IntColumn,
        group: IntColumn,
        prefix_tokens: IntColumn,
        class_index: IntColumn,
        prefix_names: list[str],
    ) -> None:
        self._new, self._output, self._turn = new_tokens, output_tokens, turn
        self._group, self._prefix_tokens = group, prefix_tokens
        self._class_index, self._prefix_names = class_index, prefix_names

    def __len__(self) -> int:
        return len(self._new)

    def first(self, n: int) -> PromptSegments:
        """The first ``n`` rows, over the same columns."""
        return PromptSegments(
            self._new[:n],
            self._output[:n],
            self._turn[:n],
            self._group[:n],
            self._prefix_tokens[:n],
            self._class_index[:n],
            self._prefix_names,
        )

    def prefixes(self) -> tuple[IntColumn, list[str]]:
        """(index of each row's prefix or -1, names of the prefixes)."""
        most = int(self._group.max(initial=0)) + 1
        keys, which = np.unique(self._class_index * most + self._group, return_inverse=True)
        named = self._group >= 0
        names = [f"{self._prefix_names[key // most]}:{key % most}" for key in keys.tolist()]
        return np.where(named, which, -1).astype(np.int64), names

    def common_tokens(self, prompt_tokens: IntColumn) -> IntColumn:
        """Per row, how many of its first tokens some earlier row had too, prompt or answer.

        A later turn finds the turn before it but for the answer's last token, which has not been through the model;
        a first turn finds its prefix if an earlier row had it.
        """
        keys = self._class_index * (int(self._group.max(initial=0)) + 2) + self._group
        _, first, which = np.unique(keys, return_index=True, return_inverse=True)
        seen = (self._group >= 0) & (first[which] < np.arange(len(keys)))
        opening = np.where(seen, self._prefix_tokens, 0)
        return np.where(self._turn > 0, prompt_tokens - self._new - 1, opening)

    def _row(self, row: int) -> Row:
        turn, group = int(self._turn[row]), int(self._group[row])
        if turn == 0 and group < 0:
            return None
        segments: list[Segment] = []
        if group >= 0:
            name = self._prefix_names[int(self._class_index[row])]
            segments.append((f"{name}:{group}", 0, int(self._prefix_tokens[row])))
        for earlier in range(row - turn, row):
            segments.append((f"p:{earlier}", 0, int(self._new[earlier])))
            segments.append((f"o:{earlier}", 0, int(self._output[earlier])))
        segments.append((f"p:{row}", 0, int(self._new[row])))
        return tuple(segments)
