"""What a scenario says about its workload: one frozen dataclass tree, and the check of its values."""

from __future__ import annotations

from dataclasses import dataclass, field

from workloads.arrivals import MOST_REQUESTS, AllAtOnce, Arrivals, ClosedLoop, Replay, check_arrivals
from workloads.checks import a_count, a_number
from workloads.errors import WorkloadError
from workloads.lengths import Lengths, Pairs, check_lengths, check_pairs
from workloads.mixes import ClassConfig
from workloads.prefixes import SharedPrefix, check_prefix
from workloads.sessions import Sessions, check_sessions
from workloads.traces.config import TraceConfig, check_trace

_BY_KIND = {"discriminator": "kind"}
MOST_SEQUENCES = 1024


@dataclass(frozen=True)
class WorkloadConfig:
    """A synthetic workload, or one from a trace.

    Attributes:
        num_requests, duration_s: where it ends; with both, at whichever comes first. A trace needs neither.
        arrivals: with a trace: None replays its times, another law replaces them.
        prompt_tokens, output_tokens: laws of the lengths; or ``lengths``, both drawn together.
        prefix: prefixes that requests share; session: conversations of several turns.
        trace: lengths, times and token identities from a file.
        classes: parts of the load with their own SLO, priority, lengths or arrivals.
        max_concurrency: at most this many requests in flight, whatever the arrivals (vLLM's ``--max-concurrency``).
        rate_rps: the same requests at this mean rate: all times of arrival are stretched or squeezed by one factor.
        priority: of requests without a class; lower is more important.
        n: answers that each request asks for (parallel sampling), all as long as ``output_tokens`` says.
        beam_width: sequences of a beam search, of which a request keeps so many at every token.
    """

    num_requests: int | None = None
    duration_s: float | None = None
    arrivals: Arrivals | None = field(default=None, metadata=_BY_KIND)
    prompt_tokens: Lengths | None = field(default=None, metadata=_BY_KIND)
    output_tokens: Lengths | None = field(default=None, metadata=_BY_KIND)
    lengths: Pairs | None = None
    prefix: SharedPrefix | None = None
    session: Sessions | None = None
    trace: TraceConfig | None = None
    classes: tuple[ClassConfig, ...] = ()
    max_concurrency: int | None = None
    rate_rps: float | None = None
    priority: int = 0
    n: int = 1
    beam_width: int = 1


def check_workload(config: WorkloadConfig, where: str = "workload") -> None:
    """Raises WorkloadError for the first value of ``config`` that makes no sense, without reading any file."""
    if config.num_requests is not None:
        a_count(config.num_requests, f"{where}.num_requests", at_most=MOST_REQUESTS)
    if config.duration_s is not None:
        a_number(config.duration_s, f"{where}.duration_s", above=0)
    if config.max_concurrency is not None:
        a_count(config.max_concurrency, f"{where}.max_concurrency")
    if config.rate_rps is not None:
        a_number(config.rate_rps, f"{where}.rate_rps", above=0)
    a_count(config.priority, f"{where}.priority", at_least=-(2**31))
    _check_sequences(config, where)
    if config.arrivals is not None:
        check_arrivals(config.arrivals, f"{where}.arrivals")
        if isinstance(config.arrivals, ClosedLoop) and config.max_concurrency is not None:
            raise WorkloadError(
                "max_concurrency is given twice", where=f"{where}.max_concurrency", remedy="keep the one in arrivals"
            )
    _check_part(config, where)
    _check_classes(config, where)
    if config.trace is None:
        _check_synthetic(config, where)
    else:
        _check_traced(config, config.trace, where)


def _check_sequences(config: WorkloadConfig, where: str) -> None:
    """Requests of several sequences."""
    for name in ("n", "beam_width"):
        count = getattr(config, name)
        a_count(count, f"{where}.{name}", at_most=MOST_SEQUENCES)
        if count > 1 and (config.session is not None or any(part.session is not None for part in config.classes)):
            raise WorkloadError(
                "a session's next turn continues one answer, and here a request asks for several",
                where=f"{where}.{name}",
                remedy=f"set {name}: 1, or leave out session",
            )
    if config.n > 1 and config.beam_width > 1:
        raise WorkloadError(
            "a request samples n answers or searches with beams, not both",
            where=f"{where}.beam_width",
            remedy="leave out n or beam_width",
        )


def _check_part(part: WorkloadConfig | ClassConfig, where: str) -> None:
    """What a workload and a class have in common."""
    for name in ("prompt_tokens", "output_tokens"):
        law: Lengths | None = getattr(part, name)
        if law is not None:
            check_lengths(law, f"{where}.{name}")
            if part.lengths is not None:
                raise WorkloadError(
                    f"lengths gives prompt and output together, and {name} stands beside it",
                    where=f"{where}.{name}",
                    remedy=f"leave out {name} or lengths",
                )
    if part.lengths is not None:
        check_pairs(part.lengths, f"{where}.lengths")
    if part.prefix is not None:
        check_prefix(part.prefix, f"{where}.prefix")
    if part.session is not None:
        check_sessions(part.session, f"{where}.session")


