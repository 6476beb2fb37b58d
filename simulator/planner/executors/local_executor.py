"""Local processes, one a core, each warm for the whole sweep.

Not ``concurrent.futures``: its pool breaks as a whole when one process dies, cannot tell which task killed it, and
leaves its processes behind when the parent is killed. Here each worker has a pipe of its own: a dead worker names its
task, and a worker whose parent is gone reads the end of its pipe and ends.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from simulator.planner.executors.base import TICK_S, ExecutorError, lost
from simulator.planner.point import Outcome, Task
from simulator.planner.warm import worker_context

TRIES = 2
"""A task may kill this many workers; more often it would only kill again."""
_DEATHS_IN_A_ROW = 8
_PATIENCE_S = 5.0


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    task: Task | None = None


@dataclass
class _Queue:
    """Tasks that wait: those of dead workers first. ``deaths`` counts the workers that each task took with it."""

    tasks: Iterator[Task]
    again: list[Task] = field(default_factory=list)
    deaths: dict[int, int] = field(default_factory=dict)

    def next(self) -> Task | None:
        return self.again.pop() if self.again else next(self.tasks, None)


class LocalExecutor:
    """Runs tasks in processes of this machine.

    Invariant: while ``run`` is suspended every living worker has a task, or no task waits.
    """

    def __init__(self, *, workers: int | None = None, scheduler: str | None = None, quiet: bool = False) -> None:
        self._workers = workers or usable_cores()
        self._alive: list[_Worker] = []

    @property
    def workers(self) -> int:
        """Processes at once."""
        return self._workers

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[int, Outcome] | None]:
        """See ``Executor``."""
        queue = _Queue(iter(tasks))
        deaths_in_a_row = 0
        try:
            while len(self._alive) < self._workers and (task := queue.next()) is not None:
                self._begin(task)
            while any(worker.task for worker in self._alive):
                ready = wait([worker.pipe for worker in self._alive], TICK_S)
                if not ready:
                    yield None
                for worker in [worker for worker in self._alive if worker.pipe in ready]:
                    task, outcome = worker.task, _received(worker)
                    if outcome is None:
                        deaths_in_a_row += 1
                        outcome = self._after_death(worker, queue, last=deaths_in_a_row >= _DEATHS_IN_A_ROW)
                    else:
                        deaths_in_a_row = 0
                        _hand(worker, queue.next())  # before the outcome is written: the worker need not wait for that
                    if task is not None and outcome is not None:
                        yield task.index, outcome
        finally:
            self.close()

    def _begin(self, task: Task) -> None:
        self._alive.append(worker := _start())
        _hand(worker, task)

    def _after_death(self, worker: _Worker, queue: _Queue, *, last: bool) -> Outcome | None:
        """Puts another worker in the place of a dead one; the outcome of its task where that will not run again."""
        self._alive.remove(worker)
        task, reason = worker.task, _reason(_buried(worker))
        if last:
            raise ExecutorError(f"workers end as soon as they start ({reason})", remedy="try --workers 1")
        outcome = None
        if task is not None:
            queue.deaths[task.index] = queue.deaths.get(task.index, 0) + 1
            if queue.deaths[task.index] < TRIES:
                queue.again.append(task)
            else:
                outcome = lost(f"the worker process died {TRIES} times ({reason})")
        if (following := queue.next()) is not None:
            self._begin(following)
        return outcome

    def close(self) -> None:
        """Ends all processes; a second call does nothing."""
        for worker in self._alive:
            worker.pipe.close()
            if worker.task is not None:
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
    process = context.Process(target=_serve, args=(theirs,), name="kvplan-sweep-worker", daemon=True)  # type: ignore[attr-defined]
    process.start()
    theirs.close()
    return _Worker(process, mine)


def _hand(worker: _Worker, task: Task | None) -> None:
    worker.task = task
    if task is not None:
        with suppress(OSError):  # it is dead: its pipe says so next
            worker.pipe.send(task)


def _serve(pipe: Connection) -> None:
    """A worker's life: it ends when its pipe does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    from simulator.planner.run_point import run_point

    with suppress(EOFError, OSError):
        while True:
            pipe.send(run_point(pipe.recv()))


def _received(worker: _Worker) -> Outcome | None:
    """What the worker sent; None where it has died."""
    try:
        outcome = worker.pipe.recv()
    except (EOFError, OSError):
        return None
    assert isinstance(outcome, Outcome)
    return outcome


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
