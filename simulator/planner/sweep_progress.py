"""Says how far a sweep is and how long it will take: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

from simulator.planner.sweep import Tally
from simulator.progress import BAR_COLUMNS, SECONDS_BETWEEN_BARS, SECONDS_BETWEEN_LINES

_ENOUGH = 4
"""Outcomes after the first that a guess of the time left needs."""


@dataclass
class SweepProgress:
    """Call it with the tally; ``close()`` ends the bar's line.

    The time left is that of the runs still to do at the pace since the first outcome landed: workers start in the time
    before, and points run in an order in which the first ones are like the rest.
    """

    quiet: bool = False
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    clock: Callable[[], float] = time.monotonic
    _open: bool = False
    _next_s: float = 0.0
    _first: tuple[float, int] | None = None

    def __post_init__(self) -> None:
        self._next_s = self.clock() + self._pause_s

    def __call__(self, tally: Tally) -> None:
        """Shows the state, if it is time to."""
        now = self.clock()
        if self._first is None and tally.done > tally.kept:
            self._first = (now, tally.done)
        if self.quiet or now < self._next_s:
            return
        self._next_s = now + self._pause_s
        left = self.left_s(tally)
        text = f"{tally.done}/{tally.total} runs"
        text += f", {tally.failed} without a result" if tally.failed else ""
        text += f", about {duration_text(left)} left" if left is not None and tally.done < tally.total else ""
        share = tally.done / tally.total if tally.total else 1.0
        if self.stream.isatty():
            bar = "#" * int(BAR_COLUMNS * share)
            self.stream.write(f"\r\x1b[Ksweep [{bar:<{BAR_COLUMNS}}] {share:4.0%} {text} ")
            self._open = True
        else:
            self.stream.write(f"sweep: {share:.0%} ({text})\n")
        self.stream.flush()

    def left_s(self, tally: Tally) -> float | None:
        """Seconds left; None before a few outcomes have landed."""
        if self._first is None:
            return None
        since, done = self._first
        landed = tally.done - done
        if landed < _ENOUGH and tally.total > _ENOUGH:
            return None
        if landed == 0:
            return None
        return (tally.total - tally.done) * (self.clock() - since) / landed

    def close(self) -> None:
        """Wipes the bar."""
        if self._open:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
            self._open = False

    @property
    def _pause_s(self) -> float:
        return SECONDS_BETWEEN_BARS if self.stream.isatty() else SECONDS_BETWEEN_LINES


def duration_text(seconds: float) -> str:
    """``40 s``, ``3 min 20 s``, ``2 h 5 min``."""
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
