"""Runs one scenario: deployment and workload, then the simulation, then the metrics. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simulator.admission import AdmissionResult, admit_until_refused, allocator_for
from simulator.cluster import simulate
from simulator.deployment import Deployment, build_deployment
from simulator.errors import InputError, KvplanError
from simulator.random_streams import Streams
from simulator.run_log import RunLog
from simulator.scenario import Scenario
from simulator.scenario_resolved import plain, scenario_sha256
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
    notes = (*scenario.settings.assumptions, *scenario.notes, *deployment.assumptions, *workload.notes)
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
