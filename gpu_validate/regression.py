"""Least squares of relative errors with coefficients that cannot be negative. NumPy alone."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_KNEE = 1.6  # sides closer than this factor: the point lies on the knee, where neither side alone explains it
_ROUNDS = 30


def non_negative(columns: Floats, target: Floats, scale: Floats | None = None) -> Floats:
    """Coefficients >= 0 with the least sum of ((columns · x - target) / scale)², ``scale`` being ``target`` if None.

    Few columns, so that every set of positive coefficients is tried: the best feasible one is the optimum.
    """
    by = target if scale is None else scale
    scaled, wanted = columns / by[:, None], target / by
    count = columns.shape[1]
    best, best_error = np.zeros(count), float((wanted**2).sum())
    for size in range(1, count + 1):
        for chosen in itertools.combinations(range(count), size):
            part = scaled[:, chosen]
            if np.linalg.matrix_rank(part) < size:
                continue
            solved = np.linalg.lstsq(part, wanted, rcond=None)[0]
            error = float(((part @ solved - wanted) ** 2).sum())
            if (solved >= 0).all() and error < best_error - 1e-15:
                best, best_error = np.zeros(count), error
                best[list(chosen)] = solved
    return best


@dataclass(frozen=True)
class TwoSided:
    """time = constant + max(bytes · byte_s, flops · flop_s).

    Attributes:
        by_bytes, by_flops: points that each side explains, those on the knee apart; fewer than three tell nothing.
    """

    constant_s: float
    byte_s: float
    flop_s: float
    by_bytes: int
    by_flops: int

    def seconds(self, moved: float, flops: float) -> float:
        return self.constant_s + max(moved * self.byte_s, flops * self.flop_s)


def two_sided(moved: Floats, flops: Floats, seconds: Floats, *, start: tuple[float, float]) -> TwoSided:
    """Fits both sides of a roofline at once: points go to the side that rules them, until none changes its side.

    Args:
        start: seconds a byte and a FLOP to begin with, such as the data sheet's.
    """
    byte_s, flop_s = start
    sides: Floats | None = None
    fitted = TwoSided(0.0, byte_s, flop_s, 0, 0)
    for _ in range(_ROUNDS):
        ratio = (moved * byte_s) / np.maximum(flops * flop_s, 1e-300)
        now = np.where(ratio >= _KNEE, 1.0, np.where(ratio <= 1 / _KNEE, -1.0, 0.0))
        if sides is not None and (now == sides).all():
            break
        sides = now
        used = sides != 0
        if not used.any():
            break
        columns = np.stack((np.ones(len(moved)), moved * (sides > 0), flops * (sides < 0)), axis=1)[used]
        constant, by_bytes, by_flops = non_negative(columns, seconds[used])
        counts = int((sides > 0).sum()), int((sides < 0).sum())
        byte_s, flop_s = float(by_bytes) or byte_s, float(by_flops) or flop_s
        fitted = TwoSided(float(constant), byte_s, flop_s, *counts)
    return fitted
