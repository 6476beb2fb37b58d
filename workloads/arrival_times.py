"""Draws times of arrival, in whole picoseconds.

Every random law draws a unit-rate sequence first and stretches it, so that two rates compare on common random
numbers, and more requests continue the same sequence.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals import (
    MOST_REQUESTS,
    AllAtOnce,
    Arrivals,
    ClosedLoop,
    Constant,
    Diurnal,
    Gamma,
    OnOff,
    Poisson,
    Ramp,
    Replay,
    Stages,
    check_arrivals,
)
from workloads.errors import WorkloadError
from workloads.rate_curves import DiurnalCurve, PiecewiseCurve, RampCurve, RateCurve
from workloads.workload import PS_PER_S, IntColumn

FloatColumn = NDArray[np.float64]

_MAX_S = np.iinfo(np.int64).max / PS_PER_S  # 106.75 days: what a 64-bit picosecond clock holds
_CHUNK = 4096


def arrival_times(
    law: Arrivals,
    rng: np.random.Generator,
    *,
    count: int | None = None,
    duration_s: float | None = None,
    where: str = "arrivals",
    may_end: bool = False,
) -> IntColumn:
    """Times of arrival in picoseconds, ascending: at most ``count``, all before ``duration_s``.

    A law that ends before ``count`` is an error, unless ``duration_s`` or ``may_end`` says that it may.

    Raises:
        WorkloadError: neither bound is given, a value of the law makes no sense, or the times leave the clock.
    """
    check_arrivals(law, where)
    if count is None and (duration_s is None or isinstance(law, (AllAtOnce, ClosedLoop))):
        raise WorkloadError(f"{law.kind} arrivals need a number of requests", where=where, remedy="set num_requests")
    if duration_s is not None and duration_s > _MAX_S:
        raise WorkloadError(
            f"{duration_s:g} s is longer than the clock runs", where=where, remedy=f"stay below {_MAX_S:.0f} s"
        )
    if isinstance(law, (AllAtOnce, ClosedLoop)):
        return np.zeros(count or 0, dtype=np.int64)
    if isinstance(law, Replay):
        times = _replayed(law, count, duration_s, where)
    elif isinstance(law, Constant):
        times = _constant(law, count, duration_s, where)
    elif isinstance(law, (Poisson, Gamma)):
        times = _renewal(law, rng, count, duration_s, where)
    else:
        times = _varying(law, rng, count, duration_s, where)
    if count is not None and duration_s is None and not may_end and len(times) < count:
        raise WorkloadError(
            f"the arrivals end after {len(times)} of {count} requests",
            where=where,
            remedy=f"ask for {len(times)} requests, or make the law last longer",
        )
    return times


def to_ps(times_s: FloatColumn, where: str) -> IntColumn:
    """Seconds to whole picoseconds. Raises WorkloadError beyond the 64-bit clock (106 days)."""
    if len(times_s) and not float(np.max(times_s)) < _MAX_S:
        raise WorkloadError(
            f"arrivals reach {float(np.max(times_s)):.3g} s, but the clock ends at {_MAX_S:.3g} s",
            where=where,
            remedy="raise the rate, ask for fewer requests, or set a smaller time_scale",
        )
    return np.rint(times_s * PS_PER_S).astype(np.int64)


def _constant(law: Constant, count: int | None, duration_s: float | None, where: str) -> IntColumn:
    period_ps = max(round(PS_PER_S / law.rate_rps), 1)
    limits = [] if count is None else [count]
    if duration_s is not None:
        limits.append(-(-round(duration_s * PS_PER_S) // period_ps))
    n = min(limits)
    _few_enough(n, where)
    to_ps(np.array([n * period_ps / PS_PER_S]), where)
    return np.arange(n, dtype=np.int64) * period_ps


def _replayed(law: Replay, count: int | None, duration_s: float | None, where: str) -> IntColumn:
    if law.times_s is None:
        raise WorkloadError("nothing to replay", where=where, remedy="give times_s here, or a trace beside arrivals")
    times = to_ps(np.sort(np.asarray(law.times_s, dtype=np.float64)) * law.time_scale, where)
    if duration_s is not None:
        times = times[times < round(duration_s * PS_PER_S)]
    return times[:count]


def _renewal(
    law: Poisson | Gamma, rng: np.random.Generator, count: int | None, duration_s: float | None, where: str
) -> IntColumn:
    """Independent gaps, rounded to picoseconds one by one and summed as integers: no drift."""
    shape = law.burstiness if isinstance(law, Gamma) else 1.0
    scale_s = 1.0 / (law.rate_rps * shape)

    def draw(n: int) -> FloatColumn:
        unit = rng.standard_gamma(shape, n) if isinstance(law, Gamma) and shape != 1.0 else rng.standard_exponential(n)
        return unit * scale_s

    gaps = _until(draw, count, duration_s, where)
    to_ps(np.array([float(gaps.sum())]), where)
    times: IntColumn = np.cumsum(np.rint(gaps * PS_PER_S).astype(np.int64))
    if law.rescale_last_arrival and len(times):
        if count is None:
            raise WorkloadError(
                "rescaling needs the number of requests",
                where=f"{where}.rescale_last_arrival",
                remedy="set num_requests",
            )
        target_s = count / law.rate_rps
        times = to_ps(times / times[-1] * target_s, where)
    return times if duration_s is None else times[times < round(duration_s * PS_PER_S)]


def _varying(
    law: OnOff | Diurnal | Ramp | Stages,
    rng: np.random.Generator,
    count: int | None,
    duration_s: float | None,
    where: str,
) -> IntColumn:
    """A Poisson process of varying rate by exact inversion: t_i solves Lambda(t_i) = S_i, S a unit Poisson process.

    Phases of an on-off law are drawn from a generator of their own, split off first, so that the count of requests
    does not shift them.
    """
    phase_rng, unit_rng = rng.spawn(2)
    curve = _curve(law, phase_rng)
    end = None if duration_s is None else float(curve.cumulated(np.array([duration_s]))[0])
    unit = np.cumsum(_until(unit_rng.standard_exponential, count, end, where))
    if end is not None:
        unit = unit[unit < end]
    if curve.total is not None:
        unit = unit[unit < curve.total]
    times = to_ps(curve.inverse(unit), where)
    return times if duration_s is None else times[times < round(duration_s * PS_PER_S)]


def _curve(law: OnOff | Diurnal | Ramp | Stages, rng: np.random.Generator) -> RateCurve:
    if isinstance(law, Diurnal):
        return DiurnalCurve(law.mean_rps, law.amplitude, law.period_s, law.phase)
    if isinstance(law, Ramp):
        return RampCurve(law.start_rps, law.end_rps, law.ramp_s, law.shape)
    if isinstance(law, Stages):
        return PiecewiseCurve(
            lambda n: (
                np.array([s.duration_s for s in law.stages][:n], dtype=np.float64),
                np.array([s.rate_rps for s in law.stages][:n], dtype=np.float64),
            ),
            endless=False,
        )
    drawn: list[float] = []

    def phases(n: int) -> tuple[FloatColumn, FloatColumn]:
        if law.phases == "exponential" and n > len(drawn):
            drawn.extend(rng.standard_exponential(n - len(drawn)).tolist())
        lengths = np.where(np.arange(n) % 2 == 0, law.on_s, law.off_s)
        rates = np.where(np.arange(n) % 2 == 0, law.on_rate_rps, law.off_rate_rps)
        return (lengths * np.array(drawn[:n]) if law.phases == "exponential" else lengths), rates

    return PiecewiseCurve(phases, endless=True)


def _few_enough(count: float, where: str) -> None:
    if count > MOST_REQUESTS:
        raise WorkloadError(
            f"come to more than {MOST_REQUESTS:,} requests",
            where=where,
            remedy="lower the rate, or set a smaller num_requests or duration_s",
        )


def _until(draw: Callable[[int], FloatColumn], count: int | None, total: float | None, where: str) -> FloatColumn:
    """Draws of ``draw``: ``count`` of them, or as many as it takes to pass ``total``, whichever is less."""
    if total is None:
        return draw(count or 0)
    parts: list[FloatColumn] = []
    left, reached = (count if count is not None else np.iinfo(np.int64).max), 0.0
    while left > 0 and reached <= total:
        part = draw(min(_CHUNK, left))
        parts.append(part)
        left -= len(part)
        _few_enough(_CHUNK * len(parts), where)
        reached += float(part.sum())
    return np.concatenate(parts) if parts else np.empty(0)
