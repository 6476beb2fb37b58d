"""Local processes, one a core, each warm for the whole sweep.

Not ``concurrent.futures``: its pool breaks as a whole when one process dies, cannot tell which task killed it, and
leaves its processes behind when the parent is killed. Here each worker has a pipe of its own: a dead worker names its
task, and a worker whose parent is gone reads the end of its pipe and ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from simulator.planner.executors.base import TICK_S, ExecutorError, lost
from simulator.planner.point import Outcome, Task

TRIES = 2
"""A task may kill this many workers; more often it would only kill again."""
_DEATHS_IN_A_ROW = 8
_PATIENCE_S = 5.0


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    task: Task | None = None


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
        queue = iter(tasks)
        again: list[Task] = []
        deaths: dict[int, int] = {}
        in_a_row = 0

        def hand_out(worker: _Worker) -> None:
            worker.task = again.pop() if again else next(queue, None)
            if worker.task is not None:
                with suppress(OSError):  # it is dead: its pipe says so next
                    worker.pipe.send(worker.task)

        try:
            first = next(queue, None)
            while first is not None and len(self._alive) < self._workers:
                again.append(first)
                self._alive.append(worker := _start())
                hand_out(worker)
                first = next(queue, None)
            if first is not None:
                again.append(first)
            while any(worker.task for worker in self._alive):
                ready = wait([worker.pipe for worker in self._alive], TICK_S)
                if not ready:
                    yield None
                for worker in [worker for worker in self._alive if worker.pipe in ready]:
                    task, outcome = worker.task, _received(worker)
                    if outcome is not None:
                        in_a_row = 0
                        hand_out(worker)  # before the outcome is written, so that the worker does not wait for that
                        assert task is not None
                        yield task.index, outcome
                        continue
                    code = _buried(worker)
                    self._alive.remove(worker)
                    in_a_row += 1
                    if in_a_row >= _DEATHS_IN_A_ROW:
                        raise ExecutorError(f"workers end at once ({_reason(code)})", remedy="try --workers 1")
                    ended = None
                    if task is not None:
                        deaths[task.index] = deaths.get(task.index, 0) + 1
                        if deaths[task.index] < TRIES:
                            again.append(task)
                        else:
                            ended = lost(f"the worker process died {TRIES} times ({_reason(code)})")
                    self._alive.append(worker := _start())
                    hand_out(worker)
                    if ended is not None and task is not None:
                        yield task.index, ended
        finally:
            self.close()

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
    # "spawn" on every system: it inherits no lock, no thread and no open pipe of another worker.
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), name="kvplan-sweep-worker", daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, mine)


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
