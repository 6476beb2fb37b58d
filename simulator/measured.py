"""Puts what a benchmark tool measured on a real server beside what the simulation predicts.

The simulation has ended when this is read: no measured value reaches a prediction.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.metrics_requests import RequestFacts
from simulator.run_log import RunLog
from workloads.measured import STATISTICS, Measured

DEFINITIONS = {
    "gaps": "itl: every gap between two tokens, pooled over all requests",
    "request_means": (
        "itl: each request's mean gap, with its number of gaps as weight; percentiles are values that occur (inverse "
        "of the cumulative distribution)"
    ),
}


def beside_predicted(log: RunLog, predicted: dict[str, Any]) -> dict[str, Any]:
    """``measured`` and ``measured_from`` of ``result.json``; empty where the workload was not measured.

    Args:
        predicted: the metrics of the run by the keys of ``result.json``.

    Returns:
        ``measured``: {key: {"measured", "predicted", "error"}}, error = predicted / measured - 1, and None where
        nothing was predicted; ``measured_from``: who measured what, and how this run's load differs from it.
    """
    measured = log.workload.measured
    if measured is None:
        return {}
    own = _request_means(log) if measured.itl == "request_means" else {}
    rows = {}
    for key, value in measured.values.items():
        found = own[key] if key in own else predicted.get(key)
        error = None if found is None else found / value - 1
        rows[key] = {"measured": value, "predicted": found, "error": error}
    return {"measured": rows, "measured_from": _origin(measured, predicted)}


def _origin(measured: Measured, predicted: dict[str, Any]) -> dict[str, Any]:
    differs = list(measured.differs)
    if predicted.get("failed"):
        differs.append(f"{predicted['failed']:,} requests are not served here")
    if predicted.get("warmup_s"):
        differs.append(f"predicted latencies leave out the first {predicted['warmup_s']:g} s (warmup_s)")
    return {
        "tool": measured.tool,
        "model": measured.model,
        "requests": measured.requests,
        "failed": measured.failed,
        "from_details": list(measured.from_details),
        "definitions": [DEFINITIONS[measured.itl]],
        "notes": list(measured.notes),
        "differs": differs,
    }


def _request_means(log: RunLog) -> dict[str, float | None]:
    """guidellm's inter-token latency of the predicted requests, ms: TPOT weighted by the gaps of each request."""
    facts = RequestFacts.of(log)
    tpot = facts.latency_ms["tpot"]
    known = ~np.isnan(tpot)
    values, weights = tpot[known], facts.columns["generated_tokens"][known] - 1
    if len(values) == 0:
        return dict.fromkeys(f"{statistic}_itl_ms" for statistic in STATISTICS)
    order = np.argsort(values, kind="stable")
    values, upto = values[order], np.cumsum(weights[order])
    found: dict[str, float | None] = {}
    for statistic, percent in STATISTICS.items():
        if percent is None:
            found[f"{statistic}_itl_ms"] = float(np.dot(values, weights[order]) / upto[-1])
        else:
            place = np.searchsorted(upto, percent / 100 * upto[-1], side="left")
            found[f"{statistic}_itl_ms"] = float(values[min(place, len(values) - 1)])
    return found


def comparison_warnings(block: dict[str, Any]) -> list[str]:
    """A warning where the load of the run is not the measured one: then the difference is not the model's error."""
    differs = block.get("measured_from", {}).get("differs", [])
    if not differs:
        return []
    return [f"The measured values stand beside a run of another load: {'; '.join(differs)}."]
