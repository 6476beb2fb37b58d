"""The knee: the highest rate of the grid below which every rate passes, found with few of them.

A pure search over whole numbers, told nothing of rates or servers: it yields an index and is sent the verdict on it.
It gallops away from a first guess, halves the rest, and then looks below what it found for a rate that fails although
a higher one passes (near the limit, verdicts of finite runs are not monotone), as long as passes there are close ones.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

CLOSE = 0.9
"""A pass whose worst latency is above this share of its limit is close: a lower rate might still fail."""
GUARD = 2
"""Rates below the knee that are looked at in any case."""
MOST_GUARDS = 8
RANGE = 160
"""A knee this many steps (a factor of 113) below the highest stable rate is no knee: the server serves nobody well."""
_FIRST_STEP = 4


@dataclass(frozen=True)
class Verdict:
    """Of one rate.

    Attributes:
        passed: whether every limit is met and the backlog does not grow.
        severity: the largest of value / limit; infinite where it failed for another reason.
    """

    passed: bool
    severity: float = 0.0


@dataclass(frozen=True)
class Knee:
    """What a search found.

    Attributes:
        index: of the knee; None where no rate in range passes.
        failing: the lowest rate that is known to fail.
        tried: all verdicts, by index.
    """

    index: int | None
    failing: int
    tried: dict[int, Verdict] = field(default_factory=dict)


Search = Generator[int, Verdict, Knee]


def find_knee(top: int, hint: int | None = None) -> Search:
    """Searches indices up to ``top``, the highest rate that can be stable at all (``top + 1`` counts as failing).

    Args:
        hint: where the knee is probably.
    """
    tried: dict[int, Verdict] = {}
    low, high = yield from _bracket(tried, top, hint)
    if low is not None:
        low, high = yield from _halve(tried, low, high)
        low, high = yield from _guard(tried, low, high, top - RANGE)
    return Knee(low, high, tried)


def _look(tried: dict[int, Verdict], index: int) -> Generator[int, Verdict, bool]:
    if index not in tried:
        tried[index] = yield index
    return tried[index].passed


def _bracket(tried: dict[int, Verdict], top: int, hint: int | None) -> Generator[int, Verdict, tuple[int | None, int]]:
    """(an index that passes, or None; a higher one that fails), in strides that double."""
    step, bottom = _FIRST_STEP if hint is None else 1, top - RANGE
    at = top - step if hint is None else max(bottom, min(hint, top))  # what is found does not depend on the hint
    if (yield from _look(tried, at)):
        if hint is None:
            return at, top + 1
        low = at
        while low < top:
            at = min(low + step, top)
            if not (yield from _look(tried, at)):
                return low, at
            low, step = at, step * 2
        return low, top + 1
    return (yield from _down(tried, at, step, bottom))


def _down(
    tried: dict[int, Verdict], failing: int, step: int, bottom: int
) -> Generator[int, Verdict, tuple[int | None, int]]:
    high = failing
    while high > bottom:
        step *= 2
        at = max(high - step, bottom)
        if (yield from _look(tried, at)):
            return at, high
        high = at
    return None, high


def _halve(tried: dict[int, Verdict], low: int, high: int) -> Generator[int, Verdict, tuple[int, int]]:
    while high - low > 1:
        middle = (low + high) // 2
        if (yield from _look(tried, middle)):
            low = middle
        else:
            high = middle
    return low, high


def _guard(
    tried: dict[int, Verdict], low: int, high: int, bottom: int
) -> Generator[int, Verdict, tuple[int | None, int]]:
    """Looks below a knee for a failure; where there is one, the knee lies below it."""
    below, looked = low - 1, 0
    while below > bottom and looked < MOST_GUARDS:
        if not (yield from _look(tried, below)):
            passing, high = yield from _down(tried, below, 1, bottom)
            if passing is None:
                return None, high
            low, high = yield from _halve(tried, passing, high)
            below, looked = low - 1, 0
            continue
        looked += 1
        if looked >= GUARD and tried[below].severity <= CLOSE:
            break
        below -= 1
    return low, high
