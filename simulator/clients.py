"""Who sends requests, and when: open loop, closed loop, sessions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator

import numpy as np
from simpy import Environment
from simpy.events import Event

from simulator.clock import ARRIVAL, Alarm
from workloads.workload import IntColumn, Workload

CHUNK_ROWS = 65_536  # rows turned into Python numbers at a time

Send = Callable[[int, int], None]
"""send(row, now_ps): the row arrives now."""


class Client:
    """Sends the rows of a workload.

    A row without a predecessor is due at its ``arrival_ps``; one that follows another (``after``) is due
    ``think_ps`` after the other has ended, and not before its own ``arrival_ps``. With ``max_concurrency`` a due row
    waits, in order of falling due, until fewer than that many are in flight; it *arrives* when it is sent, as with
    vLLM's benchmark client. ``rows`` are those to send, ascending (None: all); none may follow one that is not sent.
    """

    def __init__(self, env: Environment, workload: Workload, send: Send, rows: IntColumn | None = None) -> None:
        self.env = env
        self.workload = workload
        self.send = send
        self.limit = workload.max_concurrency
        self.in_flight = 0
        self.due: deque[int] = deque()
        self.followers: dict[int, list[int]] = {}
        self.rows = np.arange(len(workload), dtype=np.int64) if rows is None else rows
        for row in self.rows[workload.after[self.rows] >= 0].tolist():
            self.followers.setdefault(int(workload.after[row]), []).append(row)
        self.reacts = self.limit is not None or bool(self.followers)
        env.process(self._run())

    def _run(self) -> Generator[Event, None, None]:
        env, workload = self.env, self.workload
        follows = bool(self.followers)
        for begin in range(0, len(self.rows), CHUNK_ROWS):
            rows = self.rows[begin : begin + CHUNK_ROWS]
            for row, arrival in zip(rows.tolist(), workload.arrival_ps[rows].tolist(), strict=True):
                if follows and workload.after[row] >= 0:
                    continue
                wait = arrival - self._now()
                if wait > 0:
                    yield Alarm(env, wait, ARRIVAL + row)
                self._fall_due(row)

    def _now(self) -> int:
        return int(self.env.now)

    def _fall_due(self, row: int) -> None:
        if self.limit is None:
            self.send(row, self._now())
        elif self.in_flight < self.limit:
            self.in_flight += 1
            self.send(row, self._now())
        else:
            self.due.append(row)

    def ended(self, row: int) -> None:
        """A request has ended, now: others may follow. Called only if ``reacts``."""
        if self.limit is not None:
            self.in_flight -= 1
            if self.due:
                self.in_flight += 1
                self._later(self.due.popleft(), 0, self._send_later)
        for follower in self.followers.pop(row, ()):
            due = max(self._now() + int(self.workload.think_ps[follower]), int(self.workload.arrival_ps[follower]))
            self._later(follower, due - self._now(), self._fall_due)

    def _later(self, row: int, delay_ps: int, action: Callable[[int], None]) -> None:
        """Through the clock even without delay: arrivals come after everything that ends now."""
        Alarm(self.env, delay_ps, ARRIVAL + row).on_time(lambda _: action(row))

    def _send_later(self, row: int) -> None:
        self.send(row, self._now())
