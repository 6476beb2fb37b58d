"""When requests arrive: one frozen dataclass a law, and one function that draws the times.

A law is data (its ``kind`` names it in YAML); :func:`arrival_times` turns it into integer picoseconds. Every
random law draws a unit-rate sequence first and stretches it, so that two rates compare on common random numbers,
and more requests continue the same sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from workloads.checks import a_choice, a_count, a_number
from workloads.errors import WorkloadError
from workloads.rate_curves import DiurnalCurve, PiecewiseCurve, RampCurve, RateCurve
from workloads.workload import PS_PER_S, IntColumn

FloatColumn = NDArray[np.float64]

_MAX_S = np.iinfo(np.int64).max / PS_PER_S  # 106.75 days: what a 64-bit picosecond clock holds
_CHUNK = 4096


@dataclass(frozen=True)
class Poisson:
    """Exponential gaps of mean 1/rate_rps. ``rescale_last_arrival``: see :class:`Gamma`."""

    rate_rps: float
    rescale_last_arrival: bool = False
    kind: Literal["poisson"] = "poisson"


@dataclass(frozen=True)
class Gamma:
    """Gamma gaps of shape b = burstiness and scale 1/(rate_rps*b), as ``vllm bench serve --burstiness``.

    b = 1 is Poisson, below 1 burstier, above 1 more regular: the gaps' squared cv is 1/b.
    ``rescale_last_arrival`` stretches all times so that arrival n falls on n/rate_rps, as vLLM does: the rate is
    then exact and the process no longer a renewal process.
    """

    rate_rps: float
    burstiness: float = 1.0
    rescale_last_arrival: bool = False
    kind: Literal["gamma"] = "gamma"


@dataclass(frozen=True)
class Constant:
    """One request every 1/rate_rps, the first at time 0; the period is rounded to a picosecond once."""

    rate_rps: float
    kind: Literal["constant"] = "constant"


@dataclass(frozen=True)
class OnOff:
    """Poisson whose rate alternates: ``on_rate_rps`` for ``on_s``, then ``off_rate_rps`` for ``off_s``.

    ``phases: fixed`` keeps these lengths; ``exponential`` draws each with this mean (a two-state MMPP).
    """

    on_rate_rps: float
    on_s: float
    off_s: float
    off_rate_rps: float = 0.0
    phases: Literal["fixed", "exponential"] = "fixed"
    kind: Literal["on_off"] = "on_off"


@dataclass(frozen=True)
class Diurnal:
    """Poisson with rate mean_rps * (1 + amplitude * sin(2*pi*(t/period_s + phase))); amplitude in [0, 1]."""

    mean_rps: float
    amplitude: float = 0.5
    period_s: float = 86_400.0
    phase: float = 0.0
    kind: Literal["diurnal"] = "diurnal"


@dataclass(frozen=True)
class Ramp:
    """Poisson whose rate moves from start_rps to end_rps over ramp_s and then stays.

    ``shape: linear`` or ``exponential`` (equal factors in equal times), as vLLM's ramp-up.
    """

    start_rps: float
    end_rps: float
    ramp_s: float
    shape: Literal["linear", "exponential"] = "linear"
    kind: Literal["ramp"] = "ramp"


@dataclass(frozen=True)
class Stage:
    """One stage of a load test: a rate held for a time."""

    rate_rps: float
    duration_s: float


@dataclass(frozen=True)
class Stages:
    """Poisson through stages, one after another (inference-perf, k6); it ends with the last one."""

    stages: tuple[Stage, ...]
    kind: Literal["stages"] = "stages"


@dataclass(frozen=True)
class AllAtOnce:
    """Every request at time 0 (vLLM's ``--request-rate inf``)."""

    kind: Literal["all_at_once"] = "all_at_once"


@dataclass(frozen=True)
class ClosedLoop:
    """At most ``max_concurrency`` requests in flight; the next is sent when one ends."""

    max_concurrency: int
    kind: Literal["closed_loop"] = "closed_loop"


@dataclass(frozen=True)
class Replay:
    """The times of the trace, or ``times_s``, each multiplied by ``time_scale`` (0.5 = twice as fast)."""

    time_scale: float = 1.0
    times_s: tuple[float, ...] | None = None
    kind: Literal["replay"] = "replay"


Arrivals = Poisson | Gamma | Constant | OnOff | Diurnal | Ramp | Stages | AllAtOnce | ClosedLoop | Replay


def check_arrivals(law: Arrivals, where: str) -> None:
    """Raises WorkloadError for the first value of ``law`` that makes no sense."""
    if isinstance(law, (Poisson, Gamma, Constant)):
        _check_rate(law.rate_rps, f"{where}.rate_rps")
    if isinstance(law, Gamma):
        a_number(law.burstiness, f"{where}.burstiness", above=0)
    elif isinstance(law, OnOff):
        a_number(law.on_rate_rps, f"{where}.on_rate_rps", above=0)
        a_number(law.off_rate_rps, f"{where}.off_rate_rps", at_least=0)
        a_number(law.on_s, f"{where}.on_s", above=0)
        a_number(law.off_s, f"{where}.off_s", above=0)
        a_choice(law.phases, f"{where}.phases", ("fixed", "exponential"))
    elif isinstance(law, Diurnal):
        _check_rate(law.mean_rps, f"{where}.mean_rps")
        a_number(law.amplitude, f"{where}.amplitude", at_least=0, at_most=1)
        a_number(law.period_s, f"{where}.period_s", above=0)
        a_number(law.phase, f"{where}.phase")
    elif isinstance(law, Ramp):
        _check_ramp(law, where)
    elif isinstance(law, Stages):
        _check_stages(law, where)
    elif isinstance(law, ClosedLoop):
        a_count(law.max_concurrency, f"{where}.max_concurrency")
    elif isinstance(law, Replay):
        a_number(law.time_scale, f"{where}.time_scale", above=0)
        for i, time_s in enumerate(law.times_s or ()):
            a_number(time_s, f"{where}.times_s.{i}", at_least=0)


def requested_rate_rps(law: Arrivals) -> float | None:
    """The long-run rate that ``law`` asks for; None where it has none."""
    if isinstance(law, (Poisson, Gamma, Constant)):
        return law.rate_rps
    if isinstance(law, Diurnal):
        return law.mean_rps
    if isinstance(law, OnOff):
        return (law.on_rate_rps * law.on_s + law.off_rate_rps * law.off_s) / (law.on_s + law.off_s)
    return None


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
        times = _constant(law, count, duration_s)
    elif isinstance(law, (Poisson, Gamma)):
        times = _renewal(law, rng, count, duration_s)
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


def _check_rate(value: float, where: str) -> None:
    if value == float("inf"):
        raise WorkloadError("an infinite rate is not a process", where=where, remedy="use {kind: all_at_once}")
    a_number(value, where, above=0)


def _check_ramp(law: Ramp, where: str) -> None:
    a_choice(law.shape, f"{where}.shape", ("linear", "exponential"))
    a_number(law.ramp_s, f"{where}.ramp_s", above=0)
    lowest = {"above": 0.0} if law.shape == "exponential" else {"at_least": 0.0}
    a_number(law.start_rps, f"{where}.start_rps", **lowest)
    a_number(law.end_rps, f"{where}.end_rps", **lowest)
    if law.start_rps == 0 and law.end_rps == 0:
        raise WorkloadError("a ramp from 0 to 0 sends nothing", where=where, remedy="raise start_rps or end_rps")


def _check_stages(law: Stages, where: str) -> None:
    if not law.stages:
        raise WorkloadError("needs at least one stage", where=f"{where}.stages", remedy="add {rate_rps, duration_s}")
    for i, stage in enumerate(law.stages):
        a_number(stage.rate_rps, f"{where}.stages.{i}.rate_rps", at_least=0)
        a_number(stage.duration_s, f"{where}.stages.{i}.duration_s", above=0)


def _constant(law: Constant, count: int | None, duration_s: float | None) -> IntColumn:
    period_ps = max(round(PS_PER_S / law.rate_rps), 1)
    limits = [] if count is None else [count]
    if duration_s is not None:
        limits.append(-(-round(duration_s * PS_PER_S) // period_ps))
    n = min(limits)
    to_ps(np.array([n * period_ps / PS_PER_S]), "arrivals")
    return np.arange(n, dtype=np.int64) * period_ps


def _replayed(law: Replay, count: int | None, duration_s: float | None, where: str) -> IntColumn:
    if law.times_s is None:
        raise WorkloadError("nothing to replay", where=where, remedy="give times_s here, or a trace beside arrivals")
    times = to_ps(np.sort(np.asarray(law.times_s, dtype=np.float64)) * law.time_scale, where)
    if duration_s is not None:
        times = times[times < round(duration_s * PS_PER_S)]
    return times[:count]


def _renewal(law: Poisson | Gamma, rng: np.random.Generator, count: int | None, duration_s: float | None) -> IntColumn:
    """Independent gaps, rounded to picoseconds one by one and summed as integers: no drift."""
    shape = law.burstiness if isinstance(law, Gamma) else 1.0
    scale_s = 1.0 / (law.rate_rps * shape)

    def draw(n: int) -> FloatColumn:
        unit = rng.standard_gamma(shape, n) if isinstance(law, Gamma) and shape != 1.0 else rng.standard_exponential(n)
        return unit * scale_s

    gaps = _until(draw, count, duration_s)
    to_ps(np.array([float(gaps.sum())]), "arrivals")
    times: IntColumn = np.cumsum(np.rint(gaps * PS_PER_S).astype(np.int64))
    if law.rescale_last_arrival and len(times):
        if count is None:
            raise WorkloadError(
                "rescaling needs the number of requests",
                where="arrivals.rescale_last_arrival",
                remedy="set num_requests",
            )
        target_s = count / law.rate_rps
        times = to_ps(times / times[-1] * target_s, "arrivals")
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
    unit = np.cumsum(_until(unit_rng.standard_exponential, count, end))
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


def _until(draw: Callable[[int], FloatColumn], count: int | None, total: float | None) -> FloatColumn:
    """Draws of ``draw``: ``count`` of them, or as many as it takes to pass ``total``, whichever is less."""
    if total is None:
        return draw(count or 0)
    parts: list[FloatColumn] = []
    left, reached = (count if count is not None else np.iinfo(np.int64).max), 0.0
    while left > 0 and reached <= total:
        part = draw(min(_CHUNK, left))
        parts.append(part)
        left -= len(part)
        reached += float(part.sum())
    return np.concatenate(parts) if parts else np.empty(0)
