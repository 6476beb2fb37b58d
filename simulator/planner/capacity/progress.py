"""Says how far a capacity search is: its phase, and the probes so far (how many there will be, nobody knows)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

from simulator.planner.capacity.probe import ProbeOutcome
from simulator.progress import SECONDS_BETWEEN_BARS, SECONDS_BETWEEN_LINES


@dataclass
class CapacityProgress:
    """``phase`` and ``outcome`` are told; ``close()`` wipes the line."""

    quiet: bool = False
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    clock: Callable[[], float] = time.monotonic
    done: int = 0
    requests: int = 0
    _phase: str = ""
    _open: bool = False
    _next_s: float = 0.0

    def __post_init__(self) -> None:
        self._next_s = self.clock() + self._pause_s

    def phase(self, name: str) -> None:
        """A new phase begins."""
        self._phase = name

    def outcome(self, outcome: ProbeOutcome | None) -> None:
        """A probe has ended; None: time passes."""
        if outcome is not None:
            self.done += 1
            self.requests += int(outcome.facts.get("num_prompts") or 0)
        now = self.clock()
        if self.quiet or now < self._next_s:
            return
        self._next_s = now + self._pause_s
        text = f"{self._phase}: {self.done} probes, {self.requests:,} requests simulated"
        if self.stream.isatty():
            self.stream.write(f"\r\x1b[Kcapacity: {text} ")
            self._open = True
        else:
            self.stream.write(f"capacity: {text}\n")
        self.stream.flush()

    def close(self) -> None:
        """Wipes the line."""
        if self._open:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
            self._open = False

    @property
    def _pause_s(self) -> float:
        return SECONDS_BETWEEN_BARS if self.stream.isatty() else SECONDS_BETWEEN_LINES
