"""What a sweep asks of an executor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from simulator.errors import KvplanError
from simulator.planner.point import Outcome, Task

TICK_S = 1.0
"""An executor yields None at least this often, so that a waiting user sees that time passes."""


class ExecutorError(KvplanError):
    """The executor itself failed, not one of its points. What has landed is kept."""


class Executor(Protocol):
    """Runs tasks, each by ``run_point``, in any order.

    ``run`` yields (index, outcome) for every task once, and None now and then. Closing the generator early, as an
    exception or Ctrl-C does, ends what still runs. A worker that dies loses no task: it runs again, and a task whose
    workers die again and again becomes an outcome that says so.
    """

    @property
    def workers(self) -> int:
        """How many tasks run at once, as far as is known."""
        ...

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[int, Outcome] | None]:
        """Each task's outcome as it ends."""
        ...

    def close(self) -> None:
        """Lets go of workers and connections."""
        ...


def lost(what: str) -> Outcome:
    """The outcome of a task whose workers keep dying."""
    return Outcome("failed", f"{what} (out of memory? Try fewer workers, or a smaller point)", None, 0.0, "")


def other_code(outcome: Outcome) -> Outcome:
    """The outcome of a task that another kvplan ran."""
    return Outcome(
        "failed", f"a worker with another kvplan ran it: {outcome.code}", None, outcome.seconds, outcome.code
    )
