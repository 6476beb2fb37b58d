"""``result.json`` of one run: a superset of vLLM's benchmark result, in a stable order of keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simulator.metrics import MetricsOptions, summarize
from simulator.metrics_exact import ratio
from simulator.metrics_fleet import fleet_warnings, gpu_ps_by_group, nobody_left
from simulator.metrics_pipeline import pipeline_warnings
from simulator.result_files import write_json, write_requests_csv, write_timeline_csv
from simulator.run_log import RunLog
from workloads.workload import PS_PER_S

SCHEMA_VERSION = 1
SECONDS_PER_HOUR = 3600

_HEAD = [
    *("schema_version", "name", "variant", "model_id", "gpu", "seed", "scenario_sha256", "calibration"),
    *("step_time", "status"),
    *("num_prompts", "request_rate", "achieved_request_rate", "burstiness", "max_concurrency", "duration"),
    *("completed", "failed", "rejected", "unfinished", "reject_reasons", "total_input_tokens", "total_output_tokens"),
    *("request_throughput", "request_goodput", "output_throughput", "total_token_throughput"),
]


@dataclass(frozen=True)
class ResultContext:
    """What ``result.json`` says besides the log.

    Attributes:
        model_id, gpu: names for the reader.
        seed, scenario_sha256, calibration: where the numbers come from (``calibration``: its name, or None).
        step_time: the kind of model that gives the length of a step, such as roofline.
        slo: limits of classes that state none of their own.
        warnings, assumptions: sentences for the reader; the workload's notes join the assumptions (each once).
        name, variant: of the scenario and of its variant.
        pool_bytes: bytes of the KV pool of one GPU, where the memory budget knows them better than blocks x bytes.
        replicas, gpus_per_replica, usd_per_gpu_hour: for the cost (None: no price, no cost).
        usd_per_gpu_hour_by_group: prices of groups of replicas that have their own.
        labels: short settings for the side-by-side table, such as {"allocator": "paged", "block_size": 16}.
        options: warm-up and step hint of the metrics.
    """

    model_id: str = ""
    gpu: str = ""
    seed: int = 0
    scenario_sha256: str = ""
    calibration: Any = None
    step_time: str | None = None
    slo: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    name: str = ""
    variant: str | None = None
    pool_bytes: int | None = None
    gpus_per_replica: int = 1
    usd_per_gpu_hour: float | None = None
    usd_per_gpu_hour_by_group: Mapping[str, float | None] = field(default_factory=dict)
    labels: Mapping[str, Any] = field(default_factory=dict)
    options: MetricsOptions = field(default_factory=MetricsOptions)


def result_dict(log: RunLog, context: ResultContext) -> dict[str, Any]:
    """All keys of ``result.json`` of one run, in a stable order; no value is NaN."""
    options = MetricsOptions(
        slo=context.options.slo or context.slo,
        warmup_s=context.options.warmup_s,
        step_hint=context.options.step_hint,
    )
    metrics = summarize(log, options)
    if context.pool_bytes is not None:
        metrics["kv"]["pool_bytes"] = context.pool_bytes
    values: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "name": context.name,
        "variant": context.variant,
        "model_id": context.model_id,
        "gpu": context.gpu,
        "seed": context.seed,
        "scenario_sha256": context.scenario_sha256,
        "calibration": context.calibration,
        "step_time": context.step_time,
        **metrics,
        "replicas": len({replica.replica for replica in log.replicas}),
        "labels": dict(context.labels),
        "limits": dict(log.limits),
        **_cost(log, context, metrics),
        "warnings": [*context.warnings, *_warnings(metrics), *fleet_warnings(metrics), *pipeline_warnings(metrics)],
        "assumptions": list(dict.fromkeys((*context.assumptions, *log.workload.notes))),
    }
    return {key: values[key] for key in [*_HEAD, *(key for key in values if key not in _HEAD)]}


def _cost(log: RunLog, context: ResultContext, metrics: Mapping[str, Any]) -> dict[str, float | None]:
    """Dollars an hour of all GPUs, and dollars per million output tokens at the run's throughput.

    Of a fleet that changes, the mean over the run.
    """
    usd_per_hour = _usd_per_hour(log, context, metrics)
    if usd_per_hour is None:
        return {"usd_per_hour": None, "usd_per_million_output_tokens": None}
    tokens_per_hour = metrics["output_throughput"] * SECONDS_PER_HOUR
    per_million = usd_per_hour / tokens_per_hour * 1e6 if tokens_per_hour else None
    return {"usd_per_hour": usd_per_hour, "usd_per_million_output_tokens": per_million}


def _usd_per_hour(log: RunLog, context: ResultContext, metrics: Mapping[str, Any]) -> float | None:
    if "fleet" not in metrics:
        if context.usd_per_gpu_hour is None:
            return None
        return context.usd_per_gpu_hour * context.gpus_per_replica * len(log.replicas)
    total, first = 0.0, int(log.request_columns()["arrival_ps"].min(initial=log.end_ps))
    for group, gpu_ps in gpu_ps_by_group(log, first).items():
        price = context.usd_per_gpu_hour_by_group.get(group, context.usd_per_gpu_hour)
        if price is None:
            return None
        total += price * gpu_ps
    return total / (metrics["duration"] * PS_PER_S) if metrics["duration"] else None


def _warnings(metrics: Mapping[str, Any]) -> list[str]:
    """What a reader must know before trusting the numbers."""
    found = []
    if metrics["status"] == "deadlock" and not nobody_left(metrics):
        found.append(
            "The run ended in a dead-lock: requests wait that nothing will ever admit. With engine.on_unservable: "
            "reject such requests are refused when they arrive; a larger pool or a longer max_model_len serves them."
        )
    if metrics["status"] == "livelock":
        found.append(
            "The run was ended in a live-lock: running requests preempt each other for ever, for the pool does not "
            "hold them together. Give it more blocks (engine.gpu_memory_utilization, num_gpu_blocks_override), or "
            "admit a request only where its whole prompt fits (engine.scheduler_reserve_full_isl: true)."
        )
    if metrics["status"] == "max_steps":
        found.append("The run was cut at its limit of steps, before all requests ended.")
    if metrics["rejected"]:
        reasons = "; ".join(f"{count:,}: {reason}" for reason, count in metrics["reject_reasons"].items())
        found.append(f"{metrics['rejected']:,} of {metrics['num_prompts']:,} requests can never be served ({reasons}).")
    if metrics["saturated"]:
        found.append(
            "The backlog grew while requests arrived: latencies depend on how long the run is, and the load is more "
            "than this deployment serves."
        )
    if metrics["preemptions"]:
        generated = metrics["total_output_tokens"] + metrics["total_input_tokens"]
        share = ratio(metrics["recomputed_tokens"], generated)
        found.append(
            f"{metrics['preemptions']:,} preemptions: {metrics['recomputed_tokens']:,} tokens were computed again "
            f"({share:.1%} of the tokens served)."
        )
    return found


__all__ = [
    "ResultContext",
    "result_dict",
    "write_json",
    "write_requests_csv",
    "write_timeline_csv",
]
