"""A stand-in for CuPy on a machine without a GPU: what gpu_validate asks of it, and nothing else.

Launches are compared with the kernel's own signature and with what cards allow, recorded, and timed by a clock that
advances by the bytes and FLOPs of a card with known efficiencies. With ``execute`` set, kernels run on the CPU through
the shim, so that what is passed in the wrong place gives wrong numbers.
"""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np

__version__ = "14.0-fake"

BANDWIDTH, PEAK = 4800e9, 989e12
EFFICIENCY = {"memory": 0.8, "compute": 0.7, "kv": 0.9, "kv_8bit": 0.75, "copy": 0.88}
CONSTANT_US = {"gemm": 3.0, "paged_decode": 5.0}
OTHER_US = 1.5
LAZY_BYTES = 1 << 22

launches: list[dict[str, Any]] = []
execute = False
device_count = 1
_clock = {"us": 0.0}


class ndarray(np.ndarray):
    """A NumPy array with CuPy's ``data``; large ones have no memory of their own and forget what is written."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=self.__array_interface__["data"][0], array=self)

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.flags.writeable:
            super().__setitem__(key, value)


def _made(shape: Any, dtype: Any) -> Any:
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if size > LAZY_BYTES:
        return np.broadcast_to(np.zeros(1, dtype=dtype), shape).view(ndarray)
    return np.zeros(shape, dtype=dtype).view(ndarray)


def empty(shape: Any, dtype: Any) -> Any:
    return _made((shape,) if isinstance(shape, int) else shape, dtype)


def empty_like(array: Any) -> Any:
    return _made(array.shape, array.dtype)


def asarray(array: Any) -> Any:
    if isinstance(array, ndarray):
        return array
    return np.array(array).view(ndarray)


def asnumpy(array: Any) -> Any:
    return np.asarray(array)


def get_default_memory_pool() -> Any:
    return SimpleNamespace(free_all_blocks=lambda: None)


_C_TYPES = {"int": np.int32, "float": np.float32, "unsigned long long": np.uint64}
_POINTEES = {"u16": (2,), "u8": (1, 2), "int": (4,), "float": (4,), "Pair": (4,), "Vector": (1, 2)}
_POINTEES |= {"uint4": (1,), "unsigned": (4,)}
"""Bytes an element that an array behind a pointer of that type may have."""


class RawKernel:
    def __init__(self, code: str, name: str, options: tuple[str, ...]) -> None:
        found = re.search(rf"(?:KERNEL|void)[^;{{}}]*?\b{name}\(([^)]*)\)\s*{{", code)
        assert found, f"no kernel {name}"
        self.name, self.options = name, options
        self.parameters = [" ".join(part.split()) for part in found[1].split(",")]
        self.max_dynamic_shared_size_bytes = 48 << 10

    def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: int = 0) -> None:
        self._check(grid, block, args, shared_mem)
        launches.append({"kernel": self.name, "grid": grid, "block": block, "args": args, "shared_mem": shared_mem})
        _clock["us"] += _time_us(self.name, args)
        if execute and self.name not in ("spin", "sweep"):
            self._run(grid, block, args, shared_mem)

    def _check(self, grid: Any, block: Any, args: Any, shared_mem: int) -> None:
        assert len(grid) == 3 and all(side > 0 for side in grid) and max(grid[1:]) <= 65535, grid
        assert block[1:] == (1, 1) and 0 < block[0] <= 1024 and (block[0] % 32 == 0 or self.name == "spin"), block
        assert shared_mem <= self.max_dynamic_shared_size_bytes, (self.name, shared_mem)
        if len(args) != len(self.parameters):
            raise TypeError(f"{self.name} takes {len(self.parameters)} arguments, not {len(args)}")
        for parameter, value in zip(self.parameters, args, strict=True):
            kind = parameter.removeprefix("const ").rpartition(" ")[0].strip()
            if kind.endswith("*"):
                good = isinstance(value, ndarray) and value.dtype.itemsize in _POINTEES[kind[:-1].strip()]
            else:
                good = type(value) is _C_TYPES[kind]
            if not good:
                given = f"{type(value).__name__} {getattr(value, 'dtype', '')}"
                raise TypeError(f"{self.name}: {parameter} is given {given}")

    def _run(self, grid: Any, block: Any, args: Any, shared_mem: int) -> None:
        from gpu_validate.cpu_backend import CpuBackend
        from gpu_validate.launches import Launch

        outputs = tuple(i for i, text in enumerate(self.parameters) if "*" in text and not text.startswith("const"))
        plain = tuple(np.asarray(arg) if isinstance(arg, ndarray) else arg for arg in args)
        CpuBackend().run(Launch(self.name, grid, block[0], shared_mem, plain, outputs), _variant(self.options))


def _variant(options: tuple[str, ...]) -> Any:
    from gpu_validate.number_formats import FORMATS
    from gpu_validate.variants import Variant

    names = {numbers.macro: name for name, numbers in FORMATS.items()}
    found = dict(option.removeprefix("-D").split("=") for option in options if option.startswith("-D"))
    fields = {}
    for macro, value in found.items():
        key = macro.lower()
        fields[key] = names[value] if macro.endswith("DTYPE") else bool(int(value)) if key == "paged" else int(value)
    if "dtype" in fields:
        fields.setdefault("kv_dtype", fields["dtype"])
    return Variant(**fields)


def _time_us(name: str, args: Any) -> float:
    if name == "paged_decode":
        pool, lengths = args[4], args[7]
        share = EFFICIENCY["kv" if pool.dtype.itemsize == 2 else "kv_8bit"]
        moved = 2.0 * float(np.asarray(lengths).sum()) * pool.shape[-1] * pool.shape[-2] * pool.dtype.itemsize
        return CONSTANT_US["paged_decode"] + 1e6 * moved / (BANDWIDTH * share)
    return OTHER_US


class RawModule:
    def __init__(self, *, code: str, options: tuple[str, ...] = (), backend: str = "nvrtc") -> None:
        assert backend == "nvrtc" and isinstance(options, tuple)
        assert '#include "' not in code, "NVRTC finds no header"
        assert "if constexpr" not in code or "--std=c++17" in options, "CuPy 13 compiles C++14 unless told"
        self.code, self.options = code, options

    def compile(self) -> None:
        pass

    def get_function(self, name: str) -> RawKernel:
        return RawKernel(self.code, name, self.options)


class _Event:
    at = 0.0

    def record(self) -> None:
        self.at = _clock["us"]

    def synchronize(self) -> None:
        pass


def _gemm(handle: Any, op_a: int, op_b: int, m: int, n: int, k: int, *rest: Any) -> None:
    """cuBLAS's own order: m, n, k of the column-major product."""
    _, _, a_type, lda, _, b_type, ldb, _, _, c_type, ldc, compute, _ = rest
    assert (op_a, op_b, lda, ldb, ldc) == (1, 0, k, k, m) and compute == 68 and a_type == b_type == c_type
    launches.append({"kernel": "gemmEx", "m": m, "n": n, "k": k})
    read, computed = 2.0 * m * k / (BANDWIDTH * EFFICIENCY["memory"]), 2.0 * m * n * k / (PEAK * EFFICIENCY["compute"])
    _clock["us"] += CONSTANT_US["gemm"] + 1e6 * max(read, computed)


