"""The rows of the result table: one list for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reports.numbers import MISSING, at, fixed, gib, percent, whole

Result = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A label (with its unit), where its value stands in ``result.json``, and how it is written."""

    label: str
    path: str
    write: Callable[[Any], str]


@dataclass(frozen=True)
class Section:
    """Rows under a title."""

    title: str
    rows: tuple[Row, ...]


LIMIT_NAMES = {
    "kv_memory": "KV memory",
    "max_num_seqs": "max_num_seqs",
    "token_budget": "token budget",
    "compute": "compute",
    "bandwidth": "bandwidth",
    "arrivals": "arrivals",
    "requests": "no more requests",
    "kv_transfer": "KV transfer",
}


def limit_name(limit: str | None) -> str:
    """A binding limit in words."""
    return LIMIT_NAMES.get(limit or "", str(limit or "-"))


def _yes_no(value: bool | None) -> str:
    return "-" if value is None else "yes" if value else "no"


def _percents(shares: list[float]) -> str:
    return " ".join(percent(share) for share in shares)


def _latency(title: str, name: str) -> Section:
    stats = {"mean": "Mean", "median": "Median", "p90": "P90", "p95": "P95", "p99": "P99"}
    short = name if name == "queue" else name.upper()
    return Section(
        title, tuple(Row(f"{word} {short} (ms):", f"{stat}_{name}_ms", fixed) for stat, word in stats.items())
    )


SERVING = Section(
    "Serving Benchmark Result",
    (
        Row("Successful requests:", "completed", whole),
        Row("Failed requests:", "failed", whole),
        Row("  of these never servable:", "rejected", whole),
        Row("Benchmark duration (s):", "duration", fixed),
        Row("Total input tokens:", "total_input_tokens", whole),
        Row("Total generated tokens:", "total_output_tokens", whole),
        Row("Request rate asked for (req/s):", "request_rate", fixed),
        Row("Request throughput (req/s):", "request_throughput", fixed),
        Row("Request goodput (req/s):", "request_goodput", fixed),
        Row("Output token throughput (tok/s):", "output_throughput", fixed),
        Row("Total token throughput (tok/s):", "total_token_throughput", fixed),
        Row("Peak concurrent requests:", "max_concurrent_requests", whole),
        Row("Mean running requests:", "mean_running", fixed),
        Row("Mean waiting requests:", "mean_waiting", fixed),
        Row("Step times (hence latencies) from:", "step_time", str),
        Row("  calibration:", "calibration", str),
    ),
)
LATENCIES = (
    _latency("Time to First Token", "ttft"),
    _latency("Time per Output Token (excl. 1st token)", "tpot"),
    _latency("Inter-token Latency", "itl"),
    _latency("End-to-end Latency", "e2el"),
    _latency("Time in the Queue", "queue"),
)
MEMORY = Section(
    "KV Cache",
    (
        Row("Pool per GPU (GiB):", "kv.pool_bytes", gib),
        Row("Blocks (or slots):", "kv.num_gpu_blocks", whole),
        Row("Block size (tokens):", "kv.block_size", whole),
        Row("Peak utilization:", "kv.peak_utilization", percent),
        Row("Mean utilization:", "kv.mean_utilization", percent),
        Row("  tokens:", "kv.token_share", percent),
        Row("  reserved for tokens to come:", "kv.reserved_share", percent),
        Row("  internal fragmentation:", "kv.internal_fragmentation_share", percent),
        Row("External fragmentation:", "kv.external_fragmentation_share", percent),
        Row("Free:", "kv.free_share", percent),
        Row("Preemptions:", "preemptions", whole),
        Row("Tokens computed again:", "recomputed_tokens", whole),
        Row("Prefix cache hit rate:", "prefix_cache_hit_rate", percent),
    ),
)
VERDICT = Section(
    "Verdict",
    (
        Row("Binding limit:", "binding_limit", limit_name),
        Row("Saturated (backlog grows):", "saturated", _yes_no),
        Row("SLO met:", "slo.met", _yes_no),
        Row("Requests within the SLO:", "slo.attainment", percent),
        Row("Cost (USD per hour):", "usd_per_hour", fixed),
        Row("Cost (USD per million output tokens):", "usd_per_million_output_tokens", fixed),
        Row("Engine steps:", "engine_steps", whole),
    ),
)
POOLS = Section(
    "Prefill and Decode Pools",
    (
        Row("Link:", "disaggregation.link.name", str),
        Row("KV transfers:", "disaggregation.transfers", whole),
        Row("KV moved (GiB):", "disaggregation.transferred_bytes", gib),
        Row("Mean transfer (ms):", "disaggregation.mean_transfer_ms", fixed),
        Row("P99 transfer (ms):", "disaggregation.p99_transfer_ms", fixed),
        Row("Link utilization:", "disaggregation.link_utilization", percent),
        Row("Prefill replicas:", "disaggregation.prefill.replicas", whole),
        Row("  prefill busy:", "disaggregation.prefill.busy_share", percent),
        Row("  prefill KV held:", "disaggregation.prefill.mean_kv_utilization", percent),
        Row("Decode replicas:", "disaggregation.decode.replicas", whole),
        Row("  decode busy:", "disaggregation.decode.busy_share", percent),
        Row("  decode KV held:", "disaggregation.decode.mean_kv_utilization", percent),
    ),
)
PIPELINE = Section(
    "Pipeline Stages",
    (
        Row("Busy, by stage:", "pipeline.stage_busy_share", _percents),
        Row("Bubbles (idle stages):", "pipeline.bubble_share", percent),
        Row("Mean batches in flight:", "pipeline.mean_batches_in_flight", fixed),
    ),
)
ALL_SECTIONS = (SERVING, *LATENCIES, MEMORY, PIPELINE, POOLS, VERDICT)

