"""Kernels compile for every architecture without a GPU; a refusal fails, and so does a spill in the hot kernel."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from gpu_validate import kernel_source, nvrtc, timing
from gpu_validate.compile import ARCHITECTURES, Compiler, Nvcc, Nvrtc, compile_all, find_compiler, used_macros
from gpu_validate.variants import Variant, grid
from simulator.errors import InputError

needs_compiler = pytest.mark.skipif(
    not (shutil.which("nvcc") or nvrtc.library_path()), reason="neither nvcc nor the wheel nvidia-cuda-nvrtc is here"
)
needs_nvrtc = pytest.mark.skipif(not nvrtc.library_path(), reason="the wheel nvidia-cuda-nvrtc is not here")
needs_nvcc = pytest.mark.skipif(not shutil.which("nvcc"), reason="nvcc is not here")


def quickest() -> Compiler:
    """NVRTC where it is: it starts no processes."""
    return find_compiler("nvrtc" if nvrtc.library_path() else "auto")


SOME = (
    Variant(256, 16, 2, "float16", "fp8_e4m3"),
    Variant(64, 24, 32, "float16", "float16", 100),
)
"""The most registers a head dimension takes, the most warps a group takes; the usual kernel stands beside them."""


@needs_compiler
def test_the_usual_kernels_compile_for_every_architecture_without_spills(tmp_path: Path) -> None:
    record = compile_all((Variant(),), quickest(), grid="one")
    assert record.failed == ()
    assert {row.architecture for row in record.rows} == set(ARCHITECTURES)
    assert {row.kernel for row in record.rows} == set(kernel_source.FILES)
    hot = [row for row in record.rows if row.kernel == "paged_decode"]
    assert len(hot) == 2 * len(ARCHITECTURES)  # paged and contiguous
    for row in hot:
        assert 32 <= row.registers <= 255
        assert row.spill_store_bytes == row.spill_load_bytes == row.stack_bytes == 0
        assert row.dynamic_shared_bytes == Variant().geometry().shared_bytes
        # All its threads fit a multiprocessor's 65,536 registers, as often as its shared memory does.
        assert row.registers * Variant().geometry().threads <= 65536
    record.write(tmp_path / "compile.json")
    document = json.loads((tmp_path / "compile.json").read_text())
    assert document["kernels"] == len(record.rows) and document["failed"] == 0
    assert document["kernel_hash"] == kernel_source.digest()
    assert re.search(
        rf"paged_decode  sm_100 +2 +{max(r.registers for r in hot if r.architecture == 'sm_100')}", record.text()
    )


@needs_nvrtc
def test_uncommon_shapes_compile_through_nvrtc_as_on_a_gpu() -> None:
    record = compile_all(SOME, Nvrtc(), grid="some", architectures=("sm_80",))
    assert record.failed == ()
    assert record.compiler.startswith("NVRTC 13.")


@needs_nvcc
@needs_nvrtc
def test_both_compilers_tell_of_the_same_registers() -> None:
    text, macros = kernel_source.device_text("append"), used_macros("append", Variant().macros())
    for compiler in (Nvcc("nvcc"), Nvrtc()):
        said = compiler.compile(text, "sm_90", macros, name="append")
        assert re.search(r"Used (2\d|3\d) registers", said)
        assert "0 bytes spill stores" in said


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_100"])
def test_the_stopwatchs_own_kernels_compile(architecture: str) -> None:
    said = Nvrtc().compile(timing._SOURCE, architecture, (), name="stopwatch")
    assert said.count("0 bytes spill stores") == 2


SPILLS = """
extern "C" __global__ void __launch_bounds__(1024) NAME(float* out, const float* in) {
  float kept[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) kept[i] = in[threadIdx.x + i * 1024];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 96; ++i) out[threadIdx.x + (95 - i) * 1024] = kept[i] * kept[(i * 7 + 3) % 96];
}
"""


@needs_compiler
@pytest.mark.parametrize(("kernel", "fails"), [("paged_decode", True), ("append", False)])
def test_a_spill_fails_in_the_hot_kernel_alone(kernel: str, fails: bool) -> None:
    texts = dict.fromkeys(kernel_source.FILES, 'extern "C" __global__ void nothing() {}')
    texts[kernel] = SPILLS.replace("NAME", kernel)
    record = compile_all((Variant(),), quickest(), grid="one", architectures=("sm_90",), texts=texts)
    spilled = [row for row in record.rows if row.spill_store_bytes]
    assert {row.kernel for row in spilled} == {kernel}
    assert bool(record.failed) == fails
    if fails:
        assert f"{spilled[0].spill_store_bytes} bytes spilled" in record.text()


@needs_compiler
def test_a_refused_kernel_is_a_row_with_the_compilers_words() -> None:
    texts = dict.fromkeys(kernel_source.FILES, 'extern "C" __global__ void nothing() {}')
    texts["append"] = "this is no kernel"
    record = compile_all((Variant(),), quickest(), grid="one", architectures=("sm_90",), texts=texts)
    assert [row.kernel for row in record.failed] == ["append"]
    assert "error" in record.failed[0].error
    assert "FAILED append sm_90" in record.text()


def test_a_compiler_that_is_not_here_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="there is no compiler 'gcc'"):
        find_compiler("gcc")
    monkeypatch.setattr("gpu_validate.compile.shutil.which", lambda name: None)
    monkeypatch.setattr("gpu_validate.compile.nvrtc.library_path", lambda: None)
    for name in ("auto", "nvcc", "nvrtc"):
        with pytest.raises(InputError, match="pip install nvidia-cuda-nvrtc"):
            find_compiler(name)


def test_a_kernel_depends_on_the_macros_that_it_names() -> None:
    macros = Variant().macros()
    assert used_macros("paged_decode", macros) == macros
    assert used_macros("merge_splits", macros) == ("HEAD_DIM=128", "DTYPE=BFLOAT16")
    assert used_macros("copy_blocks", macros) == ()


@pytest.mark.slow
@needs_compiler
def test_the_full_grid_compiles_for_every_architecture() -> None:
    record = compile_all(grid("full"), quickest(), grid="full")
    assert record.failed == (), record.text()
