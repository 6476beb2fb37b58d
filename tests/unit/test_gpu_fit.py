"""The fit finds a calibration again from timings made of it; it does not see what is held out, nor invents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpu_validate.fit import fit
from gpu_validate.measurements import Measurements, read_measurements
from gpu_validate.predict import predict
from gpu_validate.regression import non_negative, two_sided
from gpu_validate.residuals import summaries
from gpu_validate.step_prediction import first_layers, step_seconds, with_host, without_host
from simulator.calibration import find_calibration, load_calibration, save_calibration
from simulator.catalog import find_gpu, find_model
from simulator.errors import InputError
from simulator.step_time.config import RooflineConfig, build_step_time
from tests.gpu_tables import table

GPU, MODEL, DEFAULT = find_gpu("h200-sxm-141gb"), find_model("llama-3.1-8b"), find_calibration("default")
TRUTH = replace(
    DEFAULT,
    memory_efficiency=0.83,
    compute_efficiency=0.71,
    compute_efficiency_8bit=0.58,
    kv_read_efficiency=0.93,
    kv_read_efficiency_8bit=0.77,
    attention_compute_efficiency=0.66,
    overhead_ms=0.06,
    layer_overhead_us=27.0,
    per_request_us=0.4,
    replicated_activation_passes=8.0,
    sharded_activation_passes=13.0,
)
"""Of a bare card: the host's part is 0."""

SHARES = [name for name in vars(TRUTH) if "efficiency" in name and name not in ("link_efficiency", "pcie_efficiency")]


def test_without_noise_every_number_comes_back() -> None:
    found = fit(table(TRUTH, GPU, MODEL, noise=0.0), GPU, MODEL)
    for name in (*SHARES, "replicated_activation_passes", "sharded_activation_passes", "layer_overhead_us"):
        assert getattr(found.device, name) == pytest.approx(getattr(TRUTH, name), rel=2e-4), name
    assert found.device.overhead_ms == pytest.approx(TRUTH.overhead_ms, abs=5e-4)
    assert found.device.per_request_us == pytest.approx(TRUTH.per_request_us, abs=5e-3)
    assert found.constants_us["gemm"] == pytest.approx(4.0, abs=1e-2)
    assert found.constants_us["attention"] == pytest.approx(7.0, abs=1e-2)
    assert max(abs(row.error) for row in found.residuals if "block_size=1 " not in row.label) < 1e-3