LATENCY_NAMES = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "inter-token latency",
    "e2el": "end-to-end latency",
    "queue": "time in the queue",
}

HEADLINE = Section(
    "In short",
    (
        Row("Requests served", "completed", whole),
        Row("Requests per second", "request_throughput", fixed),
        Row("Output tokens per second", "output_throughput", fixed),
        Row("Time to first token, median (ms)", "median_ttft_ms", fixed),
        Row("Time to first token, p99 (ms)", "p99_ttft_ms", fixed),
        Row("Time per output token, median (ms)", "median_tpot_ms", fixed),
        Row("Time per output token, p99 (ms)", "p99_tpot_ms", fixed),
        Row("  latencies computed from", "step_time", str),
        Row("  with the calibration", "calibration", str),
        Row("Requests running at once, mean", "mean_running", fixed),
        Row("Share of the held KV memory that holds tokens", "kv.token_share_of_held", percent),
        Row("Preemptions", "preemptions", whole),
        Row("Binding limit", "binding_limit", limit_name),
    ),
)
ADMISSION = Section(
    "Requests that fit in one pool (a memory effect, not a speed benchmark)",
    (
        Row("Requests admitted:", "admitted", whole),
        Row("Requests offered:", "offered", whole),
        Row("Slots of the pool:", "total_slots", whole),
        Row("Slots allocated:", "allocated_slots", whole),
        Row("Slots with a token:", "used_slots", whole),
        Row("Slots wasted:", "wasted_slots", whole),
        Row("Share of the allocated in use:", "used_share", percent),
        Row("What ended it:", "binding_limit", limit_name),
    ),
)


def filled(sections: tuple[Section, ...], results: list[Result]) -> list[tuple[str, list[tuple[str, list[str]]]]]:
    """(title, [(label, a cell per result)]) of each section; rows without any value are left out."""
    out = []
    for section in sections:
        rows = []
        for row in section.rows:
            values = [at(result, row.path) for result in results]
            if any(value is not None for value in values):
                rows.append((row.label, [MISSING if value is None else row.write(value) for value in values]))
        if rows:
            out.append((section.title, rows))
    return out


def sections_for(results: list[Result]) -> tuple[Section, ...]:
    """The full table of served runs, or the short one of ``mode: admission``."""
    return (ADMISSION,) if is_admission(results) else ALL_SECTIONS


def is_admission(results: list[Result]) -> bool:
    """Whether the results only placed requests in the pool, without a clock."""
    return all("admitted" in result for result in results)


def runs_of(result: Result) -> dict[str, Result]:
    """The variants of a ``result.json`` by name; a single run is its own only variant."""
    variants = result.get("variants")
    if isinstance(variants, dict):
        return dict(variants)
    return {str(result.get("variant") or result.get("name") or "run"): result}
