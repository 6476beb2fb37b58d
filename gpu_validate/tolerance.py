"""What a right kernel may answer: the exact attention of a case in float64, and how far from it rounding can lead.

With weights w_i = softmax(s)_i, s_i = scale k_scale q . k_i, and per output number A = sum_i w_i |v_i|::

    |out - exact| <= (2 delta + pi + sigma) A + pi_0 sum_i |v_i| + rho |exact| + rho_0 + the products of these terms

* delta = max_i |error of s_i| <= (2 head_dim + 8) 2^-24 max_i (scale k_scale sum_d |q_d k_id|): head_dim products
  summed in float32 by tensor cores, which may cut where they should round (2^-23 a sum), the float32 scale, the base of
  the power of two and its own error. A weight is off by e^delta, and so is their sum: twice delta. bfloat16 queries
  over fp8 keys are taken as float16: up to 2^-25 more for each number below that format's normal range.
* pi = error of a weight that is rounded for the second product: 2^-11 in float16; 2^-16 in bfloat16, whose weights are
  multiplied in two parts. pi_0 = half of float16's smallest step, 2^-25, for weights below its normal range (bfloat16:
  0); the largest weight of each warp counts 1 before the division, so that the sum is at least 1.
* sigma = error of two sums in float32 (2^-23 each step): `summation_depth` steps one after another, for numerator and
  denominator each.
* rho = roundoff of the output format, rho_0 = half its smallest step.

No term is fitted, and none grows with a kernel's mistakes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpu_validate.cases import Case
from gpu_validate.number_formats import Floats, to_floats
from gpu_validate.variants import Variant

_FLOAT32_STEP = 2.0**-23


@dataclass(frozen=True)
class Expected:
    """Attention [batch, num_heads, head_dim] in float64, and the largest error that rounding explains."""

    exact: Floats
    tolerance: Floats


def expected(case: Case, variant: Variant) -> Expected:
    """The exact result of a case (zeros for a sequence of no token) and its tolerance, by the formula above."""
    queries = to_floats(case.queries, variant.dtype)
    exact, tolerance = np.zeros_like(queries), np.zeros_like(queries)
    for sequence, length in enumerate(case.lengths):
        if length == 0:
            continue
        first = max(0, length - variant.window) if variant.window else 0
        keys = case.keys[sequence][first:] * case.k_scale
        values = case.values[sequence][first:] * case.v_scale
        for head in range(queries.shape[1]):
            kv_head = head // variant.group
            exact[sequence, head], tolerance[sequence, head] = _head(
                queries[sequence, head], keys[:, kv_head], values[:, kv_head], case.scale, variant
            )
    return Expected(exact, tolerance)


def summation_depth(tokens: int, variant: Variant) -> int:
    """Additions one after another in a numerator or denominator: a warp's tokens, then its teams, then the splits."""
    teams, tiles = variant.geometry().teams, -(-tokens // 16) + 1  # a window may begin within a tile
    share = -(-tiles // variant.splits)
    return 16 * -(-share // teams) + teams + variant.splits + 5  # 5: shuffles, rescaling


def _head(query: Floats, keys: Floats, values: Floats, scale: float, variant: Variant) -> tuple[Floats, Floats]:
    scores = keys @ query * scale
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    exact, size = weights @ values, weights @ np.abs(values)
    largest = float((np.abs(keys) @ np.abs(query)).max()) * scale
    delta = (2 * variant.head_dim + 8) * 2.0**-24 * largest
    if variant.dtype != "float16" and variant.kv_dtype == "fp8_e4m3":
        delta += 2.0**-25 * float(np.abs(keys).sum(axis=1).max()) * scale
    halves = variant.dtype == "float16" or variant.kv_dtype == "fp8_e4m3"  # the format of the second product
    pi, pi_0 = (2.0**-11, 2.0**-25) if halves else (2.0**-16, 0.0)
    sigma = 2 * summation_depth(len(keys), variant) * _FLOAT32_STEP
    relative = (1 + pi) * np.exp(2 * delta) * (1 + sigma) - 1
    before_rounding = relative * size + pi_0 * np.abs(values).sum(axis=0)
    output = variant.format
    rounded = output.roundoff * (np.abs(exact) + before_rounding) + output.spacing_at_zero / 2
    return exact, before_rounding + rounded
