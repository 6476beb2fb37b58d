"""The CPU shim on small kernels of its own: what it lets pass, what it refuses, and its numbers bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpu_validate.backend import KernelError
from gpu_validate.launches import Launch
from gpu_validate.number_formats import to_bits, to_floats
from gpu_validate.variants import Variant
from tests.kernel_support import needs_compiler, quick_backend

pytestmark = needs_compiler

# One library for all: `what` chooses what each thread does. in and out hold a float32 a thread.
KERNEL = """
#include "machine.h"
KERNEL __launch_bounds__(64)
small(float* out, const float* in, int what) {
  SHARED_MEMORY(bytes);
  float* shared = reinterpret_cast<float*>(bytes);
  const int i = threadIdx.x, lane = i % 32;
  float value = load_global(in + i);
  if (what == 0) {  // a block reverses its numbers through shared memory
    store_shared(shared + i, value);
    block_barrier();
    value = load_shared(shared + 63 - i);
  }
  if (what == 1) {  // the same without a barrier
    store_shared(shared + i, value);
    value = load_shared(shared + 63 - i);
  }
  if (what == 2) {  // within a warp, with its barrier, then a write over what others read
    store_shared(shared + i, value);
    warp_barrier();
    value = load_shared(shared + (i ^ 1));
    warp_barrier();
    store_shared(shared + i, value);
  }
  if (what == 3) {  // across warps, with a warp's barrier only
    store_shared(shared + i, value);
    warp_barrier();
    value = load_shared(shared + 63 - i);
  }
  if (what == 4) {  // a shuffle is no barrier for memory
    store_shared(shared + i, value);
    value = from_lane_xor(value, 1);
    value = load_shared(shared + (i ^ 1));
  }
  if (what == 5) value = load_shared(shared + i);  // never written
  if (what == 6) value = load_global(in + i + 1);  // the last thread is outside
  if (what == 7) store_global(const_cast<float*>(in) + i, value);
  if (what == 8 && i != 5) block_barrier();
  if (what == 9) { if (lane < 16) value = from_lane_xor(value, 1); else any_lane(true); }
  if (what >= 10 && what < 14) {  // 16 bytes a thread, asynchronously
    Vector* mine = reinterpret_cast<Vector*>(bytes) + i;
    copy_async(mine, in + i / 4 * 4, what != 13 || i < 32);
    copies_commit();
    if (what != 10) copies_wait<0>();
    if (what != 12) block_barrier();
    value = load_shared(shared + i * 4 + 4 * (what == 12 ? (i == 0) : 0) + i % 4);
    copies_wait<0>();
  }
  if (what == 14) {  // two groups, the older one waited for
    copy_async(reinterpret_cast<Vector*>(bytes) + i, in, true);
    copies_commit();
    copy_async(reinterpret_cast<Vector*>(bytes) + 64 + i, in + 4, true);
    copies_commit();
    copies_wait<1>();
    value = load_shared(shared + i * 4);
    copies_wait<0>();
  }
  if (what == 15) value = power_of_two(value);
  if (what == 16) copy_async(reinterpret_cast<Vector*>(bytes) + i, in, true);  // and nobody waits
  if (what == 17) load_shared(shared + 4096);
  if (what == 18) value = load_global(reinterpret_cast<const float*>(reinterpret_cast<const u8*>(in) + 2));
  store_global(out + (what == 19 ? 0 : blockIdx.x * 64) + i, value);
}
EXPORT(small)
"""

REFUSED = {
    1: "race: shared byte",
    3: "race: shared byte",
    4: "race: shared byte",
    6: "outside the arrays",
    7: "which is an input",
    8: "others never reach",
    9: "while other lanes of the warp",
    10: "read before its copy was waited for",
    12: "race: shared byte",
    16: "nobody waited for",
    17: "shared memory at",
    18: "not aligned",
    19: "where block 0 has written",
}


def _run(what: int, values: np.ndarray, folder: Path, seed: int = 0) -> np.ndarray:
    backend = quick_backend(seed=seed, folder=folder, texts={"append": KERNEL})
    blocks = 2 if what == 19 else 1
    out = np.zeros(64 * blocks, dtype=np.float32)
    arguments = (out, values.astype(np.float32), np.int32(what))
    backend.run(Launch("append", (blocks, 1, 1), 64, 4096, arguments, (0,)), Variant())
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


VALUES = np.arange(64.0)


def test_what_is_right_passes_whatever_the_order_of_threads(folder: Path) -> None:
    for seed in range(5):
        assert np.array_equal(_run(0, VALUES, folder, seed), VALUES[::-1])
        assert np.array_equal(_run(2, VALUES, folder, seed), VALUES.reshape(-1, 2)[:, ::-1].ravel())
        assert np.array_equal(_run(11, VALUES, folder, seed), VALUES)
        assert np.array_equal(_run(14, VALUES, folder, seed), np.zeros(64))


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_gpu_forgives_by_luck_is_refused(what: int, folder: Path) -> None:
    for seed in range(3):
        with pytest.raises(KernelError, match=REFUSED[what]):
            _run(what, VALUES, folder, seed)


def test_unwritten_shared_memory_is_not_a_number_and_dead_copies_are_zeros(folder: Path) -> None:
    assert np.isnan(_run(5, VALUES, folder)).all()
    assert np.array_equal(_run(13, VALUES, folder), np.where(VALUES < 32, VALUES, 0))


def test_powers_of_two_round_as_a_gpu_may(folder: Path) -> None:
    exponents = np.linspace(-130.0, 4.0, 64).astype(np.float32)
    expected = np.exp2(exponents.astype(np.float64))
    assert np.allclose(_run(15, exponents, folder), np.where(expected < 2.0**-126, 0, expected), rtol=2.0**-22)
    assert _run(15, np.full(64, -np.inf), folder)[0] == 0.0


NUMBERS = """
#include "machine.h"
KERNEL __launch_bounds__(32)
numbers(u32* packed, float* unpacked, const float* in, const u32* bits, int count) {
  for (int i = threadIdx.x; i < count; i += 32) {
    store_global(packed + i, pack<DTYPE>(load_global(in + i), load_global(in + i)));
    const u32 number = load_global(bits + i);
    if (KV_DTYPE == FLOAT8) store_global(unpacked + i, unpack<FLOAT16>(halves_of_float8(number) & 0xffff));
    else store_global(unpacked + i, unpack<DTYPE>(number));
  }
}
EXPORT(numbers)
"""


@pytest.mark.parametrize(
    ("dtype", "kv_dtype"), [("float16", "float16"), ("bfloat16", "bfloat16"), ("float16", "fp8_e4m3")]
)
def test_the_shims_numbers_are_numpys_bit_for_bit(dtype: str, kv_dtype: str, tmp_path: Path) -> None:
    variant, count = Variant(dtype=dtype, kv_dtype=kv_dtype), 256 if kv_dtype == "fp8_e4m3" else 65536
    bits = np.arange(count, dtype=np.uint32)
    rng = np.random.default_rng(0)
    floats = (rng.standard_normal(count) * 2.0 ** rng.uniform(-30, 14, count)).astype(np.float32)
    floats[: count // 2] = np.linspace(1, 2, count // 2, dtype=np.float32)  # many ties
    packed, unpacked = np.zeros(count, dtype=np.uint32), np.zeros(count, dtype=np.float32)
    arguments = (packed, unpacked, floats, bits, np.int32(count))
    quick_backend(folder=tmp_path, texts={"append": NUMBERS}).run(
        Launch("append", (1, 1, 1), 32, 0, arguments, (0, 1)), variant
    )
    wanted = to_bits(floats.astype(np.float64), dtype).astype(np.uint32)
    assert np.array_equal(packed, wanted | wanted << np.uint32(16))
    with np.errstate(invalid="ignore"):
        numbers = to_floats(bits.astype(variant.kv_format.storage), kv_dtype).astype(np.float32)
        assert np.array_equal(unpacked, numbers, equal_nan=True)
