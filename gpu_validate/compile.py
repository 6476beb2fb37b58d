"""Every kernel compiled for every architecture, without a GPU: registers, shared memory and spills as a record.

A spill in the decode kernel fails: its loads and stores of local memory would go through the very caches and queues
whose time the kernel is built to fill with keys and values.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from gpu_validate import kernel_source, nvrtc
from gpu_validate.backend import KernelError
from gpu_validate.variants import Variant
from simulator.errors import InputError

SCHEMA = "kvplan-gpu-compile"
SCHEMA_VERSION = 1
ARCHITECTURES = ("sm_80", "sm_89", "sm_90", "sm_100")
HOT = "paged_decode"
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True)
class Resources:
    """What one kernel takes, as the assembler says.

    Attributes:
        macros: those that its source names.
        shared_bytes: static; the decode kernel's shared memory is dynamic, ``dynamic_shared_bytes`` of its geometry.
        error: the compiler's words where it refused; then all numbers are 0.
    """

    kernel: str
    architecture: str
    macros: tuple[str, ...]
    registers: int = 0
    shared_bytes: int = 0
    dynamic_shared_bytes: int = 0
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    error: str = ""

    @property
    def failed(self) -> bool:
        """Refused, or the hot kernel spills."""
        spills = self.spill_store_bytes or self.spill_load_bytes
        return bool(self.error) or (self.kernel == HOT and bool(spills))


@dataclass(frozen=True)
class CompileRecord:
    """All kernels of a grid on all architectures."""

    compiler: str
    kernel_hash: str
    grid: str
    rows: tuple[Resources, ...]

    @property
    def failed(self) -> tuple[Resources, ...]:
        return tuple(row for row in self.rows if row.failed)

    def document(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        head = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "compiler": self.compiler, "grid": self.grid}
        counts = {"kernel_hash": self.kernel_hash, "kernels": len(self.rows), "failed": len(self.failed)}
        return {**head, **counts, "rows": [asdict(row) for row in self.rows]}

    def write(self, path: Path) -> None:
        """Writes the record as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.document(), indent=1) + "\n")

    def text(self) -> str:
        """A table: for each kernel and architecture the most that any variant takes."""
        lines = [f"{'kernel':<14}{'arch':<8}{'variants':>9}{'registers':>11}{'stack':>7}{'spills':>8}"]
        for kernel, architecture in dict.fromkeys((row.kernel, row.architecture) for row in self.rows):
            rows = [row for row in self.rows if (row.kernel, row.architecture) == (kernel, architecture)]
            most = max(row.registers for row in rows), max(row.stack_bytes for row in rows)
            spills = max(row.spill_store_bytes + row.spill_load_bytes for row in rows)
            lines.append(f"{kernel:<14}{architecture:<8}{len(rows):>9}{most[0]:>11}{most[1]:>7}{spills:>8}")
        for row in self.failed:
            why = row.error.splitlines()[0] if row.error else f"{row.spill_store_bytes} bytes spilled"
            lines.append(f"FAILED {row.kernel} {row.architecture} {' '.join(row.macros)}: {why}")
        return "\n".join(lines)


class Compiler(Protocol):
    """Compiles CUDA text to machine code and repeats what the assembler says of it."""

    def version(self) -> str: ...

    def compile(self, text: str, architecture: str, macros: tuple[str, ...], *, name: str) -> str:
        """What ``ptxas -v`` says. Raises KernelError."""
        ...


