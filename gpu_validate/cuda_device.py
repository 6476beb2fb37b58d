"""The GPU through CuPy: found or refused in words, its facts, compiled kernels and their launches."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from gpu_validate import kernel_source
from gpu_validate.backend import KernelError
from gpu_validate.compile import used_macros
from gpu_validate.launches import Launch
from gpu_validate.variants import Variant
from simulator.errors import InputError

_PLAIN_SHARED_BYTES = 48 << 10  # more must be asked for, kernel by kernel
_NO_GPU = "run this on a machine with an NVIDIA GPU (sm_80 or newer), or use check --backend cpu, which needs g++ alone"


def find_cupy() -> Any:
    """CuPy, where it and a GPU are. Raises InputError in one sentence where not."""
    try:
        import cupy
    except ImportError as error:
        what = "CuPy is not installed" if isinstance(error, ModuleNotFoundError) else f"CuPy cannot be loaded: {error}"
        raise InputError(what, where="--backend cuda", remedy=f"pip install cupy-cuda13x; {_NO_GPU}") from None
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except Exception as error:  # CuPy's own error class stands in a module that may be what is broken
        raise InputError(
            f"no GPU answers: {str(error).splitlines()[0]}", where="--backend cuda", remedy=_NO_GPU
        ) from None
    if count < 1:
        raise InputError("this machine has no GPU", where="--backend cuda", remedy=_NO_GPU)
    return cupy


@dataclass(frozen=True)
class DeviceFacts:
    """What results say about the card.

    Attributes:
        processors: streaming multiprocessors.
    """

    name: str
    compute_capability: str
    processors: int
    l2_bytes: int
    memory_bytes: int
    driver: str
    runtime: str
    cupy: str


class CudaDevice:
    """One GPU: kernels by name and macros, compiled once and kept."""

    def __init__(self, cupy: Any | None = None) -> None:
        self.cupy: Any = find_cupy() if cupy is None else cupy
        self._kernels: dict[tuple[str, tuple[str, ...]], Any] = {}
        self._ready: dict[tuple[str, Variant], Any] = {}

    @functools.cached_property
    def facts(self) -> DeviceFacts:
        runtime = self.cupy.cuda.runtime
        found = runtime.getDeviceProperties(runtime.getDevice())
        name = found["name"]
        return DeviceFacts(
            name=name.decode() if isinstance(name, bytes) else str(name),
            compute_capability=f"{found['major']}.{found['minor']}",
            processors=int(found["multiProcessorCount"]),
            l2_bytes=int(found["l2CacheSize"]),
            memory_bytes=int(found["totalGlobalMem"]),
            driver=_version(int(runtime.driverGetVersion())),
            runtime=_version(int(runtime.runtimeGetVersion())),
            cupy=str(self.cupy.__version__),
        )

    def prepare(self, wanted: Iterable[tuple[str, Variant]], *, workers: int = 8) -> None:
        """Compiles these kernels on several cores: NVRTC lets Python run meanwhile."""
        missing = {(kernel, used_macros(kernel, variant.macros())): (kernel, variant) for kernel, variant in wanted}
        for done in self._kernels.keys() & missing.keys():
            del missing[done]
        if not missing:
            return
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(lambda what: self.kernel(*what), missing.values()))

    def kernel(self, name: str, variant: Variant) -> Any:
        """The kernel, ready to launch. Raises KernelError with NVRTC's words."""
        macros = used_macros(name, variant.macros())
        if (name, macros) not in self._kernels:
            options = ("--std=c++17", *(f"-D{macro}" for macro in macros))
            try:
                module = self.cupy.RawModule(code=kernel_source.device_text(name), options=options, backend="nvrtc")
                module.compile()
                kernel = module.get_function(name)
            except Exception as error:
                raise KernelError(f"NVRTC refused the kernel: {str(error)[:2000]}", where=f"{name} {macros}") from None
            self._kernels[name, macros] = kernel
        return self._kernels[name, macros]

    def launch(self, launch: Launch, variant: Variant) -> None:
        """Puts one launch on the stream; does not wait for it."""
        kernel = self._ready.get((launch.kernel, variant))
        if kernel is None:
            kernel = self._ready[launch.kernel, variant] = self.kernel(launch.kernel, variant)
        if launch.shared_bytes > _PLAIN_SHARED_BYTES and kernel.max_dynamic_shared_size_bytes < launch.shared_bytes:
            kernel.max_dynamic_shared_size_bytes = launch.shared_bytes
        kernel(launch.grid, (launch.threads, 1, 1), launch.arguments, shared_mem=launch.shared_bytes)

    def wait(self) -> None:
        """Until all that was launched is done. Raises KernelError where a kernel failed."""
        try:
            self.cupy.cuda.get_current_stream().synchronize()
        except Exception as error:
            raise KernelError(f"a kernel failed on the GPU: {error}") from None


def _version(number: int) -> str:
    """13000 is 13.0."""
    return f"{number // 1000}.{number % 1000 // 10}"
