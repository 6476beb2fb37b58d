"""Named random streams: one independent generator per consumer, so that adding one shifts no other."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Streams:
    """``Streams(seed)("arrivals")`` is a fresh PCG64 generator at the start of the stream of that name.

    The stream depends on the seed and the name alone: policies that are compared under one seed see common
    random numbers, and the same call gives the same numbers in any process.
    """

    seed: int

    def __call__(self, name: str) -> np.random.Generator:
        digest = hashlib.sha256(name.encode()).digest()
        words = [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4)]
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, *words])))