@pytest.mark.parametrize("seed", range(5))
def test_with_one_percent_of_noise_numbers_stay_within_bounds(seed: int) -> None:
    found = fit(table(TRUTH, GPU, MODEL, noise=0.01, seed=seed), GPU, MODEL).device
    for name in SHARES:
        few = name in ("compute_efficiency_8bit", "attention_compute_efficiency")  # one point, and four
        bound = 0.035 if few else 0.02
        assert getattr(found, name) == pytest.approx(getattr(TRUTH, name), rel=bound), name
    assert found.replicated_activation_passes == pytest.approx(8.0, rel=0.05)
    assert found.sharded_activation_passes == pytest.approx(13.0, rel=0.05)
    assert found.layer_overhead_us == pytest.approx(27.0, rel=0.15)
    assert found.overhead_ms == pytest.approx(0.06, abs=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_steps_that_the_fit_did_not_see_are_predicted(seed: int) -> None:
    measured = table(TRUTH, GPU, MODEL, noise=0.01, seed=seed)
    found = predict(measured.of("step"), fit(measured, GPU, MODEL).calibration, MODEL, GPU)
    assert len(found.unseen) == 5
    assert found.met
    assert max(abs(row.error) for row in found.unseen) < 0.04
    wrong = predict(measured.of("step"), replace(DEFAULT, memory_efficiency=0.6), MODEL, GPU)
    assert not wrong.met


def test_held_out_points_do_not_move_the_fit() -> None:
    measured = table(TRUTH, GPU, MODEL, noise=0.0)
    spoiled = tuple(
        replace(p, timing=replace(p.timing, median_us=3 * p.timing.median_us)) if p.held_out else p
        for p in measured.points
    )
    clean, other = fit(measured, GPU, MODEL), fit(replace(measured, points=spoiled), GPU, MODEL)
    assert other.device == clean.device
    held = [row for row in summaries(other.residuals) if row.held_out]
    assert {row.kind for row in held} == {"gemm", "attention", "step"}
    assert all(row.median_error == pytest.approx(2 / 3, abs=0.01) for row in held)


def test_what_no_point_shows_is_the_default_and_says_so() -> None:
    found = fit(table(TRUTH, GPU, MODEL, noise=0.0, prompts=False), GPU, MODEL)
    assert "attention_compute_efficiency" not in found.fitted
    for name in ("attention_compute_efficiency", "link_efficiency", "pcie_efficiency", "all_reduce_latency_us"):
        assert getattr(found.calibration, name) == getattr(DEFAULT, name)
        assert found.calibration.sources[name].startswith("not measured on this card: the shipped default")
    for name in found.fitted:
        assert found.calibration.sources[name].startswith("measured by gpu_validate on NVIDIA H200: ")


def test_a_card_that_beats_its_data_sheet_is_cut_to_it() -> None:
    measured = table(replace(TRUTH, kv_read_efficiency=1.0), replace(GPU, bandwidth_bytes_per_s=5e12), MODEL, noise=0.0)
    found = fit(measured, GPU, MODEL).calibration
    assert found.kv_read_efficiency == 1.0
    assert "measured 1.042 of the data sheet's figure, cut to 1" in found.sources["kv_read_efficiency"]


def test_the_file_is_what_a_scenario_takes(tmp_path: Path) -> None:
    found = fit(table(TRUTH, GPU, MODEL, noise=0.01), GPU, MODEL)
    path = tmp_path / "h200.yaml"
    save_calibration(found.calibration, path)
    assert load_calibration(path) == found.calibration
    assert load_calibration(path).sources == found.calibration.sources
    config = RooflineConfig(calibration=str(path))
    assert build_step_time(config, model=MODEL, gpu=GPU) is not None
    # A server's host is in the file, and not in what a bare card is compared with.
    assert found.calibration == with_host(found.device)
    assert found.calibration.overhead_ms == pytest.approx(found.device.overhead_ms + DEFAULT.overhead_ms)
    assert without_host(found.calibration).overhead_ms == pytest.approx(found.device.overhead_ms)


def test_a_table_comes_back_from_its_file(tmp_path: Path) -> None:
    measured = table(TRUTH, GPU, MODEL, noise=0.01)
    measured.write(tmp_path / "table.json")
    assert read_measurements(tmp_path / "table.json") == measured
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(InputError, match="is not a table of measurements"):
        read_measurements(tmp_path / "other.json")


def test_too_few_points_are_refused() -> None:
    empty = Measurements({}, "2026-11-30", GPU.name, "0" * 16, ())
    with pytest.raises(InputError, match="too few matrix products"):
        fit(empty, GPU, MODEL)
    with pytest.raises(InputError, match="holds no whole step"):
        predict((), DEFAULT, MODEL, GPU)


def test_coefficients_are_never_negative_and_least() -> None:
    x = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    assert non_negative(x, np.array([3.0, 5.0, 7.0])) == pytest.approx([1.0, 2.0])
    # The free optimum has a negative constant: the slope alone then, by hand: sum(x/t) / sum((x/t)²).
    t = np.array([1.0, 4.0, 7.0])
    ratio = x[:, 1] / t
    assert non_negative(x, t) == pytest.approx([0.0, ratio.sum() / (ratio**2).sum()])


def test_points_on_the_knee_belong_to_no_side() -> None:
    moved = np.full(8, 1e6)
    flops = 1e6 * np.array([1, 2, 4, 90, 110, 400, 800, 1600.0])
    seconds = 1e-6 + np.maximum(moved * 1e-9, flops * 1e-11)
    seconds[3:5] *= 1.4  # as real kernels do between the sides
    found = two_sided(moved, flops, seconds, start=(1e-9, 1e-11))
    assert (found.by_bytes, found.by_flops) == (3, 3)
    assert found.constant_s == pytest.approx(1e-6, rel=1e-6)
    assert found.byte_s == pytest.approx(1e-9)
    assert found.flop_s == pytest.approx(1e-11)


def test_a_model_cut_to_some_layers_costs_that_share() -> None:
    bare = replace(TRUTH, overhead_ms=0.0, per_request_us=0.0)
    shape = {"batch": 4, "context": 1000}
    headless = [step_seconds(bare, MODEL, GPU, {**shape, "layers": layers}) for layers in (8, 16, 32)]
    assert headless[2] - headless[1] == pytest.approx(2 * (headless[1] - headless[0]), rel=1e-5)
    gemma = first_layers(find_model("gemma-2-9b"), 3)
    assert [(group.kind, group.count) for group in gemma.attention] == [("sliding", 2), ("full", 1)]
    assert step_seconds(bare, find_model("gemma-2-9b"), GPU, {**shape, "layers": 3}) > 0


def test_other_ranks_do_not_count() -> None:
    """One rank alone: no all-reduce in its time, so a slower link changes nothing."""
    shape = {"batch": 4, "context": 1000, "layers": 32, "tensor_parallel_size": 4}
    slow = replace(TRUTH, link_efficiency=0.01, all_reduce_latency_us=500.0)
    assert step_seconds(slow, MODEL, GPU, shape) == pytest.approx(step_seconds(TRUTH, MODEL, GPU, shape), rel=1e-5)
