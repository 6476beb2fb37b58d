"""The kernels on a GPU, for ``check``: the same sources, macros and launches as on the CPU, through CuPy."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_validate.cases import Case
from gpu_validate.cuda_device import CudaDevice
from gpu_validate.launches import DecodeArrays, Launch, append_launch, copy_launch, decode_launches
from gpu_validate.number_formats import Bits
from gpu_validate.variants import Variant


class CudaBackend:
    """A `Backend`. Making one raises InputError where CuPy or a GPU is missing."""

    name = "cuda"

    def __init__(self, device: CudaDevice | None = None) -> None:
        self.device = device or CudaDevice()

    def facts(self) -> dict[str, Any]:
        """See `Backend`."""
        facts = asdict(self.device.facts)
        compiler = f"NVRTC of CUDA {facts['runtime']}, CuPy {facts['cupy']}"
        return {"device": facts["name"], "driver": facts["driver"], "compiler": compiler, "device_facts": facts}

    def prepare(self, variants: tuple[Variant, ...]) -> None:
        """Compiles what these variants need on several cores."""
        self.device.prepare(
            (kernel, variant)
            for variant in variants
            for kernel in ("paged_decode", *(("merge_splits",) if variant.splits > 1 else ()))
        )

    def decode(self, case: Case, variant: Variant) -> Bits:
        """See `Backend`. Output and partial results start as not-a-number, so that a number never written shows."""
        cupy = self.device.cupy
        output = cupy.asarray(np.full_like(case.queries, variant.format.nan_bits))
        fields = (case.queries, case.k_pool, case.v_pool, case.tables, case.lengths)
        arrays = DecodeArrays(*(cupy.asarray(field) for field in fields))

        def empty(shape: tuple[int, ...]) -> Any:
            return cupy.asarray(np.full(shape, np.nan, dtype=np.float32))

        scales = {"scale": case.scale, "k_scale": case.k_scale, "v_scale": case.v_scale}
        self._run(variant, *decode_launches(variant, arrays, output, empty, **scales))
        return self._host(output)

    def append(
        self, case: Case, variant: Variant, new: tuple[Bits, Bits], positions: NDArray[Any]
    ) -> tuple[Bits, Bits]:
        """See `Backend`."""
        cupy = self.device.cupy
        pools = cupy.asarray(case.k_pool), cupy.asarray(case.v_pool)
        moved = cupy.asarray(new[0]), cupy.asarray(new[1])
        places = cupy.asarray(positions.astype(np.int32))
        scales = {"k_scale": case.k_scale, "v_scale": case.v_scale}
        self._run(variant, append_launch(*pools, moved, cupy.asarray(case.tables), places, **scales))
        return self._host(pools[0]), self._host(pools[1])

    def copy_blocks(self, case: Case, variant: Variant, pairs: NDArray[Any]) -> tuple[Bits, Bits]:
        """See `Backend`."""
        cupy = self.device.cupy
        pools = cupy.asarray(case.k_pool), cupy.asarray(case.v_pool)
        self._run(variant, copy_launch(*pools, cupy.asarray(pairs.astype(np.int32))))
        return self._host(pools[0]), self._host(pools[1])

    def _run(self, variant: Variant, *launches: Launch) -> None:
        for launch in launches:
            self.device.launch(launch, variant)
        self.device.wait()

    def _host(self, array: Any) -> Bits:
        return np.asarray(self.device.cupy.asnumpy(array))
