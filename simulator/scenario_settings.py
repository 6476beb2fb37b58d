"""What a scenario may say: one tree of frozen dataclasses, from which ``kvplan schema`` draws the JSON Schema."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, MinLen

from simulator.capacity_settings import CapacitySettings
from simulator.disaggregation_settings import DisaggregationSettings
from simulator.engine_settings import Count, EngineSettings
from simulator.fleet_settings import FleetSettings
from simulator.step_time.config import RooflineConfig, StepTimeConfig
from workloads.config import WorkloadConfig

Positive = Annotated[float, Gt(0)]
NotNegative = Annotated[float, Ge(0)]


@dataclass(frozen=True)
class InlineGpu:
    """A GPU that the catalogue lacks. Peaks are dense; a link of None goes through PCIe."""

    memory_gib: Positive
    bandwidth_gb_per_s: Positive
    tflop_per_s: Annotated[dict[str, Positive], MinLen(1)]
    name: str = "inline"
    link_gb_per_s: Positive | None = None
    pcie_gb_per_s: Positive = 32.0
    usd_per_hour: NotNegative | None = None


@dataclass(frozen=True)
class ParallelismSettings:
    """GPUs of one replica, and replicas behind the router.

    ``enable_expert_parallel`` (mixture of experts): tensor-parallel ranks hold whole experts instead of slices.
    """

    tensor_parallel_size: Count = 1
    pipeline_parallel_size: Count = 1
    replicas: Annotated[int, Ge(1), Le(10_000)] = 1  # each is simulated
    enable_expert_parallel: bool | None = None  # left out of what is written down, as false is the default


@dataclass(frozen=True)
class CostSettings:
    """Prices in US dollars."""

    usd_per_gpu_hour: NotNegative | None = None


@dataclass(frozen=True)
class Threshold:
    """A threshold on one number of ``result.json``: a miss makes the command exit with 4."""

    min: float | None = None
    max: float | None = None


Slo = dict[str, dict[str, Positive]]


@dataclass(frozen=True)
class ScenarioSettings:
    """One scenario without its variants.

    Attributes:
        mode: ``serve`` simulates; ``admission`` only places requests at their final length, without a clock.
        model: a catalogue name, a ``config.json`` or its folder, or the keys of a ``config.json`` inline.
        gpu: a catalogue name or inline numbers; not needed where neither memory nor step time asks for it.
        fleet: groups of replicas that differ, failures, starts and stops, an autoscaler.
        disaggregation: two pools of replicas instead of one, for prompts and for answers.
        slo: metric (``ttft_ms``, ``tpot_ms``, ...) to statistic (``p99``, ``mean``, ...) to limit.
        warmup_s: latency statistics leave out what arrived in this first time.
        expect: key of ``result.json`` (dots reach into it) to its threshold.
        assumptions: notes of an earlier resolution (``scenario.resolved.yaml``), listed again with the result.
    """

    name: str
    model: str | dict[str, Any]
    workload: WorkloadConfig
    gpu: str | InlineGpu | None = None
    seed: Annotated[int, Ge(0)] = 0
    mode: Literal["serve", "admission"] = "serve"
    parallelism: ParallelismSettings = field(default_factory=ParallelismSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    router: str = "round_robin"
    fleet: FleetSettings | None = None
    disaggregation: DisaggregationSettings | None = None
    step_time: StepTimeConfig = field(default_factory=RooflineConfig)
    slo: Slo = field(default_factory=dict)
    warmup_s: NotNegative = 0.0
    cost: CostSettings = field(default_factory=CostSettings)
    expect: dict[str, Threshold] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class SweepSettings:
    """What ``kvplan sweep`` varies; ``kvplan run`` ignores it.

    Attributes:
        over: dotted key of a setting to its values; ``a..b`` doubles from a to b (``1..256``).
        replications: runs of each point, each with a seed of its own.
    """

    over: dict[str, list[Any] | str] = field(default_factory=dict)
    replications: Annotated[int, Ge(1), Le(10_000)] = 1


@dataclass(frozen=True)
class ScenarioWithVariants(ScenarioSettings):
    """A scenario file as a whole: ``variants`` maps a name to patches with dotted keys."""

    variants: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    sweep: SweepSettings = field(default_factory=SweepSettings)
    capacity: CapacitySettings = field(default_factory=CapacitySettings)
