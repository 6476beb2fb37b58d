"""Jobs one after the other in this very process: for tests, and where one worker would only cost a start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from simulator.planner.job import Job, JobQueue, run_job


class SerialExecutor:
    """See ``Executor``."""

    workers = 1

    def run(self, jobs: Iterable[Job | None]) -> Iterator[tuple[int, Any] | None]:
        """See ``Executor``."""
        queue = JobQueue(iter(jobs))
        while (job := queue.next()) is not None:
            yield job.index, run_job(job).outcome
        queue.check_ended()

    def close(self) -> None:
        """Nothing to let go of."""
