"""A large fleet on an executor: each job simulates some of its replicas, and the parts are joined here.

A job carries the scenario, not the workload: that follows from it, and a worker builds it once. A digest says whether
it came to the same workload: a trace file may be another one there.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from simulator import run_scenario
from simulator.errors import InputError, KvplanError
from simulator.fleet_parts import FleetPart, joined, simulate_part, why_one_clock
from simulator.planner.executors.base import Executor, ExecutorError
from simulator.run_log import REQUEST_COLUMNS, RunLog
from simulator.run_scenario import Built
from simulator.scenario import Scenario
from workloads.errors import WorkloadError
from workloads.workload import PS_PER_S, Workload

PARTS_PER_WORKER = 4
"""Parts take unequal times; of many small ones no worker waits long for the last."""
REQUESTS_PER_PART = 100_000
"""About 50 MB of a part's log: what is on its way to the parent stays small beside the whole."""

Progress = Callable[[int, int, float], None]


@dataclass(frozen=True)
class FleetJob:
    """The ``Job`` of some replicas. ``scenario`` is pickled: equal bytes are the same scenario."""

    index: int
    scenario: bytes
    digest: bytes
    numbers: tuple[int, ...]
    stepwise: bool = False

    def run(self) -> FleetPart:
        """What these replicas did."""
        try:
            built = _built(self.scenario, self.digest)
            settings = built.deployment.settings
            return simulate_part(
                built.workload,
                built.members(),
                self.numbers,
                router=settings.router,
                seed=settings.seed,
                stepwise=self.stepwise,
            )
        except (KvplanError, WorkloadError) as error:
            return self._fault(error)

    def lost(self, message: str) -> FleetPart:
        """No worker could run it."""
        what = f"{len(self.numbers)} of the fleet's replicas could not be simulated: {message}"
        return self._fault(ExecutorError(what, remedy="try --workers 1"))

    def _fault(self, error: Exception) -> FleetPart:
        return FleetPart(fault=(self.numbers[0], error))


@lru_cache(maxsize=1)
def _built(scenario: bytes, digest: bytes) -> Built:
    """A worker's scenario, kept for its next job."""
    built = run_scenario.build(pickle.loads(scenario))
    if workload_digest(built.workload) != digest:
        raise InputError(
            "a worker reads other requests from the scenario than this machine",
            where="workload",
            remedy="put the same trace file on every worker, or use --executor local",
        )
    return built


def workload_digest(workload: Workload) -> bytes:
    """A hash of who arrives when, with which lengths, and whom they follow."""
    digest = hashlib.blake2b(digest_size=16)
    for column in (workload.arrival_ps, workload.prompt_tokens, workload.output_tokens, workload.after):
        digest.update(np.ascontiguousarray(column).data)
    return digest.digest()


def why_one_process(built: Built) -> str | None:
    """Why a scenario cannot run in parts; None where it can."""
    settings = built.deployment.settings
    if settings.mode == "admission":
        return "mode: admission has no clock and one pool"
    if built.pools is not None:
        return "disaggregation: the decode pool waits for the prefill pool"
    if built.fleet is not None and built.fleet.changes:
        return "fleet.events and fleet.autoscaler: requests go from replica to replica"
    return why_one_clock(built.workload, built.members(), settings.router, settings.seed)


def run_in_parts(
    built: Built,
    scenario: Scenario,
    executor: Executor,
    *,
    stepwise: bool = False,
    progress: Progress = lambda done, total, simulated_s: None,
) -> RunLog:
    """The log of ``run_scenario.run``, by the workers of an executor; ``why_one_process`` must be None.

    Raises:
        what ``run_scenario.run`` raises, or ExecutorError.
    """
    members = built.members()
    jobs = fleet_jobs(built, scenario, executor.workers, stepwise=stepwise)

    def simulation() -> RunLog:
        parts = list(_parts(executor, jobs, len(built.workload), progress))
        return joined(built.workload, members, parts)

    return run_scenario.run(built, simulation=simulation)


def fleet_jobs(built: Built, scenario: Scenario, workers: int, *, stepwise: bool = False) -> list[FleetJob]:
    """All replicas in parts of about equal load: every n-th one, as groups of a fleet stand side by side."""
    replicas = len(built.members())
    count = min(replicas, max(PARTS_PER_WORKER * workers, -(-len(built.workload) // REQUESTS_PER_PART)))
    text, digest = pickle.dumps(scenario), workload_digest(built.workload)
    return [FleetJob(i, text, digest, tuple(range(i, replicas, count)), stepwise) for i in range(count)]


def _parts(executor: Executor, jobs: list[FleetJob], total: int, progress: Progress) -> Iterator[FleetPart]:
    done, end_ps = 0, 0
    outcomes: Any = executor.run(jobs)
    with closing(outcomes):
        for found in outcomes:
            if found is not None:
                part: FleetPart = found[1]
                done += len(part.requests) // len(REQUEST_COLUMNS)
                end_ps = max(end_ps, part.end_ps)
                yield part
            progress(done, total, end_ps / PS_PER_S)
