"""A Dask cluster, through dask.distributed's public API: a running one, or local processes behind a scheduler."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from importlib import import_module
from typing import Any

from simulator.errors import InputError
from simulator.planner.executors.base import TICK_S, ExecutorError, after_deaths
from simulator.planner.executors.local_executor import usable_cores
from simulator.planner.fingerprint import fingerprint
from simulator.planner.job import Job, JobQueue, Landed, one_line_of, outcome_of, run_job

_CONNECT_S = 20.0
_JOIN_S = 60.0
_AHEAD = 4
"""Jobs in the cluster for each of its threads: more would only fill its memory."""


class DaskExecutor:
    """Runs jobs as futures. Dask itself runs the jobs of a worker that dies on another one.

    Workers of a cluster need this kvplan (each outcome says which code made it), and the files that a scenario names.
    """

    def __init__(self, *, workers: int | None = None, scheduler: str | None = None, quiet: bool = False) -> None:
        self._dask: Any = import_module("distributed")
        self._foreign = scheduler is not None
        self._cluster: Any = None
        self._client: Any = None
        if scheduler is None:
            self._cluster = self._dask.LocalCluster(
                n_workers=workers or usable_cores(),
                threads_per_worker=1,  # a simulation is plain Python: threads would only take turns
                processes=True,
                host="127.0.0.1",
                dashboard_address=None,
                silence_logs=logging.CRITICAL if quiet else logging.ERROR,
            )
        try:
            address = self._cluster or scheduler
            self._client = self._dask.Client(address, timeout=_CONNECT_S, set_as_default=False)
            self._client.wait_for_workers(1, timeout=_JOIN_S)
        except (OSError, ValueError, TimeoutError) as error:
            self.close()
            raise InputError(
                f"no Dask scheduler with workers answers: {' '.join(str(error).split()) or type(error).__name__}",
                where=f"--scheduler {scheduler}" if scheduler else "--executor dask",
                remedy="start dask scheduler and dask worker, and give its address, such as tcp://127.0.0.1:8786",
            ) from None
        if scheduler is not None:
            self._refuse_other_code(scheduler)
        else:
            self._client.run(_ignore_interrupts)

    @property
    def workers(self) -> int:
        """Threads of all workers that are there now."""
        threads: dict[str, int] = self._client.nthreads()
        return max(1, sum(threads.values()))

    def _refuse_other_code(self, scheduler: str) -> None:
        """Workers that cannot import kvplan, or have another one, would fail job by job."""
        where = f"--scheduler {scheduler}"
        try:
            found: dict[str, str] = self._client.run(fingerprint)
        except ImportError as error:
            self.close()
            remedy = "install kvplan on every worker"
            raise InputError(f"a worker cannot import kvplan: {error}", where=where, remedy=remedy) from None
        for worker, code in found.items():
            if code != fingerprint():
                self.close()
                raise InputError(
                    f"worker {worker} has kvplan {code}, and here is {fingerprint()}",
                    where=where,
                    remedy="install the same version on every worker, and start it again",
                )

    def run(self, jobs: Iterable[Job | None]) -> Iterator[tuple[int, Any] | None]:
        """See ``Executor``."""
        queue = JobQueue(iter(jobs))
        job_of: dict[Any, Job] = {}
        try:
            while True:
                while len(job_of) < _AHEAD * self.workers and (job := queue.next()) is not None:
                    job_of[self._client.submit(run_job, job, pure=False)] = job
                if not job_of:
                    queue.check_ended()
                    return
                try:
                    with self._client.as_current():
                        done, _ = self._dask.wait(list(job_of), timeout=TICK_S, return_when="FIRST_COMPLETED")
                except TimeoutError:
                    yield None
                    continue
                for future in done:
                    job = job_of.pop(future)
                    yield job.index, self._outcome(job, future)
        except CancelledError:
            raise ExecutorError(
                "the connection to the Dask scheduler was lost",
                remedy="start it again, and then the same command (a sweep goes on with --resume)",
            ) from None
        finally:
            if job_of and self._client.status == "running":
                self._client.cancel(list(job_of))

    def _outcome(self, job: Job, future: Any) -> Any:
        if future.status in ("cancelled", "lost"):
            raise CancelledError
        error = future.exception() if future.status == "error" else None
        if isinstance(error, self._dask.KilledWorker):
            return job.lost(after_deaths("its Dask workers died again and again"))
        if error is not None:
            return job.lost(one_line_of(error))
        landed: Landed = future.result()
        return outcome_of(job, landed) if self._foreign else landed.outcome

    def close(self) -> None:
        """Leaves the cluster; one of its own ends."""
        if self._client is not None:
            self._client.close()
        if self._cluster is not None:
            self._cluster.close()


def _ignore_interrupts() -> None:
    """Ctrl-C reaches the whole group; the parent decides, and ends its own cluster."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
