"""Inter-token latency pooled over all tokens, from arithmetic progressions and never step by step.

A row of k steps gives the gap d to ``regular`` tokens and each of the gaps d + g, ..., d + (k−1)·g to ``decodes``
tokens. So the population is a set of weighted points and of weighted progressions lo, lo + step, ... (m terms), and
the number of gaps that are at most x is

    C(x) = Σ_points w·[value ≤ x] + Σ_progressions w·min(m, ⌊(x − lo)/step⌋ + 1)   (terms below 0 count 0).

The r-th smallest gap is the least x with C(x) > r: the integers are halved, on ever fewer progressions, until few
terms are left to sort. What it costs depends on the rows, not on the steps they stand for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from simulator.metrics_exact import ratio, sum_of_first, sum_of_first_squares, sum_of_products
from simulator.run_log import IntColumn

_FEW_TERMS = 1 << 16
"""Brackets with fewer terms are sorted, larger ones halved: speed only, like the next two."""
_SAMPLE = 1 << 14
_DEVIATIONS = 3.0
"""Ranks are first bracketed by so many deviations of a sample of this size: speed only."""


@dataclass(frozen=True)
class Gaps:
    """A population of gaps, ps. Progressions have m ≥ 2 terms and step ≥ 1; weights are ≥ 1."""

    value: IntColumn
    value_weight: IntColumn
    low: IntColumn
    step: IntColumn
    terms: IntColumn
    weight: IntColumn
    count: int = 0
    total_ps: int = 0
    total_squares: int = 0

    @property
    def mean_ps(self) -> float:
        return ratio(self.total_ps, self.count)

    @property
    def std_ps(self) -> float:
        """Population deviation: √(N·Σx² − (Σx)²) / N."""
        spread = self.count * self.total_squares - self.total_ps**2
        return math.sqrt(spread) / self.count if self.count else 0.0

    def at_most(self, x: int) -> int:
        """C(x): how many gaps are at most x."""
        points = int(self.value_weight[self.value <= x].sum())
        reached = np.minimum((x - self.low) // self.step + 1, self.terms)
        return points + int((self.weight * np.maximum(reached, 0)).sum())

    def terms_in(self, above: int, most: int) -> tuple[IntColumn, IntColumn] | None:
        """The gaps in (above, most] in order, and their cumulated weights; None when there are too many terms."""
        before = np.clip((above - self.low) // self.step + 1, 0, self.terms)
        until = np.clip((most - self.low) // self.step + 1, 0, self.terms)
        lengths = until - before
        total = int(lengths.sum())
        if total > _FEW_TERMS:
            return None
        index = np.arange(total) - np.repeat(np.cumsum(lengths) - lengths - before, lengths)
        keep = (self.value > above) & (self.value <= most)
        terms = np.repeat(self.low, lengths) + index * np.repeat(self.step, lengths)
        values = np.concatenate((self.value[keep], terms))
        weights = np.concatenate((self.value_weight[keep], np.repeat(self.weight, lengths)))
        order = np.argsort(values, kind="stable")
        return values[order], np.cumsum(weights[order])

    def within(self, above: int, most: int) -> Gaps:
        """The points and progressions that have or may have terms in (above, most]. Totals are not kept."""
        keep = (self.value > above) & (self.value <= most)
        last = self.low + (self.terms - 1) * self.step
        some = (last > above) & (self.low <= most)
        return Gaps(
            self.value[keep],
            self.value_weight[keep],
            self.low[some],
            self.step[some],
            self.terms[some],
            self.weight[some],
        )


class GapCollector:
    """Collects the gaps of a run, a block of rows at a time; with ``from_ps`` those of steps that start then or later.

    Gaps that are not one step long (``irregular_gaps_ps``) carry no time in the log and are always kept.
    """

    def __init__(self, from_ps: int | None = None) -> None:
        self._from_ps = from_ps
        self._parts: list[tuple[IntColumn, ...]] = []
        self._count = self._total = self._squares = 0

    def add_irregular(self, gaps_ps: IntColumn) -> None:
        """Adds gaps one by one."""
        none = gaps_ps[:0]
        self._parts.append((gaps_ps, np.ones_like(gaps_ps), none, none, none, none))
        self._count += len(gaps_ps)
        self._total += sum_of_products(gaps_ps)
        self._squares += sum_of_products(gaps_ps, gaps_ps)

    def add_batches(self, batches: dict[str, IntColumn]) -> None:
        """Adds gaps of batches that overlap in time, see ``run_log.PipelineFacts``."""
        start, gap, count = (batches[name].copy() for name in ("start_ps", "gap_ps", "count"))
        if self._from_ps is not None:
            kept = start >= self._from_ps
            gap, count = gap[kept], count[kept]
        none = gap[:0]
        self._parts.append((gap, count, none, none, none, none))
        self._count += int(count.sum())
        self._total += sum_of_products(gap, count)
        self._squares += sum_of_products(count, gap, gap)

    def add_steps(self, steps: dict[str, IntColumn]) -> None:
        """Adds the gaps of a block of ``metrics_steps.step_blocks``."""
        if self._from_ps is not None:
            steps = _since(steps, self._from_ps)
        k, d, g = steps["steps"], steps["duration_ps"], steps["growth_ps"]
        regular = steps["regular"]
        later = steps["decodes"] * (k > 1)  # tokens that get each further gap of the row
        weight = later * (k - 1)
        self._count += int(regular.sum()) + int(weight.sum())
        self._total += sum_of_products(regular, d) + sum_of_products(later, steps["length_ps"] - d)
        self._squares += (
            sum_of_products(regular + weight, d, d)
            + sum_of_products(later, 2 * sum_of_first(k), d, g)
            + sum_of_products(later, sum_of_first_squares(k), g, g)
        )
        second, last = d + g, d + (k - 1) * g
        first = regular > 0
        point = (later > 0) & ((g == 0) | (k == 2))
        many = (later > 0) & (g != 0) & (k > 2)
        self._parts.append(
            (
                np.concatenate((d[first], second[point])),
                np.concatenate((regular[first], weight[point])),
                np.minimum(second, last)[many],
                np.abs(g)[many],
                (k - 1)[many],
                later[many],
            )
        )

    def gaps(self) -> Gaps:
        """All that was added."""
        nothing = np.empty(0, dtype=np.int64)
        parts = self._parts or [(nothing,) * 6]
        value, value_weight, low, step, terms, weight = map(np.concatenate, zip(*parts, strict=True))
        return Gaps(value, value_weight, low, step, terms, weight, self._count, self._total, self._squares)


def _since(steps: dict[str, IntColumn], from_ps: int) -> dict[str, IntColumn]:
    """The steps that start at or after a time: rows before it go, the row that straddles it loses its first steps."""
    k, d, g, start = steps["steps"], steps["duration_ps"], steps["growth_ps"], steps["start_ps"]
    skipped = np.zeros_like(k)
    high = k.copy()  # the least i with start + i·d + g·i(i−1)/2 ≥ from_ps, by bisection
    while (open_rows := skipped < high).any():
        middle = (skipped + high) // 2
        late = start + middle * d + g * sum_of_first(middle) >= from_ps
        high = np.where(open_rows & late, middle, high)
        skipped = np.where(open_rows & ~late, middle + 1, skipped)
    rest = k - skipped
    kept = rest > 0
    duration = d + skipped * g
    trimmed = {
        "steps": rest,
        "duration_ps": duration,
        "growth_ps": g,
        "regular": np.where(skipped > 0, steps["decodes"], steps["regular"]),
        "decodes": steps["decodes"],
        "length_ps": rest * duration + g * sum_of_first(rest),
    }
    return {name: column[kept] for name, column in trimmed.items()}


def order_statistics(gaps: Gaps, ranks: Iterable[int]) -> dict[int, int]:
    """The r-th smallest gap for each rank r (0 = smallest), exactly. Every rank is below ``gaps.count``."""
    wanted = sorted(set(ranks))
    if not wanted:
        return {}
    ends = gaps.low + (gaps.terms - 1) * gaps.step
    lowest = min([int(a.min()) for a in (gaps.value, gaps.low) if len(a)])
    highest = max([int(a.max()) for a in (gaps.value, ends) if len(a)])
    counted = {lowest - 1: 0, highest: gaps.count}
    for pivot in _pivots(gaps, wanted):
        if lowest <= pivot < highest and pivot not in counted:
            counted[pivot] = gaps.at_most(pivot)
    bounds = sorted(counted)
    found: dict[int, int] = {}
    for above, most in pairwise(bounds):
        inside = [rank for rank in wanted if counted[above] <= rank < counted[most]]
        if inside:
            _select(gaps.within(above, most), above, most, counted[above], inside, found)
    return found


def _select(gaps: Gaps, above: int, most: int, base: int, ranks: list[int], found: dict[int, int]) -> None:
    """Finds the ranks that lie in (above, most], of which ``base`` gaps lie below; halves until few terms are left."""
    while most - above > 1:
        values = gaps.terms_in(above, most)
        if values is not None:
            ordered, cumulated = values
            places = np.searchsorted(cumulated, np.array(ranks) - base, side="right")
            found.update(zip(ranks, ordered[places].tolist(), strict=True))
            return
        middle = (above + most) // 2
        upper_base = base + gaps.at_most(middle) - gaps.at_most(above)
        lower = [rank for rank in ranks if rank < upper_base]
        upper = [rank for rank in ranks if rank >= upper_base]
        if lower and upper:
            _select(gaps.within(above, middle), above, middle, base, lower, found)
        if upper:
            above, base, ranks = middle, upper_base, upper
        else:
            most = middle
        gaps = gaps.within(above, most)
    found.update(dict.fromkeys(ranks, most))


def _pivots(gaps: Gaps, ranks: list[int]) -> list[int]:
    """Values that probably bracket the wanted ranks, from a strided sample of points and of progressions' middles.

    The share f below a value is off by about √(f(1−f)/n) in a sample of n; ``_DEVIATIONS`` times that on either side.
    """
    centre = gaps.low + (gaps.terms // 2) * gaps.step
    values = np.concatenate((gaps.value, centre))
    weights = np.concatenate((gaps.value_weight, gaps.weight * gaps.terms))
    stride = max(1, len(values) // _SAMPLE)
    values, weights = values[stride // 2 :: stride], weights[stride // 2 :: stride]
    order = np.argsort(values)  # equal values may come in any order: the pivots only cost or save time
    values, cumulated = values[order], np.cumsum(weights[order])
    pivots = []
    for rank, before in zip(ranks, [-2, *ranks], strict=False):
        if rank == before + 1:
            continue  # neighbours share a bracket
        share = rank / gaps.count
        margin = _DEVIATIONS * math.sqrt(share * (1 - share) / len(values))
        for side in (-margin, margin):
            place = int(np.searchsorted(cumulated, (share + side) * cumulated[-1]))
            pivots.append(int(values[min(place, len(values) - 1)]) - (1 if side < 0 else 0))
    return pivots
