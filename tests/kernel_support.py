"""What tests of the kernels share: sources with a planted mistake, small kernels of their own, one verdict per case."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from gpu_validate import kernel_source
from gpu_validate.append_case import AppendCase, append_shape, make_append_case
from gpu_validate.backend import KernelError
from gpu_validate.cases import Case, Shape, contiguous_case, make_case
from gpu_validate.cpu_backend import Counters, CpuBackend
from gpu_validate.launches import Launch
from gpu_validate.number_formats import to_bits, to_floats
from gpu_validate.tolerance import Exact, exact_attention, tolerance
from gpu_validate.variants import Variant

needs_compiler = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("c++")), reason="needs a C++ compiler")

# Few variants that between them run through every line: several tiles a warp, blocks that cut tiles, windows, bytes,
# groups of more heads than a warp holds.
EVERY_LINE = (
    Variant(64, 16, 4),
    Variant(80, 7, 12, "bfloat16", "fp8_e4m3", window=33),
    Variant(192, 5, 20, "float16", "float16"),
    Variant(96, 24, 1, window=50),
)


def quick_backend(**settings: Any) -> CpuBackend:
    """Kernels compiled in half the time: the same arithmetic, as g++ joins no products and sums without being told."""
    return CpuBackend(**{"flags": ("-O0",), **settings})


@dataclass(frozen=True)
class Prepared:
    """A case with its truth; ``bytes_read`` of keys and values that a kernel copies, no row twice."""

    variant: Variant
    case: Case
    truth: Exact
    bytes_read: int


@cache
def prepared(variant: Variant) -> tuple[Prepared, ...]:
    """Lengths at every edge, a shared prefix, a long sequence that fills its table to the last entry."""
    size = variant.block_size
    lengths = (0, 1, size, size + 1, 15, 16, 17, 64 + size // 2, 150)
    cases = []
    for shape in (
        Shape(lengths, prefix=size + size // 2),
        Shape((300 // size * size,), kv_heads=3, spread=3.0, level=-200.0, seed=1),
    ):
        case = make_case(variant, shape)
        case = case if variant.paged else contiguous_case(case, variant)
        truth = exact_attention(case, variant)
        row_bytes = variant.head_dim * variant.kv_format.size_bytes
        cases.append(Prepared(variant, case, truth, 2 * sum(truth.tokens) * shape.kv_heads * row_bytes))
    return tuple(cases)


@cache
def prepared_append(variant: Variant) -> AppendCase:
    return make_append_case(variant, append_shape(variant, 0))


def decode_faults(backend: CpuBackend, variant: Variant) -> Iterator[str]:
    """What is wrong with decode attention, one line each; nothing for a right kernel."""
    for ready in prepared(variant.with_splits(1)):
        backend.counters = Counters()
        try:
            out = to_floats(backend.decode(ready.case, variant), variant.dtype)
        except KernelError as error:
            yield str(error)
            continue
        wrong = ~(np.abs(out - ready.truth.output) <= tolerance(ready.truth, variant))
        if wrong.any():
            yield f"{wrong.sum()} of {wrong.size} numbers are wrong"
        if backend.counters.copied_bytes != ready.bytes_read:
            yield f"{backend.counters.copied_bytes} bytes of keys and values read, not {ready.bytes_read}"
        if variant.splits == 1 and backend.counters.stored_bytes != ready.case.queries.nbytes:
            yield f"{backend.counters.stored_bytes} bytes written, not {ready.case.queries.nbytes}"


def write_faults(backend: CpuBackend, variant: Variant) -> Iterator[str]:
    """What is wrong with append and copy_blocks."""
    step = prepared_append(variant)
    backend.counters = Counters()
    row_bytes = step.k_after[0, 0].nbytes
    rows = len(step.pairs) * variant.block_size + int((step.positions >= 0).sum())
    try:
        copied = backend.copy_blocks(step.before, variant, step.pairs)
        if not all(np.array_equal(*pair) for pair in zip(copied, (step.k_copied, step.v_copied), strict=True)):
            yield "copied blocks differ"
        before = Case(**{**vars(step.before), "k_pool": step.k_copied, "v_pool": step.v_copied})
        after = backend.append(before, variant, step.new, step.positions)
        if not all(np.array_equal(*pair) for pair in zip(after, (step.k_after, step.v_after), strict=True)):
            yield "appended tokens differ"
        if backend.counters.stored_bytes != 2 * rows * row_bytes:
            yield f"{backend.counters.stored_bytes} bytes written, not {2 * rows * row_bytes}"
    except KernelError as error:
        yield str(error)


FLOAT8 = """
#include "machine.h"
#include "float8.h"
KERNEL __launch_bounds__(32)
convert(u8* out, const float* in, int count) {
  for (int i = threadIdx.x; i < count; i += 32) store_global(out + i, float8_of(load_global(in + i)));
}
EXPORT(convert)
"""


def float8_faults(backend: CpuBackend, variant: Variant) -> Iterator[str]:
    """What is wrong with the kernels' rounding to fp8: on every number, every tie, and their nearest floats."""
    numbers = to_floats(np.arange(127, dtype=np.uint8), "fp8_e4m3")
    edges = np.concatenate([numbers, (numbers[1:] + numbers[:-1]) / 2, [464.0, 2.0**-11, 2.0**-127, 1e30]])
    middle = edges.astype(np.float32)
    near = np.concatenate([middle, np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(1e38))])
    values = np.concatenate([near, -near, np.array([np.inf, -np.inf, np.nan], dtype=np.float32)]).astype(np.float32)
    out = np.zeros(len(values), dtype=np.uint8)
    backend.texts = {**backend.texts, "append": FLOAT8}
    try:
        backend.run(Launch("append", (1, 1, 1), 32, 0, (out, values, np.int32(len(values))), (0,)), variant)
    except KernelError as error:
        yield str(error)
    if not np.array_equal(out, to_bits(values.astype(np.float64), "fp8_e4m3")):
        yield "fp8 numbers differ"


def source(name: str) -> str:
    """A kernel or a header by name."""
    return kernel_source.headers().get(name) or kernel_source.kernel_text(name)


def planted(name: str, right: str, wrong: str) -> dict[str, str]:
    """Sources for `CpuBackend` in which ``right``, which must stand there once, is ``wrong``."""
    text = source(name)
    assert text.count(right) == 1, f"{name} holds {right!r} {text.count(right)} times"
    return {name: text.replace(right, wrong)}
