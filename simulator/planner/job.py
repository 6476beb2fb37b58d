"""A job: one piece of work that any executor can hand to any worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from simulator.planner.fingerprint import fingerprint


class Job(Protocol):
    """What an executor runs; it can be pickled, and so can its outcome."""

    @property
    def index(self) -> int:
        """Names the job; no two jobs of a run share it."""
        ...

    def run(self) -> Any:
        """The outcome, in whatever process it finds itself. A fault of the job's own belongs in the outcome."""
        ...

    def lost(self, message: str) -> Any:
        """The outcome where ``run`` gave none: its workers died, or another kvplan ran it."""
        ...


@dataclass(frozen=True)
class Landed:
    """An outcome, and the ``fingerprint`` of the kvplan that made it."""

    outcome: Any
    code: str


def run_job(job: Job) -> Landed:
    """Runs a job on a worker. It never raises, for an error of one job is not one of its executor."""
    try:
        outcome = job.run()
    except MemoryError:
        outcome = job.lost("needs more memory than the machine has")
    except Exception as fault:
        outcome = job.lost(f"internal error: {one_line_of(fault)}")
    return Landed(outcome, fingerprint())


def outcome_of(job: Job, landed: Landed) -> Any:
    """What a worker of a foreign cluster made of a job, unless it had another kvplan."""
    if landed.code != fingerprint():
        return job.lost(f"a worker with another kvplan ran it: {landed.code}")
    return landed.outcome


def one_line_of(fault: BaseException) -> str:
    """``TypeError: what was wrong``."""
    return " ".join(f"{type(fault).__name__}: {fault}".split())


@dataclass
class JobQueue:
    """The jobs that wait for a worker: those of dead workers first.

    The iterator may yield None: no job is ready now, ask again after the next outcome.
    """

    jobs: Iterator[Job | None]
    _again: list[Job] = field(default_factory=list)
    _ended: bool = False

    def next(self) -> Job | None:
        """The next job; None where none is ready, now or ever."""
        if self._again:
            return self._again.pop()
        if self._ended:
            return None
        try:
            return next(self.jobs)
        except StopIteration:
            self._ended = True
            return None

    def put_back(self, job: Job) -> None:
        """A job whose worker died."""
        self._again.append(job)

    def check_ended(self) -> None:
        """Called where nothing runs and the caller has seen every outcome.

        Raises:
            RuntimeError: the jobs wait for an outcome that nothing will ever bring.
        """
        if not self._ended:
            raise RuntimeError("no job is ready, none runs, and the jobs have not ended")
