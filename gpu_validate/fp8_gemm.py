"""fp8 matrix products: cuBLASLt through ctypes, as CuPy's cuBLAS door has none. Timed for a card's own ceiling."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from gpu_validate.backend import KernelError
from gpu_validate.cuda_device import CudaDevice

# Of cublasLt.h, cublas_api.h and library_types.h.
_COMPUTE_32F, _FLOAT32, _BFLOAT16, _E4M3 = 68, 0, 14, 28
_DESCRIPTION_TRANSPOSE_A, _PREFERENCE_WORKSPACE = 3, 1
_WORKSPACE_BYTES = 64 << 20
_LIBRARIES = ("libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so")


class _Heuristic(ctypes.Structure):
    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class Fp8Gemm:
    """``outputs[rows, n] = inputs[rows, k] · weights[n, k]ᵀ``, factors e4m3, outputs bfloat16. Raises KernelError."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._library = _library()
        self._handle = ctypes.c_void_p()
        self._ask("cublasLtCreate", ctypes.byref(self._handle))
        self._workspace: Any = device.cupy.empty(_WORKSPACE_BYTES, dtype=np.uint8)
        self._plans: dict[tuple[int, int, int], tuple[Any, ...]] = {}

    def __call__(self, outputs: Any, inputs: Any, weights: Any) -> None:
        (rows, k), n = inputs.shape, weights.shape[0]
        if (rows, n, k) not in self._plans:
            self._plans[rows, n, k] = self._plan(rows, n, k)
        description, left, right, out, heuristic = self._plans[rows, n, k]
        one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        target = ctypes.c_void_p(outputs.data.ptr)
        self._ask(
            "cublasLtMatmul",
            self._handle,
            description,
            ctypes.byref(one),
            ctypes.c_void_p(weights.data.ptr),
            left,
            ctypes.c_void_p(inputs.data.ptr),
            right,
            ctypes.byref(zero),
            target,
            out,
            target,
            out,
            ctypes.byref(heuristic, 0),
            ctypes.c_void_p(self._workspace.data.ptr),
            ctypes.c_size_t(_WORKSPACE_BYTES),
            ctypes.c_void_p(self._device.cupy.cuda.get_current_stream().ptr),
        )

    def _plan(self, rows: int, n: int, k: int) -> tuple[Any, ...]:
        """Column-major as cuBLAS wants it: outputsᵀ [n, rows] = (weights as [k, n])ᵀ · inputs as [k, rows]."""
        description, preference = ctypes.c_void_p(), ctypes.c_void_p()
        self._ask("cublasLtMatmulDescCreate", ctypes.byref(description), _COMPUTE_32F, _FLOAT32)
        self._set("cublasLtMatmulDescSetAttribute", description, _DESCRIPTION_TRANSPOSE_A, ctypes.c_int32(1))
        left, right = self._layout(_E4M3, k, n), self._layout(_E4M3, k, rows)
        out = self._layout(_BFLOAT16, n, rows)
        self._ask("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        size = ctypes.c_uint64(_WORKSPACE_BYTES)
        self._set("cublasLtMatmulPreferenceSetAttribute", preference, _PREFERENCE_WORKSPACE, size)
        found, count = _Heuristic(), ctypes.c_int()
        parts = (self._handle, description, left, right, out, out, preference, 1)
        self._ask("cublasLtMatmulAlgoGetHeuristic", *parts, ctypes.byref(found), ctypes.byref(count))
        if not count.value:
            raise KernelError(f"cuBLASLt has no fp8 product of {rows} x {k} x {n} on this card")
        return description, left, right, out, found

    def _layout(self, kind: int, rows: int, columns: int) -> ctypes.c_void_p:
        layout = ctypes.c_void_p()
        sizes = ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows)
        self._ask("cublasLtMatrixLayoutCreate", ctypes.byref(layout), kind, *sizes)
        return layout

    def _set(self, function: str, of: ctypes.c_void_p, attribute: int, value: Any) -> None:
        self._ask(function, of, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))

    def _ask(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, function)(*arguments)
        if status:
            raise KernelError(f"{function} answers {status}")


def _library() -> ctypes.CDLL:
    """cuBLASLt, which CuPy has loaded, or from where the loader finds it."""
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise KernelError("libcublasLt is not found")
