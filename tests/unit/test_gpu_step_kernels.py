"""Norm, rotary embedding and activation on the CPU through the shim, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_validate.cpu_backend import CpuBackend
from gpu_validate.number_formats import Bits, Floats, to_bits, to_floats
from gpu_validate.step_kernels import activation_launch, norm_launch, rope_launch, turns
from gpu_validate.variants import Variant

BF16 = Variant(64, 16, 4)
FP16 = Variant(64, 16, 4, "float16", "float16")


def drawn(shape: tuple[int, ...], dtype: str, seed: int) -> tuple[Bits, Floats]:
    bits = to_bits(np.random.default_rng(seed).standard_normal(shape), dtype)
    return bits, to_floats(bits, dtype)


def assert_close(bits: Bits, wanted: Floats, dtype: str, roundings: float) -> None:
    step = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype]
    np.testing.assert_allclose(to_floats(bits, dtype), wanted, rtol=roundings * step, atol=roundings * step * 1e-2)


@pytest.mark.parametrize("variant", [BF16, FP16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("width", [64, 2056])
def test_norm(variant: Variant, width: int) -> None:
    dtype = variant.dtype
    (x, x_numbers), (residual, old) = drawn((3, width), dtype, 1), drawn((3, width), dtype, 2)
    weight, by = drawn((width,), dtype, 3)
    output = np.full_like(x, variant.format.nan_bits)
    CpuBackend().run(norm_launch(output, residual, x, weight), variant)
    summed = to_floats(to_bits(old + x_numbers, dtype), dtype)
    assert (to_floats(residual, dtype) == summed).all()
    normed = summed / np.sqrt((summed**2).mean(axis=1, keepdims=True) + 1e-5) * by
    assert_close(output, normed, dtype, 1.01)


@pytest.mark.parametrize("variant", [BF16, FP16], ids=["bfloat16", "float16"])
def test_rope_turns_queries_and_keys_and_moves_values(variant: Variant) -> None:
    dtype, heads, kv_heads, dim = variant.dtype, 4, 2, variant.head_dim
    qkv, numbers = drawn((3, heads + 2 * kv_heads, dim), dtype, 4)
    q, k, v = (np.full((3, n, dim), variant.format.nan_bits, np.uint16) for n in (heads, kv_heads, kv_heads))
    positions, table = np.array([0, 7, 3], dtype=np.int32), turns(9, dim)
    CpuBackend().run(rope_launch(q, k, v, qkv, positions, table), variant)
    # As one complex number for each pair: turning is multiplying by e^(i angle).
    angles = positions[:, None] * 500_000.0 ** -(np.arange(0, dim, 2) / dim)
    pairs = (numbers[..., : dim // 2] + 1j * numbers[..., dim // 2 :]) * np.exp(1j * angles)[:, None]
    turned = np.concatenate((pairs.real, pairs.imag), axis=-1)
    assert_close(q, turned[:, :heads], dtype, 1.01)
    assert_close(k, turned[:, heads : heads + kv_heads], dtype, 1.01)
    assert (v == qkv[:, heads + kv_heads :]).all()


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("width", [64, 2064])
def test_activation(gated: bool, width: int) -> None:
    up, numbers = drawn((2, width * (2 if gated else 1)), "bfloat16", 5)
    output = np.full((2, width), 0xFFFF, np.uint16)
    CpuBackend().run(activation_launch(output, up, gated=gated), BF16)
    gate, passed = numbers[:, :width], numbers[:, width:]
    wanted = gate / (1 + np.exp(-gate)) * passed if gated else np.maximum(numbers, 0)
    assert_close(output, wanted, "bfloat16", 1.01)
