"""A Dask cluster, through dask.distributed's public API: a running one, or local processes behind a scheduler."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

from simulator.errors import InputError
from simulator.planner.executors.base import TICK_S, ExecutorError, lost
from simulator.planner.executors.local_executor import usable_cores
from simulator.planner.fingerprint import fingerprint
from simulator.planner.point import Outcome, Task
from simulator.planner.run_point import run_point

_CONNECT_S = 20.0
_JOIN_S = 60.0


class DaskExecutor:
    """Runs tasks as futures. Dask itself runs the tasks of a worker that dies on another one.

    Workers of a cluster need this kvplan (each outcome says which code made it), and the files that the scenario names.
    """

    def __init__(self, *, workers: int | None = None, scheduler: str | None = None, quiet: bool = False) -> None:
        from distributed import Client, LocalCluster

        self._cluster: Any = None
        if scheduler is None:
            self._cluster = LocalCluster(
                n_workers=workers or usable_cores(),
                threads_per_worker=1,  # a simulation is plain Python: threads would only take turns
                processes=True,
                host="127.0.0.1",
                dashboard_address=None,
                silence_logs=logging.CRITICAL if quiet else logging.ERROR,
            )
        try:
            self._client = Client(self._cluster or scheduler, timeout=_CONNECT_S, set_as_default=False)
            self._client.wait_for_workers(1, timeout=_JOIN_S)
            self._refuse_other_code()
        except (OSError, ValueError, TimeoutError) as error:
            raise InputError(
                f"no Dask scheduler with workers answers: {error}",
                where=f"--scheduler {scheduler}" if scheduler else "--executor dask",
                remedy="start dask scheduler and dask worker, and give its address, such as tcp://127.0.0.1:8786",
            ) from None

    @property
    def workers(self) -> int:
        """Threads of all workers that are there now."""
        return sum(self._client.nthreads().values())

    def _refuse_other_code(self) -> None:
        """Workers that cannot import kvplan, or another one, would fail point by point."""
        where = "--executor dask"
        try:
            found: dict[str, str] = self._client.run(fingerprint)
        except ImportError as error:
            raise InputError(
                f"a worker cannot import kvplan: {error}", where=where, remedy="install kvplan on every worker"
            ) from None
        for worker, code in found.items():
            if code != fingerprint():
                raise InputError(
                    f"worker {worker} has kvplan {code}, and here is {fingerprint()}",
                    where=where,
                    remedy="install the same version on every worker, and start it again",
                )

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[int, Outcome] | None]:
        """See ``Executor``."""
        from distributed import as_completed

        index_of: dict[Any, int] = {}
        for task in tasks:
            index_of[self._client.submit(run_point, task, pure=False)] = task.index
        arriving = as_completed(list(index_of), raise_errors=False)
        try:
            while index_of:
                try:
                    future = arriving.next(timeout=TICK_S)
                except TimeoutError:
                    yield None
                    continue
                index = index_of.pop(future)
                outcome = _outcome(future)
                future.release()
                yield index, outcome
        finally:
            self._client.cancel(list(index_of))

    def close(self) -> None:
        """Leaves the cluster; one of its own ends."""
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()


def _outcome(future: Any) -> Outcome:
    from distributed import KilledWorker

    if future.status in ("cancelled", "lost"):
        raise ExecutorError("the connection to the Dask scheduler was lost", remedy="--resume goes on from there")
    error = future.exception() if future.status == "error" else None
    if isinstance(error, KilledWorker):
        return lost("its Dask workers died again and again")
    if error is not None:
        return Outcome("failed", " ".join(f"{type(error).__name__}: {error}".split()), None, 0.0, "")
    outcome = future.result()
    assert isinstance(outcome, Outcome)
    if outcome.code != fingerprint():
        return Outcome(
            "failed", f"a worker with other code ran it: {outcome.code}", None, outcome.seconds, outcome.code
        )
    return outcome
