"""Are the systems in the right order at every rate of the paper's curves?

At each rate that a curve of the paper has a point at, each pair of systems is compared where the paper tells them
apart: by more than ``APART`` of the smaller latency. A paper's curve is linear between its points; above its last one
it has left the plot, and is slower than anything that is still on it; below its first one nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, pairwise

APART = 0.1
"""Curves closer than this are not told apart: the paper's unloaded systems differ by a few percent either way."""
TIE = 0.01
"""Ours may be this much on the wrong side: two unloaded systems take the same steps."""
OFF_THE_PLOT_S = 2.0
"""Normalised latencies above this are alike: the queue grows as long as the trace lasts."""

Curve = list[tuple[float, float]]
"""(rate, normalised latency in s a token), by rate."""


@dataclass(frozen=True)
class Comparison:
    """One pair at one rate: which system the paper has slower, and what ours gives for both."""

    rate_rps: float
    slower: str
    faster: str
    paper: tuple[float | None, float | None]  # slower, faster; None: off the plot
    ours: tuple[float, float]

    @property
    def right(self) -> bool:
        """Whether ours has the same order, or both are off the plot or alike."""
        slower, faster = (min(latency, OFF_THE_PLOT_S) for latency in self.ours)
        return slower >= faster * (1 - TIE)


def at_rate(curve: Curve, rate_rps: float) -> tuple[bool, float | None]:
    """(known, latency): linear between points; None is off the plot."""
    if rate_rps < curve[0][0]:
        return False, None
    for (left, low), (right, high) in pairwise(curve):
        if left <= rate_rps <= right:
            share = (rate_rps - left) / (right - left) if right > left else 0.0
            return True, low + share * (high - low)
    return True, curve[0][1] if len(curve) == 1 and rate_rps == curve[0][0] else None


def compare(paper: dict[str, Curve], ours: Callable[[str, float], float]) -> list[Comparison]:
    """All pairs that the paper tells apart, at all rates of its curves.

    Args:
        paper: the curves of one plot, by system.
        ours: (system, rate) to our normalised latency.
    """
    rates = sorted({rate for curve in paper.values() for rate, _ in curve})
    found = []
    for rate in rates:
        latencies: dict[str, float | None] = {}
        for system, curve in paper.items():
            known, latency = at_rate(curve, rate)
            if known:
                latencies[system] = latency
        for one, other in combinations(latencies, 2):
            pair = _slower_first(one, other, latencies[one], latencies[other])
            if pair is not None:
                slower, faster = pair
                mine = (ours(slower, rate), ours(faster, rate))
                found.append(Comparison(rate, slower, faster, (latencies[slower], latencies[faster]), mine))
    return found


def _slower_first(one: str, other: str, first: float | None, second: float | None) -> tuple[str, str] | None:
    if first is None and second is None:
        return None
    if first is None or second is None:
        return (one, other) if first is None else (other, one)
    if abs(first - second) <= APART * min(first, second):
        return None
    return (one, other) if first > second else (other, one)
