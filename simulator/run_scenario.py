"""Runs one scenario: deployment and workload, then the simulation, then the metrics. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simulator.admission import LABEL, AdmissionResult, admit_until_refused, allocator_for
from simulator.allocators.pools import ContiguousPool, PoolConfig
from simulator.cluster import simulate
from simulator.deployment import Deployment, build_deployment
from simulator.errors import InputError, KvplanError
from simulator.expectations import judge_expectations
from simulator.metrics import MetricsOptions
from simulator.random_streams import Streams
from simulator.result import SCHEMA_VERSION, ResultContext, result_dict
from simulator.run_log import RunLog
from simulator.scenario import Scenario
from simulator.scenario_resolved import plain, scenario_sha256
from simulator.step_time.roofline import Roofline
from workloads.build import build_workload
from workloads.errors import WorkloadError
from workloads.workload import Workload

Progress = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Built:
    """A scenario ready to run."""

    deployment: Deployment
    workload: Workload
    resolved: dict[str, Any]
    sha256: str
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]


def build(scenario: Scenario) -> Built:
    """Everything that is known before the clock starts.

    Raises:
        InputError, DoesNotFitError: with ``file:line:column`` of the setting that is wrong.
    """
    try:
        deployment = build_deployment(scenario.settings)
        workload = build_workload(deployment.settings.workload, Streams(deployment.settings.seed))
        warnings = [*deployment.warnings, *check_lengths(workload, deployment.engine.max_model_len)]
    except (KvplanError, WorkloadError) as error:
        raise scenario.located(error) from None
    notes = (*scenario.settings.assumptions, *scenario.notes, *deployment.assumptions)
    assumptions = tuple(dict.fromkeys(notes))  # a resolved scenario brings some of them along
    resolved = plain(replace(deployment.settings, assumptions=assumptions))
    return Built(deployment, workload, resolved, scenario_sha256(resolved), assumptions, tuple(warnings))


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


def run(built: Built, *, stepwise: bool = False, progress: Progress | None = None) -> RunLog:
    """The simulation."""
    deployment = built.deployment
    assert deployment.step_time is not None  # only mode admission has none
    return simulate(
        built.workload,
        deployment.engine,
        deployment.pool,
        deployment.step_time,
        replicas=deployment.parallelism.replicas,
        router=deployment.settings.router,
        seed=deployment.settings.seed,
        stepwise=stepwise,
        progress=progress,
    )


def admit(built: Built) -> AdmissionResult:
    """``mode: admission``: no clock, each request at its final length, until the first that does not fit."""
    limit = built.deployment.engine.max_model_len
    return admit_until_refused(
        allocator_for(built.deployment.pool, limit),
        built.workload.prompt_tokens.tolist(),
        built.workload.output_tokens.tolist(),
        max_model_len=limit,
    )


def result(built: Built, log: RunLog, variant: str | None = None) -> dict[str, Any]:
    """``result.json`` of a simulated run."""
    deployment = built.deployment
    settings = deployment.settings
    prices = (settings.cost.usd_per_gpu_hour, deployment.gpu.usd_per_hour if deployment.gpu else None)
    step_time = deployment.step_time
    found = result_dict(
        log,
        ResultContext(
            **_names(built, variant),
            calibration=step_time.calibration.name if isinstance(step_time, Roofline) else None,
            warnings=built.warnings,
            assumptions=built.assumptions,
            gpus_per_replica=deployment.parallelism.gpus // deployment.parallelism.replicas,
            usd_per_gpu_hour=next((price for price in prices if price is not None), None),
            labels=_labels(deployment),
            options=MetricsOptions(
                slo=settings.slo,
                warmup_s=settings.warmup_s,
                step_hint=step_time.bound_by if isinstance(step_time, Roofline) else None,
            ),
        ),
    )
    return found | {"expect": judge_expectations(found, settings.expect)}


def admission_result(built: Built, admitted: AdmissionResult, variant: str | None = None) -> dict[str, Any]:
    """``result.json`` of mode admission."""
    found = {
        "schema_version": SCHEMA_VERSION,
        "mode": "admission",
        "label": LABEL,
        **_names(built, variant),
        "labels": _labels(built.deployment),
        **admitted.as_dict(),
        "warnings": [*built.warnings],
        "assumptions": [*built.assumptions, *built.workload.notes],
    }
    return found | {"expect": judge_expectations(found, built.deployment.settings.expect)}


def missed(result: Mapping[str, Any]) -> list[str]:
    """Which SLOs and expectations a result misses, one line each."""
    limits = (result.get("slo") or {}).get("limits", [])
    lines = [
        f"{limit['class']}: {limit['stat']} of {limit['metric']} is {limit['value']:.6g}, above {limit['limit']:.6g}"
        for limit in limits
        if not limit["met"]
    ]
    return lines + [f"{row['key']} is {row['value']}, not as expected" for row in result["expect"] if not row["met"]]


def pool_slots(pool: PoolConfig) -> int:
    """Tokens that a pool holds, the null block's included."""
    return pool.num_slots if isinstance(pool, ContiguousPool) else pool.num_gpu_blocks * pool.block_size


def _names(built: Built, variant: str | None) -> dict[str, Any]:
    deployment = built.deployment
    return {
        "name": deployment.settings.name,
        "variant": variant,
        "model_id": deployment.model.name,
        "gpu": deployment.gpu.name if deployment.gpu else "",
        "seed": deployment.settings.seed,
        "scenario_sha256": built.sha256,
    }


def _labels(deployment: Deployment) -> dict[str, Any]:
    """Short settings for a table of variants."""
    pool = deployment.pool
    if isinstance(pool, ContiguousPool):
        return {"allocator": "contiguous", "reservation": pool.reservation, "fit": pool.fit}
    return {"allocator": "paged", "block_size": pool.block_size}
