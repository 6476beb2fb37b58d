"""Rates that change with time, as their integral Lambda(t) = int_0^t rate and its exact inverse.

With S_i the times of a unit-rate Poisson process, Lambda^-1(S_i) is a Poisson process of that rate (time change).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

FloatColumn = NDArray[np.float64]


class RateCurve(Protocol):
    """A rate in requests a second over time in seconds."""

    total: float | None
    """Requests expected over all time; None where there is no end."""

    def cumulated(self, times_s: FloatColumn) -> FloatColumn:
        """Lambda at ``times_s``."""
        ...

    def inverse(self, counts: FloatColumn) -> FloatColumn:
        """The times at which Lambda reaches ``counts`` (ascending)."""
        ...


class DiurnalCurve:
    """rate(t) = mean * (1 + amplitude * sin(2*pi*(t/period + phase)))."""

    total: float | None = None

    def __init__(self, mean_rps: float, amplitude: float, period_s: float, phase: float) -> None:
        self._mean, self._amplitude, self._period, self._phase = mean_rps, amplitude, period_s, phase

    def cumulated(self, times_s: FloatColumn) -> FloatColumn:
        turn = 2 * np.pi
        wave = np.cos(turn * self._phase) - np.cos(turn * (times_s / self._period + self._phase))
        result: FloatColumn = self._mean * (times_s + self._amplitude * self._period / turn * wave)
        return result

    def inverse(self, counts: FloatColumn) -> FloatColumn:
        # Lambda differs from mean*t by at most mean*amplitude*period/pi, which brackets each root; bisection
        # halves that bracket to the last bit, whatever the amplitude (at 1 the rate touches 0 and Newton stalls).
        straight = counts / self._mean
        reach = self._amplitude * self._period / np.pi + 1e-9
        low, high = np.maximum(straight - reach, 0.0), straight + reach
        for _ in range(64):
            middle = 0.5 * (low + high)
            below = self.cumulated(middle) < counts
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return high


class RampCurve:
    """A rate that moves from start to end over ramp_s, linearly or by equal factors, and then stays."""

    def __init__(self, start_rps: float, end_rps: float, ramp_s: float, shape: str) -> None:
        self._start, self._end, self._ramp = start_rps, end_rps, ramp_s
        self._exponential = shape == "exponential" and start_rps != end_rps
        self._ramp_count = float(self._within(np.array([ramp_s]))[0])
        self.total: float | None = self._ramp_count if end_rps == 0 else None

    def _within(self, times_s: FloatColumn) -> FloatColumn:
        result: FloatColumn
        if self._exponential:
            growth = np.log(self._end / self._start) / self._ramp
            result = self._start * np.expm1(growth * times_s) / growth
        else:
            slope = (self._end - self._start) / self._ramp
            result = self._start * times_s + 0.5 * slope * times_s**2
        return result

    def cumulated(self, times_s: FloatColumn) -> FloatColumn:
        inside = self._within(np.minimum(times_s, self._ramp))
        return inside + self._end * np.maximum(times_s - self._ramp, 0.0)

    def inverse(self, counts: FloatColumn) -> FloatColumn:
        inside = np.minimum(counts, self._ramp_count)
        after = np.maximum(counts - self._ramp_count, 0.0)
        if self._exponential:
            growth = np.log(self._end / self._start) / self._ramp
            times = np.log1p(inside * growth / self._start) / growth
        else:
            # start*t + slope*t^2/2 = c, in the form that does not cancel for a small slope
            slope = (self._end - self._start) / self._ramp
            root = np.sqrt(np.maximum(self._start**2 + 2 * slope * inside, 0.0))
            times = np.divide(2 * inside, self._start + root, out=np.zeros_like(inside), where=inside > 0)
        result: FloatColumn = times + (after / self._end if self._end > 0 else 0.0)
        return result


class PiecewiseCurve:
    """A rate constant in phases. ``phases(n)`` gives lengths and rates of the first n (endless) or of all phases."""

    def __init__(self, phases: Callable[[int], tuple[FloatColumn, FloatColumn]], *, endless: bool) -> None:
        self._phases, self._endless = phases, endless
        self.total: float | None = None if endless else float(self._knots(1 << 30)[1][-1])

    def _knots(self, n: int) -> tuple[FloatColumn, FloatColumn]:
        lengths, rates = self._phases(n)
        start = np.zeros(1)
        return np.concatenate([start, np.cumsum(lengths)]), np.concatenate([start, np.cumsum(lengths * rates)])

    def _knots_past(self, axis: int, value: float) -> tuple[FloatColumn, FloatColumn]:
        if not self._endless:
            return self._knots(1 << 30)
        n = 64
        while (knots := self._knots(n))[axis][-1] <= value:
            n *= 2
        return knots

    def cumulated(self, times_s: FloatColumn) -> FloatColumn:
        times, counts = self._knots_past(0, float(np.max(times_s, initial=0.0)))
        return np.interp(times_s, times, counts)

    def inverse(self, counts: FloatColumn) -> FloatColumn:
        times, reached = self._knots_past(1, float(np.max(counts, initial=0.0)))
        # A silent phase is a flat piece: the arrival belongs after it, so of equal knots the last one counts.
        i = np.minimum(np.searchsorted(reached, counts, side="right"), len(reached) - 1)
        width = reached[i] - reached[i - 1]
        part = np.divide(counts - reached[i - 1], width, out=np.zeros_like(counts), where=width > 0)
        result: FloatColumn = times[i - 1] + part * (times[i] - times[i - 1])
        return result
