"""Arrivals by number of scheduling pass instead of by time, for recorded schedules that were fed so."""

from __future__ import annotations

import numpy as np

from simulator.inbox import NEVER_PS, Inbox
from simulator.request import Request
from workloads.workload import Workload

NOT_DUE_PS = NEVER_PS - 1


class StepInbox(Inbox):
    """An inbox whose workload has numbers of passes in ``arrival_ps``: a row arrives before that pass.

    ``step`` numbers the coming pass; whoever makes passes says so (``passed``). An idle replica jumps to the step of
    the next arrival, and its clock stands still.
    """

    def __init__(self, workload: Workload, max_model_len: int) -> None:
        self.step = 0
        self._by_step = Inbox(workload, np.arange(len(workload)), max_model_len)
        self._look()

    def _look(self) -> None:
        due = self._by_step.next_ps
        self.next_ps = 0 if due <= self.step else NEVER_PS if due == NEVER_PS else NOT_DUE_PS

    def take(self, now_ps: int) -> list[Request]:
        taken = self._by_step.take(self.step)
        self._look()
        return taken

    def wake_ps(self, now_ps: int) -> int:
        self.step = max(self.step, self._by_step.next_ps)
        self._look()
        return now_ps

    def passed(self) -> None:
        """A pass was made."""
        self.step += 1
        self._look()
