"""What this card can do at most, measured in the same run: copies, large matrix products, PCIe, launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_validate.cuda_device import CudaDevice
from gpu_validate.cuda_gemm import CudaGemm
from gpu_validate.fp8_gemm import Fp8Gemm
from gpu_validate.launches import copy_launch
from gpu_validate.measurements import Point
from gpu_validate.plans import Plan
from gpu_validate.random_bits import random_bits
from gpu_validate.timing import Stopwatch
from gpu_validate.variants import Variant

_TO_HOST, _TO_DEVICE, _WITHIN = 2, 1, 3  # cudaMemcpyKind


@dataclass(frozen=True)
class Ceilings:
    """Points, and what could not be measured."""

    points: tuple[Point, ...]
    notes: tuple[str, ...]


def measure_ceilings(device: CudaDevice, watch: Stopwatch, plan: Plan) -> Ceilings:
    """All ceilings of one card."""
    notes: list[str] = []
    points = [_copy(device, watch, plan.copy_bytes), *_products(device, watch, plan.square)]
    try:
        points.append(_fp8_product(device, watch, plan.square))
    except Exception as error:  # cuBLASLt is reached through ctypes: whatever breaks there is a note, not the end
        notes.append(f"fp8 matrix products were not timed: {str(error).splitlines()[0]}")
    points += _swaps(device, watch, plan)
    points.append(_launch(device, watch))
    return Ceilings(tuple(points), tuple(notes))


def _copy(device: CudaDevice, watch: Stopwatch, size: int) -> Point:
    """Device to device; bytes read and bytes written count."""
    source = random_bits(device.cupy, (size,), "fp8_e4m3")
    target = device.cupy.empty(size, dtype=np.uint8)
    timing = watch.time(lambda: _move(device, target.data.ptr, source.data.ptr, size, _WITHIN))
    return Point("copy", {"from": "device", "to": "device", "bytes": size}, timing, bytes=2.0 * size)


def _products(device: CudaDevice, watch: Stopwatch, side: int) -> list[Point]:
    points = []
    for dtype in ("bfloat16", "float16"):
        left, right = (random_bits(device.cupy, (side, side), dtype, seed=seed) for seed in (0, 1))
        out = device.cupy.empty((side, side), dtype=np.uint16)
        gemm = CudaGemm(device, dtype)
        timing = watch.time(lambda gemm=gemm, out=out, a=left, b=right: gemm(out, a, b))  # type: ignore[misc]
        shape = {"name": "square", "rows": side, "inputs": side, "outputs": side, "dtype": dtype}
        points.append(Point("gemm", shape, timing, bytes=6.0 * side**2, flops=2.0 * side**3))
    return points


def _fp8_product(device: CudaDevice, watch: Stopwatch, side: int) -> Point:
    left, right = (random_bits(device.cupy, (side, side), "fp8_e4m3", seed=seed) for seed in (0, 1))
    out = device.cupy.empty((side, side), dtype=np.uint16)
    gemm = Fp8Gemm(device)
    timing = watch.time(lambda: gemm(out, left, right))
    shape = {"name": "square", "rows": side, "inputs": side, "outputs": side, "dtype": "fp8_e4m3"}
    return Point("gemm", shape, timing, bytes=4.0 * side**2, flops=2.0 * side**3)


def _swaps(device: CudaDevice, watch: Stopwatch, plan: Plan) -> list[Point]:
    """Over PCIe from and to pinned memory, block by block and in one piece."""
    size = plan.swap_bytes
    memory: Any = device.cupy.cuda.alloc_pinned_memory(size)
    np.frombuffer(memory, dtype=np.uint8, count=size)[:] = 7
    pool = random_bits(device.cupy, (size,), "fp8_e4m3")
    points = []
    for piece in (*plan.swap_pieces, size):
        for name, kind in (("out", _TO_HOST), ("in", _TO_DEVICE)):

            def work(piece: int = piece, kind: int = kind) -> None:
                for at in range(0, size, piece):
                    ends = memory.ptr + at, pool.data.ptr + at
                    _move(device, *(ends if kind == _TO_HOST else ends[::-1]), min(piece, size - at), kind)

            timing = watch.time(work, repeats=plan.few_repeats)
            points.append(Point("swap", {"direction": name, "piece_bytes": piece}, timing, bytes=float(size)))
    return points


def _launch(device: CudaDevice, watch: Stopwatch) -> Point:
    """From one tiny kernel to the next: a hundred on the stream, by the clock of the GPU; and what the host needs."""
    variant = Variant()
    keys, values = (random_bits(device.cupy, (2, 16, 8, 128), "bfloat16") for _ in range(2))
    pairs = device.cupy.asarray(np.array([[0, 1]], dtype=np.int32))
    launch = copy_launch(keys, values, pairs)

    def hundred() -> None:
        for _ in range(100):
            device.launch(launch, variant)

    timing = watch.time(hundred)
    host_us = watch.host_us(lambda: device.launch(launch, variant))
    return Point("launch", {"kernels": 100, "host_us_each": round(host_us, 3)}, timing)


def _move(device: CudaDevice, target: int, source: int, size: int, kind: int) -> None:
    stream = device.cupy.cuda.get_current_stream().ptr
    device.cupy.cuda.runtime.memcpyAsync(target, source, size, kind, stream)
