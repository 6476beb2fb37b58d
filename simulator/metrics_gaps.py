"""Inter-token latency pooled over all tokens, from arithmetic progressions and never step by step.

A row of k steps gives the gap d to ``regular`` tokens and each of the gaps d + g, ..., d + (k−1)·g to ``decodes``
tokens. So the population is a set of weighted points and of weighted progressions lo, lo + step, ... (m terms), and
the number of gaps that are at most x is

    C(x) = Σ_points w·[value ≤ x] + Σ_progressions w·min(m, ⌊(x − lo)/step⌋ + 1)   (terms below 0 count 0).

The r-th smallest gap is the least x with C(x) > r: found by bisection over the integers, on ever fewer
progressions. What it costs depends on the rows, not on the steps they stand for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from simulator.metrics_exact import ratio, sum_of_first, sum_of_first_squares, sum_of_products
from simulator.metrics_steps import step_blocks
from simulator.run_log import IntColumn, ReplicaLog

_SAMPLE = 2048
_MARGIN = 0.02
"""Ranks are first bracketed by this share of the population, guessed from a sample: speed only, never the answer."""


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


def gaps_of(replicas: Iterable[ReplicaLog], from_ps: int | None = None) -> Gaps:
    """All inter-token gaps of a run; with ``from_ps`` those of steps that start at or after it.

    Gaps that are not one step long (``irregular_gaps_ps``) carry no time in the log and are always kept.
    """
    parts: list[tuple[IntColumn, ...]] = []
    totals = [0, 0, 0]
    for replica in replicas:
        for steps in step_blocks(replica):
            _add(steps if from_ps is None else _since(steps, from_ps), parts, totals)
        irregular = np.array(replica.irregular_gaps_ps, dtype=np.int64)
        none = irregular[:0]
        parts.append((irregular, np.ones_like(irregular), none, none, none, none))
        totals[0] += len(irregular)
        totals[1] += sum_of_products(irregular)
        totals[2] += sum_of_products(irregular, irregular)
    value, value_weight, low, step, terms, weight = map(np.concatenate, zip(*parts, strict=True))
    return Gaps(value, value_weight, low, step, terms, weight, *totals)


def _add(steps: dict[str, IntColumn], parts: list[tuple[IntColumn, ...]], totals: list[int]) -> None:
    k, d, g = steps["steps"], steps["duration_ps"], steps["growth_ps"]
    regular = steps["regular"]
    later = steps["decodes"] * (k > 1)  # tokens that get each further gap of the row
    index_sum, square_sum = sum_of_first(k), sum_of_first_squares(k)
    totals[0] += int(regular.sum()) + sum_of_products(later, k - 1)
    totals[1] += sum_of_products(regular, d) + sum_of_products(later, steps["length_ps"] - d)
    totals[2] += (
        sum_of_products(regular, d, d)
        + sum_of_products(later, k - 1, d, d)
        + sum_of_products(later, 2 * index_sum, d, g)
        + sum_of_products(later, square_sum, g, g)
    )
    second, last = d + g, d + (k - 1) * g
    first = regular > 0
    point = (later > 0) & ((g == 0) | (k == 2))
    many = (later > 0) & (g != 0) & (k > 2)
    parts.append(
        (
            np.concatenate((d[first], second[point])),
            np.concatenate((regular[first], (later * (k - 1))[point])),
            np.minimum(second, last)[many],
            np.abs(g)[many],
            (k - 1)[many],
            later[many],
        )
    )


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
    found = {}
    for rank in wanted:
        place = next(i for i in range(1, len(bounds)) if counted[bounds[i]] > rank)
        above, most = bounds[place - 1], bounds[place]
        found[rank] = _bisect(gaps.within(above, most), above, most, rank - counted[above])
    return found


def _bisect(gaps: Gaps, above: int, most: int, rank: int) -> int:
    """The least x in (above, most] such that more than ``rank`` gaps of (above, x] exist."""
    while most - above > 1:
        middle = (above + most) // 2
        reached = gaps.at_most(middle) - gaps.at_most(above)
        if reached > rank:
            most = middle
        else:
            rank -= reached
            above = middle
        gaps = gaps.within(above, most)
    return most


def _pivots(gaps: Gaps, ranks: list[int]) -> list[int]:
    """Values that probably bracket the wanted ranks, from a strided sample of points and of progressions' middles."""
    centre = gaps.low + (gaps.terms // 2) * gaps.step
    values = np.concatenate((gaps.value, centre))
    weights = np.concatenate((gaps.value_weight, gaps.weight * gaps.terms))
    stride = max(1, len(values) // _SAMPLE)
    values, weights = values[::stride], weights[::stride]
    order = np.argsort(values, kind="stable")
    values, cumulated = values[order], np.cumsum(weights[order])
    pivots = []
    for rank in ranks:
        for side in (-_MARGIN, _MARGIN):
            target = (rank / gaps.count + side * 4 * (rank / gaps.count) * (1 - rank / gaps.count)) * cumulated[-1]
            place = min(max(int(np.searchsorted(cumulated, target)), 0), len(values) - 1)
            pivots.append(int(values[place]) - (1 if side < 0 else 0))
    return pivots
