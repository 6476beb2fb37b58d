"""Named streams: the same name the same numbers, another name others."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from simulator.random_streams import Streams
from tests.support import ROOT


def test_a_name_has_its_own_numbers_whatever_else_is_drawn() -> None:
    alone = Streams(7)("arrivals").random(5)
    streams = Streams(7)
    streams("lengths").random(1000)
    assert np.array_equal(streams("arrivals").random(5), alone)
    assert not np.array_equal(streams("lengths").random(5), alone)
    assert not np.array_equal(Streams(8)("arrivals").random(5), alone)


def test_the_numbers_do_not_depend_on_the_process() -> None:
    code = "from simulator.random_streams import Streams; print(Streams(7)('arrivals').integers(2**62))"
    ours = Streams(7)("arrivals").integers(2**62)
    for salt in ("1", "2"):
        proc = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={"PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(proc.stdout) == ours


def test_two_streams_are_uncorrelated() -> None:
    n = 20_000
    a, b = Streams(3)("a").standard_normal(n), Streams(3)("b").standard_normal(n)
    assert abs(float(np.corrcoef(a, b)[0, 1])) < 4 / n**0.5
