"""A Ray cluster, through Ray's public API: a running one, or local processes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

from simulator.errors import InputError
from simulator.planner.executors.base import TICK_S, after_deaths
from simulator.planner.executors.local_executor import usable_cores
from simulator.planner.job import Job, JobQueue, Landed, one_line_of, outcome_of, run_job

_TRIES_AFTER_DEATH = 3
_AHEAD = 4


class RayExecutor:
    """Runs jobs as remote functions. Ray itself runs the job of a worker that dies again."""

    def __init__(self, *, workers: int | None = None, scheduler: str | None = None, quiet: bool = False) -> None:
        ray: Any = import_module("ray")
        self._foreign = scheduler is not None
        local: dict[str, Any] = {} if scheduler else {"num_cpus": workers or usable_cores(), "include_dashboard": False}
        try:
            ray.init(
                address=scheduler or "local",
                logging_level=logging.CRITICAL if quiet else logging.ERROR,
                log_to_driver=False,
                **local,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise InputError(
                f"Ray does not start: {' '.join(str(error).split())}",
                where=f"--scheduler {scheduler}" if scheduler else "--executor ray",
                remedy="give the address of a running cluster, such as ray://127.0.0.1:10001, or none",
            ) from None
        self._ray = ray
        self._remote = ray.remote(num_cpus=1, max_retries=_TRIES_AFTER_DEATH)(run_job)

    @property
    def workers(self) -> int:
        """Cores of the cluster."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def run(self, jobs: Iterable[Job | None]) -> Iterator[tuple[int, Any] | None]:
        """See ``Executor``."""
        queue = JobQueue(iter(jobs))
        job_of: dict[Any, Job] = {}
        try:
            while True:
                while len(job_of) < _AHEAD * self.workers and (job := queue.next()) is not None:
                    job_of[self._remote.remote(job)] = job
                if not job_of:
                    queue.check_ended()
                    return
                done, _ = self._ray.wait(list(job_of), num_returns=1, timeout=TICK_S)
                if not done:
                    yield None
                for reference in done:
                    job = job_of.pop(reference)
                    yield job.index, self._outcome(job, reference)
        finally:
            for reference in job_of:
                self._ray.cancel(reference, force=True)

    def _outcome(self, job: Job, reference: Any) -> Any:
        try:
            landed: Landed = self._ray.get(reference)
        except self._ray.exceptions.WorkerCrashedError:
            return job.lost(after_deaths("its Ray workers died again and again"))
        except self._ray.exceptions.RayError as error:
            return job.lost(one_line_of(error))
        return outcome_of(job, landed) if self._foreign else landed.outcome

    def close(self) -> None:
        """Leaves the cluster; one of its own ends."""
        self._ray.shutdown()
