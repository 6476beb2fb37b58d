"""The kernels on this CPU: built by g++ with kernels/shim.h, called through ctypes.

Indexing, masks, barriers and the merge of splits are tested for real; speed is not. Libraries are kept in a cache
folder, named by a hash of everything that went into them.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_validate import kernel_source
from gpu_validate.backend import KernelError
from gpu_validate.cases import Case
from gpu_validate.launches import DecodeArrays, Launch, append_launch, copy_launch, decode_launches
from gpu_validate.number_formats import Bits
from gpu_validate.variants import Variant

_FLAGS = ("-x", "c++", "-std=c++17", "-O1", "-shared", "-fPIC", "-Wno-unknown-pragmas", "-U_FORTIFY_SOURCE")


@dataclass
class Counters:
    """What a launch did, counted by the shim, summed over all its launches.

    Attributes:
        copied_bytes: from global to shared memory.
        stored_bytes: into global memory.
        loads: of global memory into registers, one a thread.
        matrix_loads: 8x8 matrices out of shared memory.
        bank_conflicts: rows of those matrices that lay in the bank of another.
        barriers: of whole blocks.
        products: tensor-core products of 16x16x8.
    """

    copied_bytes: int = 0
    stored_bytes: int = 0
    loads: int = 0
    matrix_loads: int = 0
    bank_conflicts: int = 0
    barriers: int = 0
    products: int = 0


_COUNTED = tuple(Counters.__dataclass_fields__)


class _Region(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("bytes", ctypes.c_uint64), ("writable", ctypes.c_int))


class _Counters(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in _COUNTED)


class _Launch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("threads", ctypes.c_uint32),
        ("shared_bytes", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("regions", ctypes.POINTER(_Region)),
        ("region_count", ctypes.c_uint32),
        ("counters", ctypes.POINTER(_Counters)),
    )


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/kvplan/kernels``, or the same under the user's cache or a temporary folder."""
    home = os.environ.get("XDG_CACHE_HOME")
    base = Path(home) if home else Path.home() / ".cache"
    folder = base / "kvplan" / "kernels"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"kvplan-kernels-{os.getuid()}"
        folder.mkdir(exist_ok=True)
    return folder


