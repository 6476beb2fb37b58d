"""Matrix products through the cuBLAS that CuPy brings: 16-bit factors, float32 sums, the layout of a linear layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_validate.cuda_device import CudaDevice

# Of cublas_api.h and library_types.h.
_TYPES = {"float16": 2, "bfloat16": 14}
_COMPUTE_32F = 68
_NORMAL, _TRANSPOSED = 0, 1
_DEFAULT_ALGORITHM = -1


class CudaGemm:
    """``outputs[rows, n] = inputs[rows, k] · weights[n, k]ᵀ`` on the current stream; arrays hold bits."""

    def __init__(self, device: CudaDevice, dtype: str = "bfloat16") -> None:
        self._cublas: Any = device.cupy.cuda.cublas  # loads cuBLAS at this moment
        self._handle: Any = device.cupy.cuda.device.get_cublas_handle()
        self._type = _TYPES[dtype]
        self._one, self._zero = np.ones(1, dtype=np.float32), np.zeros(1, dtype=np.float32)

    def __call__(self, outputs: Any, inputs: Any, weights: Any) -> None:
        rows, k = inputs.shape
        n = weights.shape[0]
        # Row-major arrays are the transposes of cuBLAS's: outputsᵀ = weights · inputsᵀ.
        self._cublas.gemmEx(
            self._handle,
            _TRANSPOSED,
            _NORMAL,
            n,
            rows,
            k,
            self._one.ctypes.data,
            weights.data.ptr,
            self._type,
            k,
            inputs.data.ptr,
            self._type,
            k,
            self._zero.ctypes.data,
            outputs.data.ptr,
            self._type,
            n,
            _COMPUTE_32F,
            _DEFAULT_ALGORITHM,
        )