def _check_classes(config: WorkloadConfig, where: str) -> None:
    seen: set[str] = set()
    for i, part in enumerate(config.classes):
        at = f"{where}.classes.{i}"
        if not isinstance(part.name, str) or not part.name:
            raise WorkloadError("needs a name", where=f"{at}.name", remedy="write name: chat")
        if part.name in seen:
            raise WorkloadError(f"{part.name!r} is there twice", where=f"{at}.name", remedy="rename one of the two")
        seen.add(part.name)
        a_count(part.priority, f"{at}.priority", at_least=-(2**31))
        for metric, limits in part.slo.items():
            for statistic, limit in limits.items():
                a_number(limit, f"{at}.slo.{metric}.{statistic}", above=0)
        _check_part(part, at)
        if part.weight is not None:
            a_number(part.weight, f"{at}.weight", at_least=0)
        if part.num_requests is not None:
            a_count(part.num_requests, f"{at}.num_requests", at_most=MOST_REQUESTS)
            if part.arrivals is None:
                raise WorkloadError(
                    "num_requests counts a class's own arrivals, and it has none",
                    where=f"{at}.num_requests",
                    remedy="set its arrivals, or use weight",
                )
        if part.arrivals is not None:
            check_arrivals(part.arrivals, f"{at}.arrivals")
            if isinstance(part.arrivals, ClosedLoop):
                raise WorkloadError(
                    "one class cannot be a closed loop of its own",
                    where=f"{at}.arrivals",
                    remedy="make the workload's arrivals closed_loop and give the classes weights",
                )
            if part.weight is not None:
                raise WorkloadError(
                    "weight shares the common arrivals, and this class has its own",
                    where=f"{at}.weight",
                    remedy="leave out weight or arrivals",
                )
    sharing = [c for c in config.classes if c.arrivals is None]
    if sharing and sum(1.0 if c.weight is None else c.weight for c in sharing) <= 0:
        raise WorkloadError("all weights are 0", where=f"{where}.classes", remedy="give one class a weight above 0")


def _check_synthetic(config: WorkloadConfig, where: str) -> None:
    all_counted = bool(config.classes) and all(c.num_requests is not None for c in config.classes)
    if config.num_requests is None and config.duration_s is None and not all_counted:
        raise WorkloadError("has no end", where=where, remedy="set num_requests or duration_s")
    parts: list[tuple[WorkloadConfig | ClassConfig, str]] = [
        (c, f"{where}.classes.{i}") for i, c in enumerate(config.classes)
    ]
    for part, at in parts or [(config, where)]:
        if (part.arrivals or config.arrivals) is None:
            raise WorkloadError("has no arrivals", where=at, remedy="set arrivals: {kind: poisson, rate_rps: 1}")
        joint = part.lengths or (config.lengths if part.prompt_tokens is None and part.output_tokens is None else None)
        for name in ("prompt_tokens", "output_tokens"):
            if joint is None and (getattr(part, name) or getattr(config, name)) is None:
                raise WorkloadError(f"has no {name}", where=at, remedy=f"set {name}: {{kind: fixed, tokens: 256}}")
        if (part.session or config.session) is not None and isinstance(config.arrivals, ClosedLoop):
            raise WorkloadError(
                "sessions do not run in a closed loop",
                where=f"{where}.arrivals",
                remedy="use {kind: all_at_once}: each session is then a client with one request at a time",
            )
        own = part.num_requests if part.arrivals is not None else config.num_requests
        if isinstance(part.arrivals or config.arrivals, (AllAtOnce, ClosedLoop)) and own is None:
            raise WorkloadError("these arrivals need a number of requests", where=at, remedy="set num_requests here")


def _check_traced(config: WorkloadConfig, trace: TraceConfig, where: str) -> None:
    check_trace(trace, f"{where}.trace")
    for name in ("prompt_tokens", "output_tokens", "lengths", "prefix", "session"):
        if getattr(config, name) is not None or any(getattr(c, name) is not None for c in config.classes):
            raise WorkloadError(
                f"{name} stands beside a trace, which gives the lengths",
                where=f"{where}.{name}",
                remedy=f"leave out {name} or trace",
            )
    if any(c.arrivals is not None for c in config.classes):
        raise WorkloadError(
            "a class has arrivals of its own beside a trace",
            where=f"{where}.classes",
            remedy="give the classes weights, or leave out the trace",
        )
    if isinstance(config.arrivals, Replay):
        if config.arrivals.times_s is not None:
            raise WorkloadError(
                "times_s stands beside a trace", where=f"{where}.arrivals.times_s", remedy="leave out one of the two"
            )
        if config.arrivals.time_scale != 1 and trace.time_scale != 1:
            raise WorkloadError(
                "time_scale is given twice", where=f"{where}.arrivals.time_scale", remedy="keep trace.time_scale"
            )
    elif config.arrivals is not None and trace.time_scale != 1:
        raise WorkloadError(
            "time_scale has no effect: arrivals replaces the trace's times",
            where=f"{where}.trace.time_scale",
            remedy="leave out time_scale or arrivals",
        )
