"""Numbers as a GPU stores them: raw bits of float16, bfloat16 and fp8 (e4m3), to and from float64. NumPy alone.

Rounding is to nearest, ties to even. fp8_e4m3 is the finite kind that CUDA calls e4m3fn: no infinity, 0x7f and 0xff are
not a number, largest 448; larger values saturate, as vLLM's cache kernels do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[Any]  # uint16, or uint8 for fp8
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NumberFormat:
    """One storage format.

    Attributes:
        macro: its name in the kernels.
        precision_bits: significand bits, the leading one included; rounding errs by 2^-precision_bits of a number.
        smallest_exponent: exponent of the smallest normal number.
    """

    name: str
    macro: str
    precision_bits: int
    smallest_exponent: int
    storage: type[np.unsignedinteger[Any]]

    @property
    def roundoff(self) -> float:
        """Largest relative error of rounding a number in the normal range."""
        return 2.0**-self.precision_bits

    @property
    def spacing_at_zero(self) -> float:
        """Distance of neighbouring subnormal numbers; rounding errs by half of it."""
        return 2.0 ** (self.smallest_exponent - self.precision_bits + 1)

    @property
    def size_bytes(self) -> int:
        return int(np.dtype(self.storage).itemsize)

    @property
    def nan_bits(self) -> int:
        """All bits set: not a number in each of these formats."""
        return int(np.iinfo(self.storage).max)


FORMATS = {
    "float16": NumberFormat("float16", "FLOAT16", 11, -14, np.uint16),
    "bfloat16": NumberFormat("bfloat16", "BFLOAT16", 8, -126, np.uint16),
    "fp8_e4m3": NumberFormat("fp8_e4m3", "FLOAT8", 4, -6, np.uint8),
}
_FP8_LARGEST = 448.0


def to_floats(bits: Bits, name: str) -> Floats:
    """The numbers that these bits stand for, exactly."""
    if name == "float16":
        return bits.view(np.float16).astype(np.float64)
    if name == "bfloat16":
        with np.errstate(invalid="ignore"):  # signalling not-a-numbers
            return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return _fp8_values()[bits]


def to_bits(values: Floats, name: str) -> Bits:
    """The nearest numbers of the format, as bits. Not-a-number becomes all bits set."""
    values = np.asarray(values, dtype=np.float64)
    if name == "float16":
        bits: Bits = values.astype(np.float16).view(np.uint16)
    elif name == "bfloat16":
        bits = _bfloat16_bits(values)
    else:
        bits = _fp8_bits(values)
    return np.where(np.isnan(values), FORMATS[name].nan_bits, bits).astype(FORMATS[name].storage)


def round_to(values: Floats, name: str) -> Floats:
    """The nearest numbers of the format, as floats."""
    return to_floats(to_bits(values, name), name)


def _bfloat16_bits(values: Floats) -> Bits:
    # float64 to float32 to bfloat16 would round twice: cut to float32 towards odd first, which keeps ties apart.
    with np.errstate(over="ignore", invalid="ignore"):
        single = values.astype(np.float32)
    bits = single.view(np.uint32).copy()
    inexact = np.isfinite(single) & (single.astype(np.float64) != values)
    towards_zero = np.where(inexact & (np.abs(single.astype(np.float64)) > np.abs(values)), bits - 1, bits)
    odd = np.where(inexact, towards_zero | 1, towards_zero).astype(np.uint64)
    rounded = (odd + 0x7FFF + ((odd >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)
    return np.asarray(rounded.astype(np.uint16))


def _fp8_values() -> Floats:
    bits = np.arange(256)
    exponent, fraction = (bits >> 3) & 15, bits & 7
    size = np.where(exponent > 0, np.ldexp(1 + fraction / 8, exponent - 7), np.ldexp(fraction / 8, -6))
    size = np.where((bits & 0x7F) == 0x7F, np.nan, size)
    return np.asarray(np.where(bits & 0x80, -size, size))


def _fp8_bits(values: Floats) -> Bits:
    size = np.minimum(np.nan_to_num(np.abs(values), nan=0.0, posinf=_FP8_LARGEST), _FP8_LARGEST)
    exponent = np.where(size == 0.0, -6, np.maximum(np.frexp(size)[1] - 1, -6))  # 2^exponent <= size if normal
    steps = np.rint(np.ldexp(size, 3 - exponent)).astype(np.int64)  # of 2^(exponent - 3): 8 to 16, fewer below it
    # 8 steps are the leading bit; 16 carry into the exponent, whose field this sum forms by itself.
    bits = np.minimum(steps + (exponent + 6) * 8, 0x7E)
    return np.asarray(bits | np.where(np.signbit(values), 0x80, 0))
