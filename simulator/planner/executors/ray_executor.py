"""A Ray cluster, through Ray's public API: a running one, or local processes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

from simulator.errors import InputError
from simulator.planner.executors.base import TICK_S, lost, other_code
from simulator.planner.executors.local_executor import usable_cores
from simulator.planner.fingerprint import fingerprint
from simulator.planner.point import Outcome, Task
from simulator.planner.run_point import run_point

_TRIES_AFTER_DEATH = 3
_AHEAD = 4


class RayExecutor:
    """Runs tasks as remote functions. Ray itself runs the task of a worker that dies again."""

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
        self._remote = ray.remote(num_cpus=1, max_retries=_TRIES_AFTER_DEATH)(run_point)

    @property
    def workers(self) -> int:
        """Cores of the cluster."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[int, Outcome] | None]:
        """See ``Executor``."""
        queue = iter(tasks)
        index_of: dict[Any, int] = {}
        try:
            while True:
                while len(index_of) < _AHEAD * self.workers and (task := next(queue, None)) is not None:
                    index_of[self._remote.remote(task)] = task.index
                if not index_of:
                    return
                done, _ = self._ray.wait(list(index_of), num_returns=1, timeout=TICK_S)
                if not done:
                    yield None
                for reference in done:
                    yield index_of.pop(reference), self._outcome(reference)
        finally:
            for reference in index_of:
                self._ray.cancel(reference, force=True)

    def _outcome(self, reference: Any) -> Outcome:
        try:
            outcome: Outcome = self._ray.get(reference)
        except self._ray.exceptions.WorkerCrashedError:
            return lost("its Ray workers died again and again")
        except self._ray.exceptions.RayError as error:
            return Outcome("failed", " ".join(f"{type(error).__name__}: {error}".split()), None, 0.0, "")
        return other_code(outcome) if self._foreign and outcome.code != fingerprint() else outcome

    def close(self) -> None:
        """Leaves the cluster; one of its own ends."""
        self._ray.shutdown()