class Nvcc:
    """The toolkit's compiler."""

    def __init__(self, program: str) -> None:
        self._program = program

    def version(self) -> str:
        said = subprocess.run((self._program, "--version"), capture_output=True, text=True, check=True).stdout
        found = re.search(r"release ([\d.]+)", said)
        return f"nvcc {found[1] if found else 'of unknown version'}"

    def compile(self, text: str, architecture: str, macros: tuple[str, ...], *, name: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / f"{name}.cu"
            source.write_text(text)
            defines = tuple(f"-D{macro}" for macro in macros)
            flags = ("-cubin", f"-arch={architecture}", "-std=c++17", "-ftz=true", "-Xptxas", "-v", *defines)
            done = subprocess.run(
                (self._program, *flags, str(source), "-o", str(source.with_suffix(".cubin"))),
                capture_output=True,
                text=True,
                check=False,
            )
        said = done.stdout + done.stderr
        if done.returncode:
            raise KernelError(f"nvcc refused the kernel: {said.strip()[:2000]}", where=name)
        return said


class Nvrtc:
    """The runtime compiler of the wheel nvidia-cuda-nvrtc: what CuPy uses on a GPU, with the options CuPy adds."""

    def version(self) -> str:
        return nvrtc.version()

    def compile(self, text: str, architecture: str, macros: tuple[str, ...], *, name: str) -> str:
        defines = tuple(f"-D{macro}" for macro in macros)
        flags = (f"--gpu-architecture={architecture}", "--std=c++17", "-ftz=true", "--ptxas-options=-v", *defines)
        return nvrtc.compile_text(text, flags, name=f"{name}.cu")


def find_compiler(name: str = "auto") -> Compiler:
    """``nvcc``, ``nvrtc``, or ``auto``: nvcc where it is, else NVRTC. Raises InputError where there is none."""
    program = shutil.which("nvcc")
    if name not in ("auto", "nvcc", "nvrtc"):
        raise InputError(f"there is no compiler {name!r}", where="--compiler", remedy="auto, nvcc or nvrtc")
    if name != "nvrtc" and program:
        return Nvcc(program)
    if name != "nvcc" and nvrtc.library_path():
        return Nvrtc()
    raise InputError(
        "no CUDA compiler is here" if name == "auto" else f"{name} is not here",
        remedy="pip install nvidia-cuda-nvrtc (no GPU needed), or install NVIDIA's toolkit",
    )


def used_macros(kernel: str, macros: Iterable[str]) -> tuple[str, ...]:
    """The macros that a kernel's text names: the merge does not depend on the block size."""
    words = _words(kernel)
    return tuple(macro for macro in macros if macro.partition("=")[0] in words)


@functools.cache
def _words(kernel: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", kernel_source.device_text(kernel)))


def compile_all(
    variants: Iterable[Variant],
    compiler: Compiler,
    *,
    grid: str,
    architectures: tuple[str, ...] = ARCHITECTURES,
    texts: dict[str, str] | None = None,
    workers: int = 2,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> CompileRecord:
    """Compiles each different kernel once for each architecture; a refusal is a row, not an error.

    Args:
        texts: other sources by kernel, for tests that plant a spill.
    """
    wanted = _kernels(variants)
    jobs = [
        (kernel, macros, architecture, wanted[kernel, macros])
        for kernel, macros in wanted
        for architecture in architectures
    ]
    sources = {kernel: kernel_source.device_text(kernel) for kernel, _ in wanted} | (texts or {})
    rows = []
    with ThreadPoolExecutor(workers) as pool:
        for row in pool.map(lambda job: _row(compiler, sources[job[0]], *job), jobs):
            rows.append(row)
            progress(len(rows), len(jobs))
    return CompileRecord(compiler.version(), kernel_source.digest(), grid, tuple(rows))


def _kernels(variants: Iterable[Variant]) -> dict[tuple[str, tuple[str, ...]], Variant]:
    """Each different kernel of these variants, paged and contiguous, with a variant that it serves."""
    found: dict[tuple[str, tuple[str, ...]], Variant] = {}
    for variant in variants:
        for one in (variant, variant.contiguous()):
            for kernel in kernel_source.FILES:
                if one.paged or kernel == HOT:
                    found.setdefault((kernel, used_macros(kernel, one.macros())), one)
    return found


def _row(
    compiler: Compiler, text: str, kernel: str, macros: tuple[str, ...], architecture: str, variant: Variant
) -> Resources:
    dynamic = variant.geometry().shared_bytes if kernel == HOT else 0
    try:
        said = compiler.compile(text, architecture, macros, name=kernel)
    except KernelError as error:
        return Resources(kernel, architecture, macros, dynamic_shared_bytes=dynamic, error=error.what)
    registers, spills, shared = _REGISTERS.search(said), _SPILLS.search(said), _SHARED.search(said)
    if registers is None or spills is None:
        raise KernelError(f"the assembler's words are not understood: {said[:500]}", where=kernel)
    return Resources(
        kernel,
        architecture,
        macros,
        registers=int(registers[1]),
        shared_bytes=int(shared[1]) if shared else 0,
        dynamic_shared_bytes=dynamic,
        stack_bytes=int(spills[1]),
        spill_store_bytes=int(spills[2]),
        spill_load_bytes=int(spills[3]),
    )