@dataclass
class CpuBackend:
    """A `Backend`. ``seed`` draws the order in which threads take turns.

    Attributes:
        flags: more for the compiler, such as sanitizers that trap.
        texts: other sources for some kernels or headers, by name, for tests that plant a mistake.
    """

    seed: int = 0
    folder: Path = field(default_factory=cache_folder)
    flags: tuple[str, ...] = ()
    texts: dict[str, str] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    name: str = "cpu"

    def __post_init__(self) -> None:
        self._libraries: dict[tuple[str, tuple[str, ...]], ctypes.CDLL] = {}

    def facts(self) -> dict[str, Any]:
        """The compiler, and that no GPU took part."""
        version = subprocess.run((_compiler(), "--version"), capture_output=True, text=True, check=True).stdout
        return {"device": "CPU (shim)", "driver": None, "compiler": version.splitlines()[0]}

    def prepare(self, variants: tuple[Variant, ...]) -> None:
        """Builds the decode kernels of these variants on all cores."""
        wanted = dict.fromkeys(
            (kernel, variant.macros())
            for variant in variants
            for kernel in ("paged_decode", *(("merge_splits",) if variant.splits > 1 else ()))
        )
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda what: self._path(*what), wanted))

    def decode(self, case: Case, variant: Variant) -> Bits:
        """See `Backend`. Output and partial results start as not-a-number."""
        output = np.full_like(case.queries, variant.format.nan_bits)
        arrays = DecodeArrays(case.queries, case.k_pool, case.v_pool, case.tables, case.lengths)

        def empty(shape: tuple[int, ...]) -> NDArray[np.float32]:
            return np.full(shape, np.nan, dtype=np.float32)

        scales = {"scale": case.scale, "k_scale": case.k_scale, "v_scale": case.v_scale}
        for launch in decode_launches(variant, arrays, output, empty, **scales):
            self.run(launch, variant)
        return output

    def append(
        self, case: Case, variant: Variant, new: tuple[Bits, Bits], positions: NDArray[Any]
    ) -> tuple[Bits, Bits]:
        """See `Backend`."""
        pools = case.k_pool.copy(), case.v_pool.copy()
        scales = {"k_scale": case.k_scale, "v_scale": case.v_scale}
        self.run(append_launch(*pools, new, case.tables, positions.astype(np.int32), **scales), variant)
        return pools

    def copy_blocks(self, case: Case, variant: Variant, pairs: NDArray[Any]) -> tuple[Bits, Bits]:
        """See `Backend`."""
        pools = case.k_pool.copy(), case.v_pool.copy()
        self.run(copy_launch(*pools, pairs.astype(np.int32)), variant)
        return pools

    def run(self, launch: Launch, variant: Variant) -> None:
        """One launch, with every check of the shim. Raises KernelError with the shim's reason."""
        library = self.library(launch.kernel, variant)
        held = [_argument(argument) for argument in launch.arguments]
        addresses = (ctypes.c_void_p * len(held))(*(ctypes.addressof(value) for value in held))
        regions = [
            _Region(argument.ctypes.data, argument.nbytes, place in launch.outputs)
            for place, argument in enumerate(launch.arguments)
            if isinstance(argument, np.ndarray)
        ]
        counters = _Counters()
        now = _Launch(
            (ctypes.c_uint32 * 3)(*launch.grid),
            launch.threads,
            launch.shared_bytes,
            self.seed,
            (_Region * len(regions))(*regions),
            len(regions),
            ctypes.pointer(counters),
        )
        failed = library.launch(ctypes.byref(now), addresses)
        for name in _COUNTED:
            setattr(self.counters, name, getattr(self.counters, name) + getattr(counters, name))
        if failed:
            raise KernelError(library.last_message().decode(), where=f"{launch.kernel} of {variant.name}")

    def library(self, kernel: str, variant: Variant) -> ctypes.CDLL:
        """The kernel's shared library for these macros, built at the first call."""
        key = (kernel, variant.macros())
        if key not in self._libraries:
            library = ctypes.CDLL(str(self._path(*key)))
            library.last_message.restype = ctypes.c_char_p
            self._libraries[key] = library
        return self._libraries[key]

    def _path(self, kernel: str, macros: tuple[str, ...]) -> Path:
        text = self.texts.get(kernel) or kernel_source.kernel_text(kernel)
        headers = kernel_source.headers() | {name: self.texts[name] for name in self.texts if name.endswith(".h")}
        everything = "\0".join((text, *headers.values()))
        defines = _used(macros, everything if "decode_tiles.h" in text else text)
        name = hashlib.sha256(
            "\0".join((everything, *defines, *_FLAGS, *self.flags, _compiler())).encode()
        ).hexdigest()[:24]
        path = self.folder / f"{kernel}-{name}.so"
        if not path.exists():
            _build(text, headers, (*self.flags, *(f"-D{define}" for define in defines)), path)
        return path


def _used(macros: tuple[str, ...], text: str) -> tuple[str, ...]:
    """The macros that a source names: a merge kernel does not depend on the block size."""
    return tuple(macro for macro in macros if macro.partition("=")[0] in text)


def _build(text: str, headers: dict[str, str], flags: tuple[str, ...], path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        source, built = Path(folder) / "kernel.cu", Path(folder) / "kernel.so"
        for name, content in {**headers, source.name: text}.items():
            (Path(folder) / name).write_text(content)
        done = subprocess.run(
            (_compiler(), *_FLAGS, *flags, str(source), "-o", str(built)), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise KernelError(f"g++ refused the kernel: {done.stderr.strip()[:2000]}", where=path.stem)
        built.replace(path)  # at once: another process may look for it


def _compiler() -> str:
    found = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if not found:
        raise KernelError("no C++ compiler is here", remedy="install g++ 10 or newer, or name one in CXX")
    return found


def _argument(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        if not argument.flags.c_contiguous or argument.ctypes.data % 16:
            raise KernelError(f"an array of shape {argument.shape} is not contiguous or not aligned to 16 bytes")
        return ctypes.c_void_p(argument.ctypes.data)
    return ctypes.c_int32(int(argument)) if isinstance(argument, np.int32) else ctypes.c_float(float(argument))
