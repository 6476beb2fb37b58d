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
class Exact:
    """Attention of a case in float64, and what its tolerance is made of; arrays [batch, num_heads, head_dim].

    Attributes:
        output: zeros for a sequence of no token.
        weighted: A, the weighted sum of sizes. plain: the sum of sizes without weights.
        score_error: delta, [batch, num_heads, 1].
        tokens: that each sequence sees.
    """

    output: Floats
    weighted: Floats
    plain: Floats
    score_error: Floats
    tokens: tuple[int, ...]


def exact_attention(case: Case, variant: Variant) -> Exact:
    """The reference: nothing of it knows tiles, tables or splits."""
    queries = to_floats(case.queries, variant.dtype)
    output, weighted, plain = np.zeros((3, *queries.shape))
    delta, tokens = np.zeros((*queries.shape[:2], 1)), []
    for sequence, length in enumerate(case.lengths):
        first = max(0, length - variant.window) if variant.window else 0
        tokens.append(int(length) - first)
        for kv_head in range(case.kv_heads if length else 0):
            heads = sequence, slice(kv_head * variant.group, (kv_head + 1) * variant.group)
            keys = case.keys[sequence][first:, kv_head] * case.k_scale
            values = case.values[sequence][first:, kv_head] * case.v_scale
            scores = queries[heads] @ keys.T * case.scale
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            output[heads], weighted[heads] = weights @ values, weights @ np.abs(values)
            plain[heads] = np.abs(values).sum(axis=0)
            delta[heads] = _score_error(queries[heads], keys, case.scale, variant)
    return Exact(output, weighted, plain, delta, tuple(tokens))


def tolerance(exact: Exact, variant: Variant) -> Floats:
    """The largest error that rounding explains, by the formula above; 0 for a sequence of no token."""
    halves = variant.dtype == "float16" or variant.kv_dtype == "fp8_e4m3"  # the format of the second product
    pi, pi_0 = (2.0**-11, 2.0**-25) if halves else (2.0**-16, 0.0)
    sigma = np.array([2 * summation_depth(n, variant) * _FLOAT32_STEP for n in exact.tokens])[:, None, None]
    relative = (1 + pi) * np.exp(2 * exact.score_error) * (1 + sigma) - 1
    before_rounding = relative * exact.weighted + pi_0 * exact.plain
    output = variant.format
    rounded = output.roundoff * (np.abs(exact.output) + before_rounding) + output.spacing_at_zero / 2
    return np.where(np.array(exact.tokens)[:, None, None] > 0, before_rounding + rounded, 0.0)


def summation_depth(tokens: int, variant: Variant) -> int:
    """Additions one after another in a numerator or denominator: a warp's tokens, then its teams, then the splits."""
    teams, tiles = variant.geometry().teams, -(-tokens // 16) + 1  # a window may begin within a tile
    share = -(-tiles // variant.splits)
    return 16 * -(-share // teams) + teams + variant.splits + 5  # 5: shuffles, rescaling


def _score_error(queries: Floats, keys: Floats, scale: float, variant: Variant) -> Floats:
    largest = (np.abs(queries) @ np.abs(keys).T).max(axis=1, keepdims=True) * scale
    delta: Floats = (2 * variant.head_dim + 8) * 2.0**-24 * largest
    if variant.dtype != "float16" and variant.kv_dtype == "fp8_e4m3":
        delta = delta + 2.0**-25 * float(np.abs(keys).sum(axis=1).max()) * scale
    return delta
