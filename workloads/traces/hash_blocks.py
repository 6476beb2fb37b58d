"""Token identity from a trace's ``hash_ids``: each id names one block of tokens and all before it."""

from __future__ import annotations

import numpy as np

from workloads.lazy_rows import LazyRows, Row
from workloads.workload import IntColumn, Segment

_USUAL = 512  # Mooncake's


def fitting_block_size(prompt_tokens: IntColumn, counts: IntColumn) -> tuple[int, float]:
    """The block size that explains most rows, and the share of the rows with ids that it explains.

    A trace names ceil(p/B) ids for a prompt of p tokens, or floor(p/B) where it names full blocks only. 512 stands
    where it explains at least half of the rows; other sizes are powers of two.
    """
    has = counts > 0
    if not np.any(has):
        return _USUAL, 1.0
    prompt, count = prompt_tokens[has], counts[has]

    def share(size: int) -> float:
        return max(float(np.mean(count == -(-prompt // size))), float(np.mean(count == prompt // size)))

    if (usual := share(_USUAL)) >= 0.5:
        return _USUAL, usual
    return max(((1 << k, share(1 << k)) for k in range(15)), key=lambda pair: pair[1])


class HashedSegments(LazyRows):
    """Segments of each row, made when asked for: block id h is ``("h:<h>", 0, tokens)``, the last may be partial.

    Tokens after the last id are private to the row (``r:<row>``); a row without ids is None. ``starts`` and
    ``counts`` index the flat ``ids``.

    Invariant: the lengths of a row's segments sum to its prompt; counts[i] <= ceil(prompt[i] / block_size).
    """

    def __init__(
        self, ids: IntColumn, starts: IntColumn, counts: IntColumn, prompt_tokens: IntColumn, block_size: int
    ) -> None:
        self._ids, self._starts, self._counts = ids, starts, counts
        self._prompt, self._block_size = prompt_tokens, block_size

    def __len__(self) -> int:
        return len(self._counts)

    def first(self, n: int) -> HashedSegments:
        """The first ``n`` rows, over the same ids."""
        return HashedSegments(self._ids, self._starts[:n], self._counts[:n], self._prompt[:n], self._block_size)

    def leading_hits(self, block_size: int) -> IntColumn | None:
        """Per row, how many of its first ids came before in one earlier row; None where ids do not settle that.

        Where an id always follows the same id and always stands for as many tokens, it names all the tokens before
        it too (Mooncake's ids do): it hits exactly if it came in an earlier row, and all before it hit with it.
        """
        if block_size != self._block_size or not np.any(self._counts):
            return None
        row = np.repeat(np.arange(len(self._counts)), self._counts)
        place = np.arange(len(row)) - np.repeat(np.cumsum(self._counts) - self._counts, self._counts)
        ids = self._ids[self._starts[row] + place]
        tokens = np.minimum(self._block_size, self._prompt[row] - place * self._block_size)
        _, first, which = np.unique(ids, return_index=True, return_inverse=True)
        before = np.where(place > 0, np.roll(which, 1), -1)
        if np.any(before != before[first][which]) or np.any(tokens != tokens[first][which]):
            return None
        hit = row[first][which] < row
        result: IntColumn = np.bincount(row[hit], minlength=len(self._counts)).astype(np.int64)
        return result

    def _row(self, row: int) -> Row:
        start, count, left = int(self._starts[row]), int(self._counts[row]), int(self._prompt[row])
        if count == 0:
            return None
        size = self._block_size
        segments: list[Segment] = []
        for block in self._ids[start : start + count].tolist():
            length = min(size, left)
            segments.append((f"h:{block}", 0, length))
            left -= length
        if left:
            segments.append((f"r:{row}", 0, left))
        return tuple(segments)
