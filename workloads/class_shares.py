"""Which class each arrival belongs to, by weight."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workloads.workload import IntColumn


def class_by_weight(weights: Sequence[float], n: int, rng: np.random.Generator) -> IntColumn:
    """Indices into ``weights`` (>= 0, not all 0) for ``n`` arrivals; one random number each."""
    edges = np.cumsum(weights) / np.sum(weights)
    picked = np.searchsorted(edges, rng.random(n), side="right")
    # Rounding may leave the last edge below 1: such a number belongs to the last class that has a weight.
    last = int(np.flatnonzero(weights)[-1])
    return np.minimum(picked, last).astype(np.int64)
