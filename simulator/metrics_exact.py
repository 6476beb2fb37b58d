"""Sums of 64-bit integers without error: the same total however many rows describe the same steps.

A sum S of products overflows 64 bits, but S mod 2^64 does not care: NumPy's integers wrap. A floating-point sum of
the same terms is off by at most a few units in 2^53, so as long as n·Π max|factor| < 2^109 it tells which multiple
of 2^64 was lost:

    S = low + 2^64 · round((estimate − low) / 2^64),  |estimate − S| < 2^63.

Beyond that bound the sum is taken in Python's integers.
"""

from __future__ import annotations

import numpy as np

from simulator.run_log import IntColumn

_WORD_MAGNITUDE = 2.0**62
_SAFE_MAGNITUDE = 2.0**109
_HALF_WORD = 1 << 63


def sum_of_products(*factors: IntColumn) -> int:
    """Σ_i Π_f factors[f][i], exactly. The columns have equal lengths; an empty sum is 0."""
    if len(factors[0]) == 0:
        return 0
    bound = float(len(factors[0]))
    for factor in factors:
        bound *= max(float(factor.max()), -float(factor.min()))
    low = _wrapping_sum(factors)
    if bound < _WORD_MAGNITUDE:
        return low  # nothing can have wrapped
    if bound >= _SAFE_MAGNITUDE:
        return _slow_sum_of_products(factors)
    estimate = factors[0].astype(np.float64)
    for factor in factors[1:]:
        estimate *= factor
    return low + ((int(estimate.sum()) - low + _HALF_WORD) >> 64 << 64)


def _wrapping_sum(factors: tuple[IntColumn, ...]) -> int:
    product = factors[0]
    for factor in factors[1:]:
        product = product * factor
    return int(product.sum(dtype=np.int64))


def _slow_sum_of_products(factors: tuple[IntColumn, ...]) -> int:
    total = 0
    for values in zip(*(factor.tolist() for factor in factors), strict=True):
        product = 1
        for value in values:
            product *= value
        total += product
    return total


def ratio(numerator: int, denominator: int) -> float:
    """The correctly rounded quotient of two integers of any size; 0 where the denominator is 0."""
    return numerator / denominator if denominator else 0.0


def sum_of_first(steps: IntColumn) -> IntColumn:
    """Σ_{i<k} i = k(k−1)/2, by element."""
    return steps * (steps - 1) // 2


def sum_of_first_squares(steps: IntColumn) -> IntColumn:
    """Σ_{i<k} i² = (k−1)k(2k−1)/6, by element; exact for k < 2^20."""
    return (steps - 1) * steps * (2 * steps - 1) // 6
