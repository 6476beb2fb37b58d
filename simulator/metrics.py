"""Every number of ``result.json`` that follows from the run log alone.

The definitions are vLLM's (``vllm bench serve``); each part states its formula:

- ``metrics_requests``: TTFT, TPOT, E2EL and queueing time of requests; statistics of them.
- ``metrics_gaps``: inter-token latency, pooled over tokens.
- ``metrics_occupancy``: running, waiting, the split of the KV pool; Little's law.
- ``metrics_slo``, ``metrics_trend``, ``metrics_limit``: goodput, saturation, intervals, the binding limit.

The duration is the time from the first arrival to the end of the last request; throughputs are sums over finished
requests divided by it. All of it comes out the same, to the last bit, from leaps and from single steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simulator.errors import InputError
from simulator.metrics_disaggregation import disaggregation_block
from simulator.metrics_exact import ratio
from simulator.metrics_fleet import fleet_block, kv_block
from simulator.metrics_gaps import GapCollector, Gaps, order_statistics
from simulator.metrics_limit import StepHint, binding_limit, wait_shares
from simulator.metrics_occupancy import Occupancy, occupancy
from simulator.metrics_pipeline import pipeline_block
from simulator.metrics_reasons import summarized
from simulator.metrics_requests import (
    PERCENTILES,
    PS_PER_MS,
    REQUEST_METRICS,
    RequestFacts,
    interpolated,
    most_in_flight,
    percentile_place,
    statistics,
)
from simulator.metrics_slo import Limit, Slo, check_slo, good_requests, judge
from simulator.metrics_trend import batch_means_interval, is_saturated
from simulator.run_log import NOT_YET, RunLog, Status
from workloads.workload import PS_PER_S


@dataclass(frozen=True)
class MetricsOptions:
    """What the metrics depend on besides the log.

    Attributes:
        slo: limits for classes that state none: {"ttft_ms": {"p99": 500}}.
        warmup_s: latency statistics leave out requests that arrived, and steps that began, in this first time of the
            run; counts, throughputs, integrals and goodput keep everything.
        step_hint: says of a step whether compute or bandwidth makes its length; see ``metrics_limit``.
    """

    slo: Slo = field(default_factory=dict)
    warmup_s: float = 0.0
    step_hint: StepHint | None = None


def summarize(log: RunLog, options: MetricsOptions | None = None) -> dict[str, Any]:
    """The metrics of a run, by the keys of ``result.json``. Values that do not exist are None, never NaN.

    Raises:
        InputError: an SLO names an unknown metric, or nothing is left after the warm-up.
        BrokenRunLogError: the log breaks Little's law.
    """
    options = options or MetricsOptions()
    check_slo(options.slo)
    facts = RequestFacts.of(log)
    warmup_ps = _warmup_ps(facts, options.warmup_s)
    gaps = GapCollector(warmup_ps)
    use = occupancy(log, facts, gaps)
    measured = facts.columns["arrival_ps"] >= warmup_ps if warmup_ps is not None else np.ones(len(facts), bool)
    if warmup_ps is not None and not measured.any():
        raise InputError("no request arrived after the warm-up", where="warmup_s", remedy="shorten the warm-up")
    latencies = _latencies(facts, measured) | _gap_statistics(gaps.gaps())
    by_class = _by_class(facts, latencies, measured)
    saturated = is_saturated(log, facts)
    limits, good = _objectives(facts, latencies, by_class, options.slo)
    return {
        **_counts(log, facts, use),
        **_throughputs(facts, use, good),
        **latencies,
        "max_concurrent_requests": most_in_flight(facts, log.end_ps),
        "engine_steps": use.engine_steps,
        "preemptions": int(facts.columns["preemptions"].sum()) - (log.fleet.interrupted if log.fleet else 0),
        "recomputed_tokens": int(facts.columns["recomputed_tokens"].sum()),
        "prefix_cache_hit_rate": _hit_rate(facts),
        "mean_running": ratio(use.running, use.duration_ps),
        "mean_waiting": ratio(use.waiting, use.duration_ps),
        "binding_limit": binding_limit(log, use, options.step_hint),
        "wait_shares": wait_shares(use),
        "saturated": saturated,
        "slo": _slo_block(limits, good),
        "classes": _classes(facts, by_class, good),
        "confidence_95": _intervals(facts, measured, saturated),
        "measured_requests": int((measured & facts.finished).sum()),
        "warmup_s": options.warmup_s,
        "kv": kv_block(log, use),
        **fleet_block(log, facts, use),
        **disaggregation_block(log, use),
        **pipeline_block(log),
    }


def _warmup_ps(facts: RequestFacts, warmup_s: float) -> int | None:
    if warmup_s == 0 or len(facts) == 0:
        return None
    if not warmup_s > 0:
        raise InputError(f"warmup_s is {warmup_s}", where="warmup_s", remedy="use 0 or a positive number of seconds")
    return int(facts.columns["arrival_ps"].min()) + round(warmup_s * PS_PER_S)


def _counts(log: RunLog, facts: RequestFacts, use: Occupancy) -> dict[str, Any]:
    status = facts.columns["status"]
    arrivals = facts.columns["arrival_ps"]
    span_ps = int(arrivals.max() - arrivals.min()) if len(facts) else 0
    return {
        "num_prompts": len(log.workload),
        "request_rate": log.workload.requested_rate_rps,
        "achieved_request_rate": (len(facts) - 1) * PS_PER_S / span_ps if span_ps else None,
        "burstiness": log.workload.burstiness,
        "max_concurrency": log.workload.max_concurrency,
        "status": log.status,
        "duration": use.duration_ps / PS_PER_S,
        "completed": int(facts.finished.sum()),
        "failed": int((~facts.finished).sum()),
        "rejected": int((status == Status.REJECTED).sum()),
        "unfinished": int((status == Status.UNFINISHED).sum()),
        "reject_reasons": _reasons(log, facts),
    }


def _reasons(log: RunLog, facts: RequestFacts) -> dict[str, int]:
    """The most frequent kinds of reasons of rejections and their counts (each row's own is in requests.csv)."""
    counts = np.bincount(facts.columns["reason"], minlength=len(log.reasons)).tolist()
    return summarized({text: count for count, text in zip(counts, log.reasons, strict=True) if count and text})


def _throughputs(facts: RequestFacts, use: Occupancy, good: np.ndarray | None) -> dict[str, Any]:
    inputs = int(facts.prompt_tokens[facts.finished].sum())
    outputs = int(facts.columns["generated_tokens"][facts.finished].sum())

    def per_s(amount: int) -> float:
        return ratio(amount * PS_PER_S, use.duration_ps)

    return {
        "total_input_tokens": inputs,
        "total_output_tokens": outputs,
        "request_throughput": per_s(int(facts.finished.sum())),
        "request_goodput": None if good is None else per_s(int(good.sum())),
        "output_throughput": per_s(outputs),
        "total_token_throughput": per_s(inputs + outputs),
    }


def _latencies(facts: RequestFacts, chosen: np.ndarray) -> dict[str, float | None]:
    out: dict[str, float | None] = {}
    for name in REQUEST_METRICS:
        out |= statistics(name, facts.latency_ms[name][chosen])
    return out


def _gap_statistics(gaps: Gaps) -> dict[str, float | None]:
    stats = ("mean", "median", "std", "p90", "p95", "p99")
    if gaps.count == 0:
        return dict.fromkeys(f"{stat}_itl_ms" for stat in stats)
    places = {name: percentile_place(gaps.count, percent) for name, percent in PERCENTILES.items()}
    values = order_statistics(gaps, [rank for below, above, _ in places.values() for rank in (below, above)])
    points = {
        name: interpolated(values[below] / PS_PER_MS, values[above] / PS_PER_MS, fraction)
        for name, (below, above, fraction) in places.items()
    }
    points |= {"mean": gaps.mean_ps / PS_PER_MS, "std": gaps.std_ps / PS_PER_MS}
    return {f"{stat}_itl_ms": points[stat] for stat in stats}


def _by_class(
    facts: RequestFacts, latencies: dict[str, float | None], measured: np.ndarray
) -> list[dict[str, float | None]]:
    """The latency statistics of each class; the steps do not know classes, so ITL is not among them."""
    if len(facts.classes) == 1:
        return [{key: value for key, value in latencies.items() if not key.endswith("_itl_ms")}]
    return [_latencies(facts, measured & (facts.class_index == i)) for i in range(len(facts.classes))]


def _objectives(
    facts: RequestFacts,
    latencies: Mapping[str, float | None],
    by_class: list[dict[str, float | None]],
    default: Slo,
) -> tuple[list[Limit], np.ndarray | None]:
    """Every class's limits judged (ITL over all tokens), and which requests were good (None: no class has an SLO)."""
    limits: list[Limit] = []
    good = np.zeros(len(facts), dtype=bool)
    for index, request_class in enumerate(facts.classes):
        slo: Slo = request_class.slo or default
        check_slo(slo, where=f"classes.{request_class.name}.slo")
        limits += judge(request_class.name, slo, {**latencies, **by_class[index]})
        good |= (facts.class_index == index) & good_requests(facts, slo)
    return limits, good if limits else None


def _slo_block(limits: list[Limit], good: np.ndarray | None) -> dict[str, Any] | None:
    if good is None:
        return None
    return {
        "met": all(limit.met for limit in limits),
        "attainment": ratio(int(good.sum()), len(good)),
        "limits": [limit.as_dict() for limit in limits],
    }


def _classes(
    facts: RequestFacts, by_class: list[dict[str, float | None]], good: np.ndarray | None
) -> dict[str, dict[str, Any]]:
    out = {}
    for index, request_class in enumerate(facts.classes):
        members = facts.class_index == index
        done = members & facts.finished
        out[request_class.name] = {
            "num_prompts": int(members.sum()),
            "completed": int(done.sum()),
            "rejected": int((members & (facts.columns["status"] == Status.REJECTED)).sum()),
            "total_input_tokens": int(facts.prompt_tokens[done].sum()),
            "total_output_tokens": int(facts.columns["generated_tokens"][done].sum()),
            "slo_attainment": None if good is None else ratio(int((good & members).sum()), int(members.sum())),
            **by_class[index],
        }
    return out


def _intervals(facts: RequestFacts, measured: np.ndarray, saturated: bool) -> dict[str, Any]:
    """Intervals of the means; None where the run is saturated, for then a mean only says how long the run was."""
    order = np.argsort(facts.columns["arrival_ps"], kind="stable")
    order = order[measured[order]]
    method = "batch means in the order of arrival, 20 batches, Student t with 19 degrees of freedom"
    intervals: dict[str, Any] = {
        f"mean_{name}_ms": None if saturated else batch_means_interval(facts.latency_ms[name][order])
        for name in REQUEST_METRICS
    }
    return intervals | {"method": method}


def _hit_rate(facts: RequestFacts) -> float:
    """Σ cached / Σ prompt tokens, over requests that were admitted at least once."""
    admitted = facts.columns["scheduled_ps"] != NOT_YET
    cached = int(facts.columns["cached_tokens"][admitted].sum())
    return ratio(cached, int(facts.prompt_tokens[admitted].sum()))
