"""On a real GPU: kernels are right, a table of timings is made and fitted. Skips where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_validate.check import run_checks
from gpu_validate.commands import calibrate
from gpu_validate.cuda_backend import CudaBackend
from gpu_validate.cuda_device import find_cupy
from gpu_validate.variants import Variant, grid
from simulator.errors import InputError


@pytest.fixture(scope="module", autouse=True)
def card() -> None:
    try:
        find_cupy()
    except InputError as error:
        pytest.skip(error.what)


def test_the_usual_kernels_are_right() -> None:
    usual = (Variant(), Variant(128, 16, 4, "bfloat16", "fp8_e4m3"), *grid("ci")[:4])
    report = run_checks(CudaBackend(), usual, grid="usual", longest=3000)
    assert [finding.detail for finding in report.failed] == []


@pytest.mark.slow
def test_everything_can_be_timed_and_fitted(tmp_path: Path) -> None:
    answer = calibrate("llama-3.2-1b", None, 1, "small", 300.0, tmp_path, quiet=True)
    assert answer.exit_code == 0, answer.text
    assert (tmp_path / "calibration.yaml").is_file()
