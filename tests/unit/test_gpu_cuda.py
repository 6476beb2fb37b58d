"""The GPU's side without a GPU: launches compared with the kernels' signatures, and run on the CPU."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpu_validate import calibrate as calibration
from gpu_validate.backend import KernelError
from gpu_validate.card_names import DRIVER_NAMES, card_of
from gpu_validate.cases import Shape, make_case
from gpu_validate.check import check_variant
from gpu_validate.cpu_backend import CpuBackend
from gpu_validate.cuda_backend import CudaBackend
from gpu_validate.cuda_device import CudaDevice, find_cupy
from gpu_validate.layer_shapes import model_shapes
from gpu_validate.plans import StepShape
from gpu_validate.step_measure import StepMeasure
from gpu_validate.timing import Stopwatch, summary
from gpu_validate.variants import Variant
from simulator.catalog import find_model
from simulator.errors import InputError
from tests.support import ROOT

SMALL = Variant(64, 4, 2, "float16", "float16")


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in, fresh."""
    monkeypatch.syspath_prepend(ROOT / "tests" / "fake_gpu")
    for name in ("cupy", "cupy.cuda"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module("cupy")
    for name in ("cupy", "cupy.cuda"):
        sys.modules.pop(name, None)


def test_without_cupy_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(InputError, match=r"--backend cuda: CuPy (is not installed|cannot be loaded).*--backend cpu"):
        CudaBackend()


def test_without_a_gpu_one_sentence_says_so(cupy: Any) -> None:
    cupy.device_count = 0
    with pytest.raises(InputError, match=r"this machine has no GPU .*check --backend cpu"):
        find_cupy()

    def broken() -> int:
        raise RuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient\nmore")

    cupy.cuda.runtime.getDeviceCount = broken
    with pytest.raises(InputError, match="no GPU answers: cudaErrorInsufficientDriver: CUDA driver version is insuff"):
        find_cupy()


def test_facts_name_the_card(cupy: Any) -> None:
    facts = CudaBackend().facts()
    assert facts["device"] == "NVIDIA H200"
    assert facts["driver"] == "13.0"
    assert facts["device_facts"]["processors"] == 132


def test_results_of_the_gpu_side_are_those_of_the_cpu(cupy: Any) -> None:
    """Every argument in its place, split and unsplit, append and copies: run for real, through the shim."""
    cupy.execute = True
    findings = list(check_variant(CudaBackend(), SMALL, longest=24))
    assert {finding.check for finding in findings} == {"numpy", "contiguous", "splits", "copy", "append"}
    assert [finding.detail for finding in findings if not finding.passed] == []


def test_inputs_on_the_host_stay_as_they_are(cupy: Any) -> None:
    cupy.execute = True
    case = make_case(SMALL, Shape((5, 9), prefix=3))
    before = case.k_pool.copy()
    pairs = np.array([[0, 1]], dtype=np.int32)
    ours, theirs = CudaBackend().copy_blocks(case, SMALL, pairs), CpuBackend().copy_blocks(case, SMALL, pairs)
    assert (case.k_pool == before).all()
    assert (ours[0] == theirs[0]).all() and (ours[1] == theirs[1]).all()


def test_a_kernel_is_compiled_once_with_the_macros_that_it_names(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    monkeypatch.setattr(cupy.RawModule, "compile", lambda module: compiled.append(module.options))
    device = CudaDevice()
    wanted = [("paged_decode", Variant()), ("paged_decode", Variant(splits=3)), ("merge_splits", Variant(splits=3))]
    device.prepare([*wanted, ("merge_splits", Variant(block_size=32, splits=2)), ("copy_blocks", Variant())])
    device.prepare(wanted)
    assert sorted(compiled) == sorted(
        [
            ("--std=c++17", *(f"-D{macro}" for macro in Variant().macros())),
            ("--std=c++17", "-DHEAD_DIM=128", "-DDTYPE=BFLOAT16"),
            ("--std=c++17",),
        ]
    )


def test_more_shared_memory_than_48_kib_is_asked_for(cupy: Any) -> None:
    variant = Variant()
    assert variant.geometry().shared_bytes > 48 << 10
    CudaBackend().decode(make_case(variant, Shape((5,))), variant)  # the stand-in refuses it otherwise
    (launch,) = [one for one in cupy.launches if one["kernel"] == "paged_decode"]
    assert launch["shared_mem"] == variant.geometry().shared_bytes
    assert launch["block"] == (variant.geometry().threads, 1, 1)
    assert launch["grid"] == (2, 1, 1)


def test_the_stand_in_refuses_wrong_arguments(cupy: Any) -> None:
    from gpu_validate.kernel_source import device_text

    module = cupy.RawModule(code=device_text("copy_blocks"), options=("--std=c++17",))
    kernel = module.get_function("copy_blocks")
    pool, pairs = cupy.asarray(np.zeros((4, 16), np.uint16)), cupy.asarray(np.zeros((1, 2), np.int32))
    kernel((1, 2, 1), (256, 1, 1), (pool, pool, pairs, np.int32(2)))
    for wrong in ((pool, pairs, pool, np.int32(2)), (pool, pool, pairs, 2), (pool, pool, pairs)):
        with pytest.raises(TypeError):
            kernel((1, 2, 1), (256, 1, 1), wrong)


def test_what_nvrtc_refuses_is_an_error_with_its_words(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(module: Any) -> None:
        raise RuntimeError("kernel.cu(3): error: expected a ;")

    monkeypatch.setattr(cupy.RawModule, "compile", refuse)
    with pytest.raises(KernelError, match="expected a ;"):
        CudaDevice().kernel("append", Variant())


def test_a_stopwatch_reads_cold_and_takes_its_own_events_off(cupy: Any) -> None:
    device = CudaDevice()
    watch = Stopwatch(device, repeats=4, warm_up=2)
    cupy.launches.clear()
    calls = []

    def work() -> None:
        calls.append(len(cupy.launches))
        cupy._clock["us"] += 40.0

    timing = watch.time(work)
    assert timing.median_us == pytest.approx(40.0)
    assert len(calls) == 2 + 1 + 4
    assert [one["kernel"] for one in cupy.launches if one["kernel"] == "sweep"] == ["sweep"] * 4  # before each repeat
    swept = next(one["args"] for one in cupy.launches if one["kernel"] == "sweep")
    assert swept[0].nbytes == 2 * device.facts.l2_bytes
    assert swept[1] == swept[0].nbytes // 16


def test_medians_and_quartiles() -> None:
    timing = summary([1.0, 2.0, 3.0, 4.0, 100.0])
    assert (timing.median_us, timing.low_us, timing.high_us) == (3.0, 2.0, 4.0)
    assert timing.spread == pytest.approx(2 / 3)


def test_a_step_runs_every_layer_in_order(cupy: Any) -> None:
    device = CudaDevice()
    shapes = model_shapes(find_model("llama-3.2-1b"))
    measure = StepMeasure(device, Stopwatch(device, repeats=1), shapes, Variant())
    work = measure.work(StepShape(batch=2, context=40, layers=2))
    cupy.launches.clear()
    work()
    layer = [
        "rms_norm",
        "gemmEx",
        "rope",
        "append",
        "paged_decode",
        "gemmEx",
        "rms_norm",
        "gemmEx",
        "activation",
        "gemmEx",
    ]
    assert [one["kernel"] for one in cupy.launches] == [*layer, *layer, "rms_norm", "gemmEx"]
    products = [(one["k"], one["m"]) for one in cupy.launches if one["kernel"] == "gemmEx"]
    assert products == [*((g.inputs, g.outputs) for _ in range(2) for g in shapes.layers[0].gemms), (2048, 128256)]
    attention = [one["args"] for one in cupy.launches if one["kernel"] == "paged_decode"]
    assert attention[0][4] is not attention[1][4]  # each layer reads a cache of its own
    assert sorted(np.asarray(attention[0][6]).ravel()) == list(range(2 * 3))


def test_the_small_kernels_of_a_step_run_on_the_cpu_too(cupy: Any) -> None:
    """One tiny layer executed: shapes of all arrays fit one another, as the shim sees every access."""
    from dataclasses import replace

    cupy.execute = True
    device = CudaDevice()
    shapes = model_shapes(find_model("llama-3.2-1b"))
    layer = replace(shapes.layers[0], hidden_size=128, query_heads=4, kv_heads=2, mlp_inputs=64)
    head = replace(shapes.head, inputs=128, outputs=64)
    measure = StepMeasure(device, Stopwatch(device), replace(shapes, layers=(layer,), head=head), Variant(64))
    measure.work(StepShape(batch=2, context=21, layers=1))()


def test_a_part_that_breaks_is_noted_and_the_others_are_kept(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Iterator[Any]:
        raise RuntimeError("out of memory")
        yield

    monkeypatch.setattr(calibration, "cache_points", broken)
    from simulator.catalog import find_gpu

    wish = calibration.Wish(model="llama-3.2-1b", plan="small")
    measured = calibration.measure(wish, CudaDevice(), find_model(wish.model), find_gpu("h200-sxm-141gb"))
    assert "FAILED append and copies: RuntimeError: out of memory" in measured.notes
    assert {point.kind for point in measured.points} == {"copy", "gemm", "swap", "launch", "attention", "small", "step"}


def test_time_runs_out_between_points(cupy: Any) -> None:
    from simulator.catalog import find_gpu

    wish = calibration.Wish(model="llama-3.2-1b", plan="small", limit_s=0.0)
    measured = calibration.measure(wish, CudaDevice(), find_model(wish.model), find_gpu("h200-sxm-141gb"))
    assert next(note for note in measured.notes if "cut off" in note) == "matrix products: cut off after 0 s"
    assert len(measured.of("attention")) == 1


def test_steps_are_timed_now_where_no_table_is_given(cupy: Any) -> None:
    from gpu_validate.commands import predict

    answer = predict("default", None, ("2x100", "4x50"), "llama-3.2-1b", None)
    rows = answer.document["points"]
    assert [row["label"].split(" batch=")[1] for row in rows] == ["2 context=100 layers=16", "4 context=50 layers=16"]
    assert all(row["held_out"] for row in rows)
    # The stand-in's layers: 124 MB of weights at 0.8 of 4.8 TB/s, 24.5 µs of kernels; the head 525 MB, 4.5 µs.
    model = find_model("llama-3.2-1b")
    weights = 2 * (sum(g.parameters for g in model_shapes(model).layers[0].gemms) * 16 + 2048 * 128256)
    us = 1e6 * weights / (0.8 * 4800e9) + 16 * (4 * 3 + 5 + 5 * 1.5) + 4.5
    assert rows[0]["measured_us"] == pytest.approx(us, rel=0.01)
    for wrong in ("64", "0x5", "ax2", "64x2048x3"):
        with pytest.raises(InputError, match="is no step"):
            predict("default", None, (wrong,), "llama-3.2-1b", None)
    with pytest.raises(InputError, match="left out"):
        predict("default", None, ("4096x100000",), "llama-3.2-1b", None)


def test_a_card_that_the_catalogue_does_not_know_must_be_named(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert card_of(CudaDevice(), None) == "h200-sxm-141gb"
    monkeypatch.setitem(cupy._properties, "name", b"NVIDIA H999 Ultra")
    with pytest.raises(InputError, match="calls itself 'NVIDIA H999 Ultra'"):
        card_of(CudaDevice(), None)
    assert card_of(CudaDevice(), "h100-sxm-80gb") == "h100-sxm-80gb"
    with pytest.raises(InputError, match="'h9' is not a GPU of the catalogue"):
        card_of(CudaDevice(), "h9")


@pytest.mark.parametrize("name", sorted(DRIVER_NAMES.values()))
def test_names_of_drivers_lead_into_the_catalogue(name: str) -> None:
    from simulator.catalog import gpu_names

    assert name in gpu_names()


def test_ceilings_are_told(cupy: Any) -> None:
    from gpu_validate.goals import ceiling_lines
    from simulator.catalog import find_gpu

    wish = calibration.Wish(model="llama-3.2-1b", plan="small", limit_s=0.0)
    measured = calibration.measure(wish, CudaDevice(), find_model(wish.model), find_gpu("h200-sxm-141gb"))
    text = "\n".join(ceiling_lines(measured))
    # 1 MiB at 0.88 of 4.8 TB/s, 1.5 µs before it; read and written.
    assert f"copy within the card {2 * 2**20 / (1.5e-6 + 2 * 2**20 / (0.88 * 4800e9)) / 1e12:.2f} TB/s" in text
    assert "small kernels follow at 1.50 µs" in text
    assert "swap out in pieces of 64 KiB" in text and "product of 128 x 128 float16" in text


@pytest.mark.parametrize(("one", "other"), [(4, 5), (6, 7), (10, 11)], ids=["pools", "tables", "scales"])
def test_two_arguments_of_one_type_in_each_others_place_are_noticed(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, one: int, other: int
) -> None:
    from dataclasses import replace

    from gpu_validate import cuda_backend

    right = cuda_backend.decode_launches

    def wrong(*args: Any, **kwargs: Any) -> Any:
        first, *rest = right(*args, **kwargs)
        passed = list(first.arguments)
        passed[one], passed[other] = passed[other], passed[one]
        return (replace(first, arguments=tuple(passed)), *rest)

    cupy.execute = True
    monkeypatch.setattr(cuda_backend, "decode_launches", wrong)
    findings = check_variant(CudaBackend(), Variant(64, 4, 2, "float16", "fp8_e4m3"), longest=4)
    assert any(not finding.passed for finding in findings)
