"""When requests arrive: one frozen dataclass a law, named in YAML by its ``kind``; arrival_times.py draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workloads.checks import a_choice, a_count, a_number
from workloads.errors import WorkloadError

MOST_REQUESTS = 20_000_000
"""More do not fit in the memory of most machines."""


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

    ``shape: linear``, or ``exponential`` (equal factors in equal times). Over time, not over the request number as
    vLLM's ``--ramp-up-strategy``.
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
