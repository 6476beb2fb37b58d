"""The fewest replicas that serve a rate: a pure search over counts, as ``knee`` is over rates."""

from __future__ import annotations

from collections.abc import Generator

from simulator.planner.capacity.knee import Verdict


def fewest_replicas(least: int, guess: int, most: int) -> Generator[int, Verdict, int | None]:
    """The smallest count from ``least`` to ``most`` that passes while one less does not; None where none passes.

    Args:
        least: fewer cannot serve the rate (they would be saturated).
        guess: where to begin.
    """
    if least > most:
        return None
    tried: dict[int, bool] = {}

    def look(count: int) -> Generator[int, Verdict, bool]:
        if count not in tried:
            verdict = yield count
            tried[count] = verdict.passed
        return tried[count]

    at, step = min(max(guess, least), most), 1
    if (yield from look(at)):
        high, low = at, least - 1
        while high > least:
            at = max(high - step, least)
            if not (yield from look(at)):
                low = at
                break
            high, step = at, step * 2
    else:
        low, high = at, 0
        while low < most:
            at = min(low + step, most)
            if (yield from look(at)):
                high = at
                break
            low, step = at, step * 2
        if not high:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        if (yield from look(middle)):
            high = middle
        else:
            low = middle
    return high
