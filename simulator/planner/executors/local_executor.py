"""Local processes, one a core, each warm for the whole run.

Not ``concurrent.futures``: its pool breaks as a whole when one process dies, cannot tell which job killed it, and
leaves its processes behind when the parent is killed. Here each worker has a pipe of its own: a dead worker names its
job, and a worker whose parent is gone reads the end of its pipe and ends.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from simulator.planner.executors.base import TICK_S, ExecutorError, after_deaths
from simulator.planner.job import Job, JobQueue, Landed
from simulator.planner.warm import worker_context

TRIES = 2
"""A job may kill this many workers; more often it would only kill again."""
_DEATHS_IN_A_ROW = 8
_PATIENCE_S = 5.0


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    job: Job | None = None


class LocalExecutor:
    """Runs jobs in processes of this machine.

    Invariant: while ``run`` is suspended every living worker has a job, or no job was ready when it was last asked.
    """

    def __init__(self, *, workers: int | None = None, scheduler: str | None = None, quiet: bool = False) -> None:
        self._workers = workers or usable_cores()
        self._alive: list[_Worker] = []
        self._deaths: dict[int, int] = {}
        """How many workers each job took with it."""

    @property
    def workers(self) -> int:
        """Processes at once."""
        return self._workers

    def run(self, jobs: Iterable[Job | None]) -> Iterator[tuple[int, Any] | None]:
        """See ``Executor``."""
        queue = JobQueue(iter(jobs))
        self._deaths = {}
        deaths_in_a_row = 0
        try:
            self._employ(queue)
            while any(worker.job is not None for worker in self._alive):
                ready = wait([worker.pipe for worker in self._alive], TICK_S)
                if not ready:
                    yield None
                for worker in [worker for worker in self._alive if worker.pipe in ready]:
                    job, landed = worker.job, _received(worker)
                    if landed is None:
                        deaths_in_a_row += 1
                        landed = self._after_death(worker, queue, last=deaths_in_a_row >= _DEATHS_IN_A_ROW)
                    else:
                        deaths_in_a_row = 0
                        _hand(worker, queue.next())  # before the outcome is dealt with: it need not wait for that
                    if job is not None and landed is not None:
                        yield job.index, landed.outcome
                        self._employ(queue)  # the outcome may have made jobs ready
            queue.check_ended()
        finally:
            self.close()

    def _employ(self, queue: JobQueue) -> None:
        """Gives whoever is idle a job, and starts workers for jobs that are ready while there are too few."""
        idle = [worker for worker in self._alive if worker.job is None]
        while (idle or len(self._alive) < self._workers) and (job := queue.next()) is not None:
            if not idle:
                self._alive.append(_start())
            _hand(idle.pop() if idle else self._alive[-1], job)

    def _after_death(self, worker: _Worker, queue: JobQueue, *, last: bool) -> Landed | None:
        """Puts another worker in the place of a dead one; the outcome of its job where that will not run again."""
        self._alive.remove(worker)
        job, reason = worker.job, _reason(_buried(worker))
        if last:
            raise ExecutorError(f"workers end as soon as they start ({reason})", remedy="try --workers 1")
        landed = None
        if job is not None:
            self._deaths[job.index] = self._deaths.get(job.index, 0) + 1
            if self._deaths[job.index] < TRIES:
                queue.put_back(job)
            else:
                landed = Landed(job.lost(after_deaths(f"the worker process died {TRIES} times ({reason})")), "")
        self._employ(queue)
        return landed

    def close(self) -> None:
        """Ends all processes; a second call does nothing."""
        for worker in self._alive:
            worker.pipe.close()
            if worker.job is not None:
                worker.process.terminate()
        for worker in self._alive:
            worker.process.join(_PATIENCE_S)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.process.close()
        self._alive.clear()


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _start() -> _Worker:
    # Never a plain fork: a worker must inherit no lock, no thread and no pipe of another worker.
    context = worker_context()
    mine, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), name="kvplan-worker", daemon=True)  # type: ignore[attr-defined]
    process.start()
    theirs.close()
    return _Worker(process, mine)


def _hand(worker: _Worker, job: Job | None) -> None:
    worker.job = job
    if job is not None:
        with suppress(OSError):  # it is dead: its pipe says so next
            worker.pipe.send(job)


def _serve(pipe: Connection) -> None:
    """A worker's life: it ends when its pipe does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    from simulator.planner.job import run_job

    with suppress(EOFError, OSError):
        while True:
            pipe.send(run_job(pipe.recv()))


def _received(worker: _Worker) -> Landed | None:
    """What the worker sent; None where it has died."""
    try:
        landed = worker.pipe.recv()
    except (EOFError, OSError):
        return None
    assert isinstance(landed, Landed)
    return landed


def _buried(worker: _Worker) -> int | None:
    worker.pipe.close()
    worker.process.join(_PATIENCE_S)
    if worker.process.is_alive():
        worker.process.kill()
        worker.process.join()
    code = worker.process.exitcode
    worker.process.close()
    return code


def _reason(code: int | None) -> str:
    if code is not None and code < 0:
        with suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"
