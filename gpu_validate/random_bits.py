"""Large arrays of random numbers on the GPU, as bits: zeros would be read, multiplied and powered faster than data."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gpu_validate.number_formats import FORMATS, Bits, to_bits

_CHUNK = 1 << 20  # numbers drawn; the rest repeats them


def random_bits(cupy: Any, shape: tuple[int, ...], dtype: str, *, seed: int = 0, deviation: float = 1.0) -> Any:
    """An array of normal numbers in ``dtype`` on the GPU."""
    size = int(np.prod(shape, dtype=np.int64))
    array = cupy.empty(size, dtype=FORMATS[dtype].storage)
    chunk = _drawn(min(size, _CHUNK), dtype, seed, deviation)
    array[: len(chunk)] = cupy.asarray(chunk)
    filled = len(chunk)
    while filled < size:  # doubled by copies within the device
        more = min(filled, size - filled)
        array[filled : filled + more] = array[:more]
        filled += more
    return array.reshape(shape)


@functools.lru_cache(maxsize=64)  # layers repeat the same few arrays
def _drawn(count: int, dtype: str, seed: int, deviation: float) -> Bits:
    return to_bits(np.random.default_rng(seed).standard_normal(count) * deviation, dtype)
