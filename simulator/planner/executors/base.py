"""What an executor promises to whoever has jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from simulator.errors import KvplanError
from simulator.planner.job import Job

TICK_S = 1.0
"""An executor yields None at least this often, so that a waiting user sees that time passes."""


class ExecutorError(KvplanError):
    """The executor itself failed, not one of its jobs. What has landed is kept."""


class Executor(Protocol):
    """Runs jobs in any order.

    ``run`` yields (index, outcome) for every job once, and None now and then. The jobs may come from an iterator that
    yields None where no job is ready: it is asked again at least after each outcome that the caller has seen, so that
    the next jobs can follow from outcomes. Closing the generator early, as an exception or Ctrl-C does, ends what still
    runs. A worker that dies loses no job: it runs again, and a job whose workers die again and again becomes its
    ``lost``.
    """

    @property
    def workers(self) -> int:
        """How many jobs run at once, as far as is known."""
        ...

    def run(self, jobs: Iterable[Job | None]) -> Iterator[tuple[int, Any] | None]:
        """Each job's outcome as it ends.

        Raises:
            RuntimeError: no job is ready, none runs, and the jobs have not ended.
        """
        ...

    def close(self) -> None:
        """Lets go of workers and connections."""
        ...


def after_deaths(what: str) -> str:
    """The message of a job whose workers keep dying."""
    return f"{what} (out of memory? Try fewer workers, or a smaller scenario)"
