"""Runs one scenario: deployment and workload, then the simulation, then the metrics. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from struct import error as StructError
from typing import Any

import numpy as np

from simulator.allocators.pools import ContiguousPool
from simulator.cluster import simulate_fleet
from simulator.deployment import Deployment, build_deployment
from simulator.disaggregation_pools import DisaggregatedDeployment, build_disaggregated
from simulator.errors import DoesNotFitError, InputError, KvplanError
from simulator.expectations import judge_expectations
from simulator.fleet_deployment import FleetDeployment, build_fleet, routing_warnings
from simulator.measured import beside_predicted, comparison_warnings
from simulator.members import Member
from simulator.memory_budget import MemoryBudget
from simulator.metrics import MetricsOptions
from simulator.result import ResultContext, result_dict
from simulator.run_log import RunLog
from simulator.scenario import Scenario
from simulator.scenario_resolved import plain, scenario_sha256
from simulator.scenario_workload import nothing_shared, scenario_workload
from simulator.step_time.pipelined_roofline import PipelinedRoofline
from simulator.step_time.roofline import Roofline
from simulator.unserved import unserved_error
from workloads.errors import WorkloadError
from workloads.workload import RequestClass, Workload

Progress = Callable[[int, int, float], None]
DEFAULT_CLASS = RequestClass().name
Timed = Roofline | PipelinedRoofline
"""Step times that rest on a calibration."""


@dataclass(frozen=True)
class Built:
    """A scenario ready to run; with two pools, ``deployment`` is their face."""

    deployment: Deployment
    workload: Workload
    resolved: dict[str, Any]
    sha256: str
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    pools: DisaggregatedDeployment | None = None
    fleet: FleetDeployment | None = None

    @property
    def alike(self) -> bool:
        """Whether all replicas are of one kind."""
        return self.pools is None and (self.fleet is None or len(self.fleet.groups) == 1)

    def members(self) -> list[Member]:
        """The replicas, by number, where there is one pool of them."""
        if self.fleet is not None:
            return self.fleet.members()
        return self.deployment.members()


def build(scenario: Scenario) -> Built:
    """Everything that is known before the clock starts.

    Raises:
        InputError, DoesNotFitError: with ``file:line:column`` of the setting that is wrong.
    """
    try:
        pools = build_disaggregated(scenario.settings) if scenario.settings.disaggregation else None
        fleet = build_fleet(scenario.settings) if scenario.settings.fleet else None
        deployment = pools.face if pools else fleet.face if fleet else build_deployment(scenario.settings)
        workload = scenario_workload(deployment)
        replicas = fleet.replicas if fleet else deployment.parallelism.replicas
        warnings = [
            *deployment.warnings,
            *check_lengths(workload, deployment.engine.max_model_len),
            *routing_warnings(deployment.settings.router, workload, replicas),
        ]
    except (KvplanError, WorkloadError) as error:
        raise scenario.located(error) from None
    notes = (
        *scenario.settings.assumptions,
        *scenario.notes,
        *deployment.assumptions,
        *nothing_shared(pools.prefill if pools else deployment, workload),
    )
    assumptions = tuple(dict.fromkeys(notes))  # a resolved scenario brings some of them along
    resolved = plain(replace(deployment.settings, assumptions=assumptions))
    return Built(deployment, workload, resolved, scenario_sha256(resolved), assumptions, tuple(warnings), pools, fleet)


def check_lengths(workload: Workload, max_model_len: int) -> list[str]:
    """A warning where some prompts are longer than the context; InputError where all are, or none is there."""
    if len(workload) == 0:
        raise InputError("holds no request", where="workload", remedy="raise num_requests, or give another trace")
    prompts = workload.prompt_tokens
    too_long = int(np.count_nonzero(prompts >= max_model_len))
    if too_long == 0:
        return []
    needed = int(prompts.max()) + 1
    if too_long == len(workload):
        raise InputError(
            f"the context of {max_model_len} tokens is too short for every prompt (the shortest has {prompts.min()})",
            where="engine.max_model_len",
            remedy=f"set max_model_len: {needed} or more, or shorten workload.prompt_tokens",
        )
    return [
        f"{too_long} of {len(workload)} prompts are longer than the context of {max_model_len} tokens and are "
        f"rejected, as the real server does (engine.max_model_len: {needed} takes them all)"
    ]


def run(
    built: Built,
    *,
    stepwise: bool = False,
    progress: Progress | None = None,
    simulation: Callable[[], RunLog] | None = None,
) -> RunLog:
    """The simulation.

    Args:
        simulation: gives the same log in another way, such as by many processes (``planner.fleet``).
    Raises:
        InputError: it lasts longer than the clock of 64-bit picoseconds holds.
    """
    try:
        return simulation() if simulation else _simulate(built, stepwise, progress)
    except DoesNotFitError as error:
        if error.where is not None:  # a run that ran into a wall, not a pool that takes nothing
            raise
        raise unserved_error(built.deployment, built.workload) from None
    except (OverflowError, StructError):
        raise InputError(
            "the run lasts longer than the clock of 106 days",
            where="step_time",
            remedy="give shorter step times or fewer requests",
        ) from None


def _simulate(built: Built, stepwise: bool, progress: Progress | None) -> RunLog:
    if built.pools:
        return built.pools.simulate(built.workload, stepwise=stepwise, progress=progress)
    if built.fleet:
        return built.fleet.simulate(built.workload, stepwise=stepwise, progress=progress)
    settings = built.deployment.settings
    return simulate_fleet(
        built.workload,
        built.members(),
        router=settings.router,
        seed=settings.seed,
        stepwise=stepwise,
        progress=progress,
    )


def result(built: Built, log: RunLog, variant: str | None = None) -> dict[str, Any]:
    """``result.json`` of a simulated run."""
    deployment = built.deployment
    settings = deployment.settings
    step_time = deployment.step_time
    found = result_dict(
        log,
        ResultContext(
            **names(built, variant),
            calibration=step_time.calibration.name if isinstance(step_time, Timed) else None,
            warnings=built.warnings,
            assumptions=(*built.assumptions, *_timing_and_price(built)),
            step_time=getattr(settings.step_time, "kind", ""),
            gpus_per_replica=deployment.parallelism.gpus_per_replica,
            usd_per_gpu_hour=deployment.usd_per_gpu_hour,
            usd_per_gpu_hour_by_group=built.fleet.prices() if built.fleet else {},
            labels=labels(deployment),
            options=MetricsOptions(
                slo=settings.slo,
                warmup_s=settings.warmup_s,
                step_hint=step_time.bound_by if isinstance(step_time, Timed) and built.alike else None,
            ),
        ),
    )
    if built.pools:
        built.pools.describe(found)
    if built.fleet:
        built.fleet.describe(found)
    memory = {"memory": memory_table(deployment.memory)} if deployment.memory else {}
    measured = beside_predicted(log, found)
    found["warnings"] = [*found["warnings"], *comparison_warnings(measured)]
    return found | memory | measured | {"expect": judge_expectations(found, settings.expect)}


def memory_table(memory: MemoryBudget) -> dict[str, Any]:
    """What the memory of each GPU holds: rows in bytes that add up to the whole, and what the pool is worth."""
    return {
        "rows": [{"name": row.name, "bytes": row.bytes, "basis": row.basis} for row in memory.rows],
        "kv_cache_tokens": memory.kv_cache_tokens,
        "max_model_len": memory.settings.max_model_len,
        "max_concurrency": memory.max_concurrency,
    }


def _timing_and_price(built: Built) -> tuple[str, ...]:
    """What latencies and costs rest on, where the scenario does not state it itself."""
    found, deployment = [], built.deployment
    if isinstance(deployment.step_time, Timed):
        rates = deployment.step_time.calibration
        found.append(
            f"step times from a roofline with calibration {rates.name} (measured on: {rates.measured_on}): "
            f"{rates.memory_efficiency:.0%} of the GPU's bandwidth, {rates.compute_efficiency:.0%} of its FLOP/s, "
            f"{rates.kv_read_efficiency:.0%} of the bandwidth for KV, {rates.overhead_ms:g} ms a step and "
            f"{rates.layer_overhead_us:g} us a layer"
        )
    if deployment.settings.cost.usd_per_gpu_hour is None:
        prices = built.fleet.prices() if built.fleet else {"": deployment.usd_per_gpu_hour}
        found += [
            f"usd_per_gpu_hour = {price:g}{f' in group {group}' if group else ''} (an example price of the catalogue; "
            "state cost.usd_per_gpu_hour)"
            for group, price in prices.items()
            if price is not None
        ]
    return tuple(found)


def missed(result: Mapping[str, Any]) -> list[str]:
    """Which SLOs and expectations a result misses, one line each."""
    limits = (result.get("slo") or {}).get("limits", [])
    lines = [
        f"{'' if limit['class'] == DEFAULT_CLASS else limit['class'] + ': '}{limit['stat']} of "
        f"{limit['metric'].removesuffix('_ms')} is {limit['value']:,.1f} ms, above its {limit['limit']:,g} ms"
        for limit in limits
        if not limit["met"]
    ]
    return lines + [f"{row['key']} is {row['value']}, not as expected" for row in result["expect"] if not row["met"]]


def names(built: Built, variant: str | None) -> dict[str, Any]:
    """Keys of ``result.json`` that say what was run."""
    deployment = built.deployment
    return {
        "name": deployment.settings.name,
        "variant": variant,
        "model_id": deployment.model.name,
        "gpu": deployment.gpu.name if deployment.gpu else "",
        "seed": deployment.settings.seed,
        "scenario_sha256": built.sha256,
    }


def labels(deployment: Deployment) -> dict[str, Any]:
    """Short settings for a table of variants."""
    pool = deployment.pool
    preset = {"preset": deployment.settings.engine.preset}
    if isinstance(pool, ContiguousPool):
        return preset | {"allocator": "contiguous", "reservation": pool.reservation, "fit": pool.fit}
    return preset | {"allocator": "paged", "block_size": pool.block_size}