def _copied(target: int, source: int, size: int, kind: int, stream: int) -> None:
    rate = BANDWIDTH * EFFICIENCY["copy"] / 2 if kind == 3 else 50e9
    _clock["us"] += OTHER_US + 1e6 * size / rate


def _count() -> int:
    return device_count


_properties = {
    "name": b"NVIDIA H200",
    "major": 9,
    "minor": 0,
    "multiProcessorCount": 132,
    "l2CacheSize": 60 << 20,
    "totalGlobalMem": 140 << 30,
}
_runtime = SimpleNamespace(
    getDeviceCount=_count,
    getDevice=lambda: 0,
    getDeviceProperties=lambda device: _properties,
    driverGetVersion=lambda: 13000,
    runtimeGetVersion=lambda: 13000,
    memcpyAsync=_copied,
)


class _Pinned(bytearray):
    ptr = 0


cuda = SimpleNamespace(
    runtime=_runtime,
    Event=_Event,
    get_elapsed_time=lambda begin, end: (end.at - begin.at) / 1e3,
    get_current_stream=lambda: SimpleNamespace(ptr=0, synchronize=lambda: None),
    cublas=SimpleNamespace(gemmEx=_gemm),
    device=SimpleNamespace(get_cublas_handle=lambda: 1),
    alloc_pinned_memory=lambda size: _Pinned(size),
)
sys.modules.setdefault("cupy.cuda", cuda)  # type: ignore[arg-type]
