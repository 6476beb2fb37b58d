"""Reads the steps of a replica in blocks of rows, and what follows from a row in closed form.

Step i of a row (i = 0 .. k−1) lasts d_i = d + i·g, and so starts at start + i·d + g·i(i−1)/2. During step i the
running requests hold

    stored_i = stored + i·decodes                      tokens, and
    used_i   = used + B · Σ_{j=1..i} b_j               slots,

where b_j are the blocks that step j allocates: listed for j ≤ min(k−1, B), of period B beyond. Between rows, and
before the first and after the last, nothing runs and nothing is held.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.errors import KvplanError
from simulator.metrics_exact import sum_of_first, sum_of_first_squares
from simulator.run_log import SEGMENT_COLUMNS, IntColumn, ReplicaLog

ROWS_PER_BLOCK = 1 << 13
MAX_STEPS_PER_ROW = 1 << 20
"""A row stands for fewer steps than this, so that the cube of the number fits in 64 bits."""


class BrokenRunLogError(KvplanError):
    """The log contradicts itself: a fault of the simulator, not of the user's input."""


def step_blocks(replica: ReplicaLog, rows_per_block: int = ROWS_PER_BLOCK) -> Iterator[dict[str, IntColumn]]:
    """Contiguous copies of the segment columns, a block of rows at a time, so that memory stays small.

    Each block has one more column, ``length_ps``: the time that the row takes, k·d + g·k(k−1)/2.
    """
    width = len(SEGMENT_COLUMNS)
    matrix = np.frombuffer(replica.segments, dtype=np.int64) if len(replica.segments) else np.empty(0, np.int64)
    matrix = matrix.reshape(-1, width)
    for first in range(0, len(matrix), rows_per_block):
        block = np.ascontiguousarray(matrix[first : first + rows_per_block].T)
        steps = dict(zip(SEGMENT_COLUMNS, block, strict=True))
        if int(steps["steps"].max()) >= MAX_STEPS_PER_ROW:
            raise BrokenRunLogError(
                f"a row of the run log stands for {int(steps['steps'].max())} steps; the limit is {MAX_STEPS_PER_ROW}"
            )
        steps["length_ps"] = steps["steps"] * steps["duration_ps"] + steps["growth_ps"] * sum_of_first(steps["steps"])
        yield steps


Moments = tuple[IntColumn, IntColumn, IntColumn]


def _prefix_sums(values: IntColumn | NDArray[np.int32]) -> IntColumn:
    sums = np.empty(len(values) + 1, dtype=np.int64)
    sums[0] = 0
    np.cumsum(values, out=sums[1:])
    return sums


@dataclass(frozen=True)
class GrowthMoments:
    """Prefix sums over a part of ``growth_blocks``, then of these, then of those (wrapping): at position m

        Z = Σ_{i<m} b_i,   S = Σ_{i<m} (m−1−i)·b_i,   T = Σ_{i<m} (m−1−i)(m−2−i)/2·b_i,

    from which the moments follow where they are asked for, so that no pass over all blocks multiplies:
    Σ i·b = (m−1)·Z − S and Σ i²·b = 2T − (m−1)(m−2)·Z + (2m−3)·Σ i·b.
    """

    block_size: int
    once: IntColumn
    twice: IntColumn
    thrice: IntColumn
    offset: int = 0  # index in growth_blocks of the part's begin

    @classmethod
    def of(cls, replica: ReplicaLog, growth_at: IntColumn, steps: IntColumn) -> GrowthMoments:
        """Reads the growth of some rows of a replica; contiguous pools do not grow."""
        size = max(replica.pool.block_size, 1)
        growing = steps > 1
        if not growing.any() or len(replica.growth_blocks) == 0:
            nothing = np.zeros(1, dtype=np.int64)
            return cls(size, nothing, nothing, nothing)
        begin = int(growth_at[growing].min())
        end = int((growth_at + np.minimum(steps - 1, size))[growing].max())
        once = _prefix_sums(np.frombuffer(replica.growth_blocks, dtype=np.int32)[begin:end])
        twice = _prefix_sums(once[:-1])
        return cls(size, once, twice, _prefix_sums(twice[:-1]), begin)

    def _moments(self, at: IntColumn) -> Moments:
        """Σ b, Σ i·b and Σ i²·b over the blocks before each position."""
        zeroth = self.once[at]
        first = (at - 1) * zeroth - self.twice[at]
        return zeroth, first, 2 * self.thrice[at] - (at - 1) * (at - 2) * zeroth + (2 * at - 3) * first

    def listed(self, growth_at: IntColumn, entries: IntColumn) -> Moments:
        """Σ b_j, Σ j·b_j, Σ j²·b_j over the first ``entries`` listed steps j = 1, 2, ... of each row."""
        last = len(self.once) - 1
        at = growth_at - self.offset
        begin = np.clip(at, 0, last)
        end = np.clip(at + entries, 0, last)
        before, until = self._moments(begin), self._moments(end)
        zeroth, raw_first, raw_second = (b - a for a, b in zip(before, until, strict=True))
        shift = begin - 1  # j = index − shift
        first = raw_first - shift * zeroth
        second = raw_second - 2 * shift * raw_first + shift * shift * zeroth
        return zeroth, first, second

    def until(self, growth_at: IntColumn, grown: IntColumn) -> Moments:
        """Σ b_j, Σ j·b_j, Σ j²·b_j over j = 1 .. ``grown`` of each row, the periodic part included.

        With q whole periods of B steps and a rest, and moments m0, m1, m2 of one period:
        Σ_{r<q} Σ_j (j + rB)·b_j = q·m1 + B·q(q−1)/2·m0, and likewise for the squares.
        """
        size = self.block_size
        totals = tuple(np.zeros_like(grown) for _ in range(3))
        some = np.flatnonzero(grown)
        periods, rest = grown[some] // size, grown[some] % size
        zeroth, first, second = self.listed(growth_at[some], rest)
        shift = periods * size
        totals[0][some] = zeroth
        totals[1][some] = first + shift * zeroth
        totals[2][some] = second + 2 * shift * first + shift * shift * zeroth
        many = periods > 0
        if many.any():
            whole, periods = some[many], periods[many]
            zeroth, first, second = self.listed(growth_at[whole], np.full_like(periods, size))
            pairs, squares = sum_of_first(periods), sum_of_first_squares(periods)
            totals[0][whole] += periods * zeroth
            totals[1][whole] += periods * first + size * pairs * zeroth
            totals[2][whole] += periods * second + 2 * size * pairs * first + size * size * squares * zeroth
        return totals[0], totals[1], totals[2]

    def highest(self, growth_at: IntColumn, grown: IntColumn) -> IntColumn:
        """The largest Σ_{j≤i} b_j over i = 0 .. ``grown`` of each row: the end's, unless blocks are given up too."""
        if (np.diff(self.once) >= 0).all():
            return self.until(growth_at, grown)[0]
        last = len(self.once) - 1  # growth that is not monotone has no periodic part
        begin = np.clip(growth_at - self.offset, 0, last)
        end = np.clip(growth_at - self.offset + grown, 0, last)
        edges = np.stack([begin, end + 1], axis=1).ravel()
        return np.maximum.reduceat(np.append(self.once, self.once[-1]), edges)[::2] - self.once[begin]
