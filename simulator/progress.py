"""Says how far a run is: a bar on a terminal, a line every few seconds elsewhere, nothing when quiet.

Everything goes to stderr, so that stdout stays clean for ``--json``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

SECONDS_BETWEEN_LINES = 5.0
SECONDS_BETWEEN_BARS = 0.1
BAR_COLUMNS = 30


@dataclass
class Progress:
    """Call it with (done, total, simulated seconds); ``total`` 0 is unknown. ``close()`` ends the bar's line.

    Invariant: at most one bar stands on the terminal's last line, and only while ``open``.
    """

    label: str
    quiet: bool = False
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    clock: Callable[[], float] = time.monotonic
    open: bool = False
    _next_s: float = field(init=False)
    _terminal: bool = field(init=False)

    def __post_init__(self) -> None:
        self._terminal = self.stream.isatty()
        # A run that ends before the first line is due prints nothing.
        self._next_s = self.clock() + (SECONDS_BETWEEN_BARS if self._terminal else SECONDS_BETWEEN_LINES)

    def __call__(self, done: int, total: int, simulated_s: float | None = None) -> None:
        """Shows where the run is, if it is time to."""
        if self.quiet or self.clock() < self._next_s:
            return
        share = min(1.0, done / total) if total else 0.0
        count = f"{done}/{total}" if total else f"{done}"
        if simulated_s is not None:
            count += f", {simulated_s:.0f} s simulated"
        if self._terminal:
            bar = "#" * int(BAR_COLUMNS * share)
            self.stream.write(f"\r{self.label} [{bar:<{BAR_COLUMNS}}] {share:4.0%} {count} ")
            self.open = True
            self._next_s = self.clock() + SECONDS_BETWEEN_BARS
        else:
            self.stream.write(f"{self.label}: {share:.0%} ({count})\n")
            self._next_s = self.clock() + SECONDS_BETWEEN_LINES
        self.stream.flush()

    def close(self) -> None:
        """Wipes the bar, so that what follows starts on a clean line."""
        if self.open:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
            self.open = False
