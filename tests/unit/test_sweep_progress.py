"""How a sweep says how far it is: a believable time left, a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import io

import pytest

from simulator.planner.sweep import Tally
from simulator.planner.sweep_progress import SweepProgress, duration_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def run(progress: SweepProgress, clock: Clock, total: int, start_s: float, each_s: float, kept: int = 0) -> list[float]:
    """Lets a sweep of equal runs pass; how far off each guess of the time left was, as a share."""
    tally = Tally(total=total, done=kept, kept=kept)
    clock.now += start_s
    off = []
    while tally.done < total:
        clock.now += each_s
        tally.done += 1
        progress(tally)
        left, truth = progress.left_s(tally), (total - tally.done) * each_s
        if left is not None and truth:
            off.append(abs(left - truth) / truth)
    return off


@pytest.mark.parametrize("kept", [0, 30])
def test_the_time_left_counts_neither_the_start_nor_what_was_kept(kept: int) -> None:
    clock, stream = Clock(), io.StringIO()
    off = run(SweepProgress(stream=stream, clock=clock), clock, 50, start_s=40, each_s=2, kept=kept)
    assert len(off) > 10 and max(off) < 1e-9
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("sweep: ") and "left" in lines[3] and all(line.count("\n") == 0 for line in lines)
    assert len(lines) <= 40 * 2 / 5 + 10  # one line every five seconds, not one a run


def test_a_terminal_gets_a_bar_that_is_wiped_and_quiet_nothing() -> None:
    clock, stream = Clock(), Terminal()
    progress = SweepProgress(stream=stream, clock=clock)
    run(progress, clock, 20, start_s=1, each_s=1)
    progress.close()
    assert "\r" in stream.getvalue() and "#####" in stream.getvalue() and stream.getvalue().endswith("\r\x1b[K")
    silent = Terminal()
    run(SweepProgress(quiet=True, stream=silent, clock=clock), clock, 20, start_s=1, each_s=1)
    assert silent.getvalue() == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "1 s"), (59.4, "59 s"), (200, "3 min 20 s"), (3600, "1 h 00 min"), (7500, "2 h 05 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
