"""The kinds of step time that a scenario can ask for, and how each is built."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from simulator.calibration import find_calibration
from simulator.errors import InputError
from simulator.specs import GpuSpec, ModelSpec, Parallelism
from simulator.step_time.base import StepTimeModel
from simulator.step_time.linear import LinearStepTime
from simulator.step_time.pipelined_roofline import PipelinedRoofline
from simulator.step_time.roofline import Roofline

OVERRIDES = (
    "memory_efficiency",
    "compute_efficiency",
    "kv_read_efficiency",
    "attention_compute_efficiency",
    "link_efficiency",
    "overhead_ms",
    "layer_overhead_us",
    "per_request_us",
)


@dataclass(frozen=True)
class RooflineConfig:
    """A calibration by name or path; any number given here takes the place of the calibration's.

    ``memory_efficiency``, ``compute_efficiency`` and ``kv_read_efficiency`` hold for every number format.

    Attributes:
        compute_dtype: of the linear layers ("bf16", "fp8", ...); None = by the weights.
    """

    kind: Literal["roofline"] = "roofline"
    calibration: str = "default"
    memory_efficiency: float | None = None
    compute_efficiency: float | None = None
    kv_read_efficiency: float | None = None
    attention_compute_efficiency: float | None = None
    link_efficiency: float | None = None
    overhead_ms: float | None = None
    layer_overhead_us: float | None = None
    per_request_us: float | None = None
    compute_dtype: str | None = None


@dataclass(frozen=True)
class LinearConfig:
    """base + per_token · tokens + per_context_token · context, as in the recorded vLLM schedules."""

    base_ms: float
    per_token_us: float
    per_context_token_ns: float
    kind: Literal["linear"] = "linear"


@dataclass(frozen=True)
class AiconfiguratorConfig:
    """NVIDIA's kernel tables: named by the contract, not built yet, refused with what works."""

    kind: Literal["aiconfigurator"] = "aiconfigurator"


StepTimeConfig = RooflineConfig | LinearConfig | AiconfiguratorConfig


def build_step_time(
    config: StepTimeConfig,
    *,
    model: ModelSpec | None,
    gpu: GpuSpec | None,
    parallelism: Parallelism | None = None,
    kv_dtype_bytes: float = 2.0,
    where: str = "step_time",
) -> StepTimeModel:
    """The model of step times of one replica.

    Args:
        model, gpu: only the roofline needs them.
        kv_dtype_bytes: bytes of one value in the KV cache.
        where: dotted path of the settings, for errors.

    Raises:
        InputError: a number cannot be true, the calibration is not found, or the kind is not built.
    """
    if isinstance(config, LinearConfig):
        if parallelism is not None and parallelism.pipeline_parallel_size > 1:
            raise InputError(
                "kind: linear gives the length of a whole step, and a pipeline's clock needs that of each stage",
                where=f"{where}.kind",
                remedy="use kind: roofline with pipeline_parallel_size, or set pipeline_parallel_size: 1",
            )
        return _linear(config, where)
    if isinstance(config, AiconfiguratorConfig):
        raise InputError(
            "kind: aiconfigurator is not built yet",
            where=f"{where}.kind",
            remedy="use {kind: roofline, calibration: default} or {kind: linear, base_ms: 6, per_token_us: 50, "
            "per_context_token_ns: 26}",
        )
    return _roofline(config, model, gpu, parallelism or Parallelism(), kv_dtype_bytes, where)


def _linear(config: LinearConfig, where: str) -> LinearStepTime:
    numbers = (config.base_ms, config.per_token_us, config.per_context_token_ns)
    for name, value in zip(("base_ms", "per_token_us", "per_context_token_ns"), numbers, strict=True):
        if not math.isfinite(value) or value < 0.0:
            raise InputError(f"{name} is {value:g}", where=f"{where}.{name}", remedy="give 0 or more")
    step_time = LinearStepTime.from_units(*numbers)
    if step_time.base_ps == 0 and step_time.per_token_ps == 0:
        raise InputError(
            "a step takes no time: base_ms and per_token_us are both 0",
            where=where,
            remedy="give base_ms above 0, such as 6",
        )
    return step_time


def _roofline(
    config: RooflineConfig,
    model: ModelSpec | None,
    gpu: GpuSpec | None,
    parallelism: Parallelism,
    kv_dtype_bytes: float,
    where: str,
) -> Roofline | PipelinedRoofline:
    if model is None or gpu is None:
        lacking = "model" if model is None else "gpu"
        raise InputError(
            f"a roofline needs a {lacking}",
            where=where,
            remedy=f"name a {lacking}, or use kind: linear with measured numbers",
        )
    overrides = {name: value for name in OVERRIDES if (value := getattr(config, name)) is not None}
    for name in ("memory_efficiency", "compute_efficiency", "kv_read_efficiency"):
        if name in overrides:
            overrides[f"{name}_8bit"] = overrides[name]
    calibration = find_calibration(config.calibration).with_overrides(overrides, where=where)
    build = Roofline if parallelism.pipeline_parallel_size == 1 else PipelinedRoofline
    return build(
        model,
        gpu,
        parallelism,
        calibration,
        kv_dtype_bytes=kv_dtype_bytes,
        compute_dtype=config.compute_dtype,
    )
