"""The kernels through the CPU shim: right on every edge, whatever the order of threads; no byte read twice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gpu_validate import kernel_source
from gpu_validate.backend import KernelError
from gpu_validate.cases import Shape, make_case
from gpu_validate.check import run_checks
from gpu_validate.cpu_backend import Counters, CpuBackend
from gpu_validate.variants import Variant, grid
from tests.kernel_support import (
    EVERY_LINE,
    decode_faults,
    float8_faults,
    needs_compiler,
    planted,
    quick_backend,
    write_faults,
)

pytestmark = needs_compiler


@pytest.mark.parametrize("variant", EVERY_LINE, ids=lambda v: v.name)
def test_kernels_are_right(variant: Variant) -> None:
    backend = quick_backend(seed=7)
    assert not list(decode_faults(backend, variant))
    assert not list(decode_faults(backend, variant.with_splits(3)))
    assert not list(write_faults(backend, variant))


def test_the_check_of_a_variant_passes_and_says_what_ran(tmp_path: Path) -> None:
    done: list[tuple[int, int]] = []
    variants = (EVERY_LINE[0],)
    report = run_checks(quick_backend(), variants, grid="one", progress=lambda *at: done.append(at))
    assert not report.failed and done == [(0, 1), (1, 1)]
    assert {finding.check for finding in report.findings} == {"numpy", "contiguous", "splits", "append", "copy"}
    report.write(tmp_path / "check.json")
    written = json.loads((tmp_path / "check.json").read_text())
    assert written["kernel_hash"] == kernel_source.digest() and written["driver"] is None and written["failed"] == 0
    assert written["checks"] == len(written["findings"]) == len(report.findings)


def test_the_check_reports_a_broken_kernel(tmp_path: Path) -> None:
    texts = planted("decode_tiles.h", "length - WINDOW)", "length - WINDOW + 1)")
    report = run_checks(quick_backend(folder=tmp_path, texts=texts), (Variant(64, 16, 1, window=20),), grid="one")
    failed = {finding.check for finding in report.failed}
    assert failed == {"numpy", "splits"} and "instead of" in report.failed[0].detail


def test_fp8_rounds_as_it_should() -> None:
    assert not list(float8_faults(quick_backend(), Variant()))


@pytest.mark.slow
def test_the_ci_grid_passes() -> None:
    assert not run_checks(CpuBackend(), grid("ci"), grid="ci").failed


@pytest.mark.slow
def test_the_full_grid_passes(tmp_path: Path) -> None:
    assert not run_checks(CpuBackend(folder=tmp_path), grid("full"), grid="full", longest=200).failed


@pytest.mark.parametrize("variant", EVERY_LINE[:3], ids=lambda v: v.name)
def test_the_order_of_threads_changes_no_bit(variant: Variant) -> None:
    case = make_case(variant, Shape((40, 130), prefix=9))
    results = [quick_backend(seed=seed).decode(case, variant) for seed in range(4)]
    assert all(np.array_equal(results[0], result) for result in results)


def _counted(variant: Variant, tokens: int) -> Counters:
    backend = quick_backend()
    backend.decode(make_case(variant, Shape((tokens,), kv_heads=1)), variant)
    return backend.counters


def test_matrix_loads_meet_no_bank_twice() -> None:
    for variant in EVERY_LINE:
        counters = _counted(variant, 70)
        assert counters.matrix_loads and counters.bank_conflicts == 0, variant.name


def test_a_tiles_table_entries_are_read_once_and_work_grows_by_tiles() -> None:
    """Each tile costs a lane one table entry; products: 4 of keys and 2 x 4 of values at 64 dimensions."""
    variant = EVERY_LINE[0]
    few, many = _counted(variant, 64 * 4), _counted(variant, 64 * 8)
    assert many.loads - few.loads == 16 * 32
    assert many.products - few.products == 16 * (4 + 2 * 4)
    assert many.barriers == few.barriers == 2


def test_heads_of_a_group_share_one_read() -> None:
    assert _counted(Variant(64, 16, 1), 100).copied_bytes == _counted(Variant(64, 16, 71), 100).copied_bytes


def test_a_compiler_error_is_reported(tmp_path: Path) -> None:
    backend = quick_backend(folder=tmp_path, texts={"append": "no kernel"})
    with pytest.raises(KernelError, match="g\\+\\+ refused the kernel"):
        backend.library("append", Variant())


def test_a_gpus_text_is_whole() -> None:
    for kernel in kernel_source.FILES:
        text = kernel_source.device_text(kernel)
        assert not [line for line in text.splitlines() if line.startswith("#include")]
        assert f"{kernel}(" in text and "DEVICE void copy_async(" in text and "namespace shim" not in text
