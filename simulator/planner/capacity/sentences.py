"""The answer in two sentences, and where there is none, what is missing."""

from __future__ import annotations

import math
from typing import Any

from simulator.capacity_settings import CapacitySettings
from simulator.planner.capacity.rates import rate_text
from simulator.planner.capacity.search import Found, Rented

Row = dict[str, Any]
_LINES = 8
_LIMITS = {
    "kv_memory": "KV memory",
    "max_num_seqs": "max_num_seqs",
    "token_budget": "the token budget",
    "compute": "compute",
    "bandwidth": "memory bandwidth",
    "arrivals": "latency alone",
}


def rate_unit(found: Found) -> str:
    """What a rate counts: requests, or sessions where requests follow one another."""
    built = next((one.sized.facts.built for one in found.rented if one.sized.facts.built), None)
    return "sessions" if built is not None and (built.workload.after >= 0).any() else "requests"


def sentences(found: Found, rows: list[Row], settings: CapacitySettings) -> list[str]:
    """Two sentences: what to rent at which price; what it bears and what binds."""
    if found.winner is None:
        return [_nobody(found, rows), _nearest(found, rows)]
    row, unit = rows[0], rate_unit(found)
    rate = found.rate_rps
    what = f"Rent {deployment_text(row)}"
    price = "" if row["usd_per_hour"] is None else f" for ${row['usd_per_hour']:,.2f} an hour"
    tokens = row["usd_per_million_tokens"]
    per_million = "" if tokens is None else f" (${tokens:,.3f} a million tokens)"
    if rate is None:
        first = f"{what}: its tokens are the cheapest{price}{per_million} at {rate_text(row['knee_rps'])} {unit}/s."
    else:
        first = (
            f"{what}{price}{per_million}: the cheapest of {len(rows)} candidates to serve {rate_text(rate)} {unit}/s."
        )
    limit = _LIMITS.get(str(row["binding_limit"]), str(row["binding_limit"]))
    spare = "" if rate is None or row["knee_rps"] is None else f", {row['knee_rps'] / rate - 1:+.0%}"
    second = f"It bears up to {rate_text(row['knee_rps'])} {unit}/s{spare}; beyond, {limit} binds"
    return [first, second + (f" ({row['limit_text']})." if row["limit_text"] else ".")]


def deployment_text(row: Row) -> str:
    """``2 replicas of 4 x h100-sxm-80gb (tensor parallel 4)``."""
    replicas, each = row["replicas"] or 1, row["gpus_per_replica"]
    ways = [
        f"{text} {row[key]}"
        for key, text in (("tensor_parallel_size", "tensor parallel"), ("pipeline_parallel_size", "pipeline parallel"))
        if (row[key] or 1) > 1
    ]
    more = [f"{row[key]} {text}" for key, text in (("weight_dtype", "weights"),) if row[key] not in (None, "auto")]
    detail = f" ({', '.join([*ways, *more])})" if ways or more else ""
    gpus = f"{each} x {row['gpu']}" if each != 1 else f"{row['gpu']}"
    if replicas == 1:
        return f"one {gpus}{detail}" if each == 1 else f"{gpus}{detail}"
    return f"{replicas} x {gpus}{detail}" if each == 1 else f"{replicas} replicas of {gpus}{detail}"


_OUT = {
    "does_not_fit": ("does not fit", "do not fit"),
    "slo_unreachable": ("cannot meet the SLO at any rate", "cannot meet the SLO at any rate"),
    "too_slow": ("is too slow", "are too slow"),
    "over_budget": ("is over the budget", "are over the budget"),
    "bad_input": ("contradicts itself", "contradict themselves"),
    "failed": ("failed", "failed"),
    "ok": ("was not confirmed", "were not confirmed"),
}


def _nobody(found: Found, rows: list[Row]) -> str:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["status"]] = counts.get(row["status"], 0) + 1
    parts = [f"{count} {_OUT[status][count > 1]}" for status, count in counts.items()]
    asked = "" if found.rate_rps is None else f" {rate_text(found.rate_rps)} {rate_unit(found)}/s within the limits"
    if len(rows) == 1:
        return f"The only candidate does not serve{asked}: it {_OUT[rows[0]['status']][0]}."
    return f"None of {len(rows)} candidates serves{asked}: {', '.join(parts)}."


def _nearest(found: Found, rows: list[Row]) -> str:
    """The highest rate that one of them bears, with as many replicas as it may have."""
    able = [one for one in found.rented if one.sized.status == "ok" and one.sized.knee_rps_per_replica]
    if not able:
        return f"The first obstacle: {rows[0]['reason']}." if rows else "There is no candidate."
    best = max(able, key=lambda one: one.most_replicas * (one.sized.knee_rps_per_replica or 0.0))
    most = best.most_replicas
    knee = best.sized.knee_rps if most == best.sized.replicas else most * (best.sized.knee_rps_per_replica or 0.0)
    deployment = f"{most} x {best.sized.facts.candidate.name}" if most > 1 else best.sized.facts.candidate.name
    return f"The most that any of them bears is about {rate_text(knee or 0.0)} {rate_unit(found)}/s ({deployment})."


def missing(found: Found, rows: list[Row], settings: CapacitySettings) -> list[str]:
    """What would be needed, one line each."""
    lines = []
    over = [row for row in rows if row["status"] == "over_budget" and row["usd_per_hour"] is not None]
    if any(row["status"] == "over_budget" and row["usd_per_hour"] is None for row in rows):
        lines.append("prices: state capacity.usd_per_gpu_hour for the GPUs that have none")
    if over:
        least = min(over, key=lambda row: row["usd_per_hour"])
        lines.append(f"a budget of {least['usd_per_hour']:,.2f} USD/h ({least['candidate']} x {least['replicas']})")
    slow = [one for one in found.rented if one.sized.status == "ok" and one.sized.knee_rps_per_replica]
    if slow and not over and found.rate_rps is not None:
        best = min(slow, key=Rented.dearness)
        knee = best.sized.knee_rps_per_replica or 0.0
        count = math.ceil(found.rate_rps / knee)
        name, gpus = best.sized.facts.candidate.name, count * best.sized.facts.gpus_per_replica
        lines.append(
            f"about {count} replicas of {name}, {gpus} GPUs (each bears {rate_text(knee)} {rate_unit(found)}/s)"
        )
    for row in rows:
        if row["status"] in ("slo_unreachable", "does_not_fit", "bad_input", "failed") and len(lines) < _LINES:
            lines.append(f"{row['candidate']}: {row['reason']}")
    return lines
