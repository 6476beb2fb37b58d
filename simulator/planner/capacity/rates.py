"""The fixed grid of rates on which a capacity search looks, 3 % apart."""

from __future__ import annotations

import math
from dataclasses import dataclass

STEP = 1.03
_DIGITS = 6


@dataclass(frozen=True)
class RateGrid:
    """Rate k is ``anchor_rps`` · 1.03^k for every whole k, rounded to six significant digits.

    The anchor is the rate that is asked for, so that it is on the grid itself (k = 0).
    """

    anchor_rps: float

    def rate_rps(self, index: int) -> float:
        """The rate of that index."""
        rate = self.anchor_rps * STEP**index
        return float(f"{rate:.{_DIGITS}g}") if index else self.anchor_rps

    def highest_at_most(self, rate_rps: float) -> int:
        """The index of the highest rate of the grid that is not above ``rate_rps``, which is positive."""
        index = math.floor(math.log(rate_rps / self.anchor_rps) / math.log(STEP)) + 1
        while self.rate_rps(index) > rate_rps:
            index -= 1
        return index


def rate_text(rate_rps: float) -> str:
    """Four significant digits: ``23.88``, ``37,760``."""
    return f"{rate_rps:,.0f}" if rate_rps >= 1000 else f"{rate_rps:.4g}"
