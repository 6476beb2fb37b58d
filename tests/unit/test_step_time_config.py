"""Building step times from a scenario's settings."""

from __future__ import annotations

import pytest

from simulator.errors import InputError
from simulator.specs import Parallelism
from simulator.step_time.base import Batch
from simulator.step_time.config import (
    AiconfiguratorConfig,
    LinearConfig,
    RooflineConfig,
    StepTimeConfig,
    build_step_time,
)
from simulator.step_time.linear import LinearStepTime
from simulator.step_time.roofline import Roofline
from tests.step_time_support import GPUS, batch_of, llama_8b


def roofline(config: RooflineConfig) -> Roofline:
    built = build_step_time(config, model=llama_8b(), gpu=GPUS["h100_sxm"], parallelism=Parallelism())
    assert isinstance(built, Roofline)
    return built


def test_linear_needs_neither_model_nor_gpu() -> None:
    built = build_step_time(LinearConfig(base_ms=6, per_token_us=50, per_context_token_ns=26), model=None, gpu=None)
    assert isinstance(built, LinearStepTime)
    batch = Batch(tokens=2, requests=2, sampled=2, context=30, decodes=2, decode_context=30)
    assert built.segment(batch)[:2] == (6_000_000_000 + 2 * 50_000_000 + 30 * 26_000, 2 * 26_000)


def test_overrides_take_the_place_of_the_calibration_and_say_so() -> None:
    plain = roofline(RooflineConfig())
    mine = roofline(RooflineConfig(memory_efficiency=0.5, overhead_ms=3.0))
    assert mine.calibration.memory_efficiency == mine.calibration.memory_efficiency_8bit == 0.5
    assert mine.calibration.sources["overhead_ms"] == "set by step_time.overhead_ms"
    assert mine.calibration.compute_efficiency == plain.calibration.compute_efficiency
    batch = batch_of([100] * 4, [])
    assert mine.segment(batch).duration_ps > plain.segment(batch).duration_ps


def test_a_narrow_cache_grows_slower() -> None:
    wide, narrow = (
        build_step_time(RooflineConfig(), model=llama_8b(), gpu=GPUS["h100_sxm"], kv_dtype_bytes=width)
        for width in (2.0, 1.0)
    )
    assert narrow.segment(batch_of([9], [])).growth_ps < wide.segment(batch_of([9], [])).growth_ps


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (LinearConfig(-1, 50, 26), "step_time.base_ms: base_ms is -1"),
        (LinearConfig(6, float("nan"), 26), "step_time.per_token_us: per_token_us is nan"),
        (LinearConfig(6, 50, float("inf")), "per_context_token_ns is inf"),
        (LinearConfig(0, 0, 26), "a step takes no time"),
        (AiconfiguratorConfig(), "step_time.kind: kind: aiconfigurator is not built yet.*kind: roofline"),
        (RooflineConfig(memory_efficiency=1.2), "step_time.memory_efficiency: memory_efficiency is 1.2"),
        (RooflineConfig(overhead_ms=-0.1), "step_time.overhead_ms: overhead_ms is -0.1"),
        (RooflineConfig(calibration="defalt"), "did you mean default"),
        (RooflineConfig(calibration="no/such.yaml"), "no/such.yaml: cannot be read"),
        (RooflineConfig(compute_dtype="int3"), "no peak FLOP/s for int3"),
    ],
)
def test_impossible_settings_are_refused(config: StepTimeConfig, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_step_time(config, model=llama_8b(), gpu=GPUS["h100_sxm"])


def test_a_roofline_needs_a_model_and_a_gpu() -> None:
    with pytest.raises(InputError, match="a roofline needs a model"):
        build_step_time(RooflineConfig(), model=None, gpu=GPUS["h100_sxm"])
    with pytest.raises(InputError, match="a roofline needs a gpu"):
        build_step_time(RooflineConfig(), model=llama_8b(), gpu=None)
