"""Progress: a bar on a terminal, seldom a line elsewhere, silence when quiet."""

from __future__ import annotations

import io

import pytest

from simulator.progress import SECONDS_BETWEEN_LINES, Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_log_gets_a_line_every_few_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = Progress("chat", stream=stream, clock=clock)
    for done in range(1000):
        clock.now_s += SECONDS_BETWEEN_LINES / 100
        progress(done, 1000, done / 10)
    progress.close()
    lines = stream.getvalue().splitlines()
    assert 8 <= len(lines) <= 10
    assert lines[0].startswith("chat: 10% (10")
    assert "\r" not in stream.getvalue()


def test_a_terminal_gets_one_bar_that_is_wiped() -> None:
    stream, clock = Terminal(), Clock()
    progress = Progress("chat", stream=stream, clock=clock)
    clock.now_s += 1
    progress(500, 1000, 3.0)
    assert stream.getvalue().startswith("\rchat [###############               ]  50% 500/1000")
    assert "\n" not in stream.getvalue()
    progress.close()
    assert stream.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_quiet_says_nothing(stream: io.StringIO) -> None:
    clock = Clock()
    progress = Progress("chat", quiet=True, stream=stream, clock=clock)
    clock.now_s += 60
    progress(1, 2)
    progress.close()
    assert stream.getvalue() == ""


def test_a_short_run_says_nothing() -> None:
    stream = io.StringIO()
    progress = Progress("chat", stream=stream, clock=Clock())
    progress(1, 2)
    progress.close()
    assert stream.getvalue() == ""
