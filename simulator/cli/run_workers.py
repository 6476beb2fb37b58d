"""Where ``kvplan run`` simulates: in this process, or a large fleet in parts on workers; the result is the same."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.progress import Progress
    from simulator.run_log import RunLog
    from simulator.run_scenario import Built
    from simulator.scenario import Scenario


WORTHWHILE_REQUESTS = 200_000
"""From here on workers save more time than they take to start."""
MOST_WORKERS = 8
"""That nobody asked for: each holds the whole workload, and one process puts all together."""


@dataclass(frozen=True)
class Workers:
    """The options of the command line; None where the user left it to us."""

    executor: str | None = None
    scheduler: str | None = None
    count: int | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        """Raises InputError where they contradict each other, before anything is built."""
        if self.executor is self.scheduler is None and self.count in (None, 1):
            return
        from simulator.planner.executors import check_executor
        from simulator.planner.warm import warm_up

        check_executor(self.executor or "local", workers=self.count, scheduler=self.scheduler)
        if self.executor in (None, "local"):
            warm_up()

    @property
    def asked(self) -> bool:
        """Whether the user wants more than this process."""
        return self.executor is not None or self.scheduler is not None or self.count not in (None, 1)

    def simulate(self, built: Built, scenario: Scenario, *, stepwise: bool, progress: Progress) -> RunLog:
        """The log of a scenario with a clock."""
        from simulator import run_scenario

        if not (self.asked or self._worthwhile(built)):
            return run_scenario.run(built, stepwise=stepwise, progress=progress)
        from simulator.planner.fleet import run_in_parts, why_one_process

        why = why_one_process(built)
        if why is not None:
            if self.asked and not self.quiet:
                print(f"{progress.label}: simulated in one process: {why}", file=sys.stderr)
            return run_scenario.run(built, stepwise=stepwise, progress=progress)
        from simulator.planner.executors import make_executor

        count = self.count if self.asked else min(_cores(), MOST_WORKERS)
        runner = make_executor(self.executor or "local", workers=count, scheduler=self.scheduler, quiet=self.quiet)
        try:
            return run_in_parts(built, scenario, runner, stepwise=stepwise, progress=progress)
        finally:
            runner.close()

    def _worthwhile(self, built: Built) -> bool:
        """Whether workers that nobody asked for would save time."""
        return self.count != 1 and len(built.workload) >= WORTHWHILE_REQUESTS and _cores() > 1


def _cores() -> int:
    from simulator.planner.executors.local_executor import usable_cores

    return usable_cores()
