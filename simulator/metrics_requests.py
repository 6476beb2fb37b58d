"""Latency of each request, and the statistics that vLLM's benchmark prints of them.

With arrival a, first schedule s, first token f, finish e and n output tokens of a finished request:

    queue = s − a,   TTFT = f − a,   E2EL = e − a,   TPOT = (e − f)/(n − 1) for n ≥ 2.

Percentiles are linear (``numpy.percentile``), the deviation is the population's (``numpy.std``), as in vLLM.
Requests stand in the order of the workload's rows, so that sums of floats always come in the same order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.run_log import NOT_YET, IntColumn, RunLog, Status
from workloads.workload import RequestClass

FloatColumn = NDArray[np.float64]

PS_PER_MS = 1_000_000_000
PERCENTILES = {"median": 50, "p90": 90, "p95": 95, "p99": 99}
REQUEST_METRICS = ("ttft", "tpot", "e2el", "queue")


@dataclass(frozen=True)
class RequestFacts:
    """Columns by workload row of the requests that arrived; latencies in ms are NaN where they never came."""

    columns: dict[str, IntColumn]
    class_index: IntColumn
    prompt_tokens: IntColumn
    finished: NDArray[np.bool_]
    latency_ms: dict[str, FloatColumn]
    classes: tuple[RequestClass, ...]

    @classmethod
    def of(cls, log: RunLog) -> RequestFacts:
        """Reads the request table of a log."""
        table = log.request_columns()
        arrival, first, finish = table["arrival_ps"], table["first_token_ps"], table["finish_ps"]
        finished = table["status"] == Status.FINISHED
        outputs = table["generated_tokens"]
        several = finished & (outputs >= 2)
        latency = {
            "ttft": _ms(first - arrival, finished),
            "tpot": _ms(finish - first, several) / np.maximum(outputs - 1, 1),
            "e2el": _ms(finish - arrival, finished),
            "queue": _ms(table["scheduled_ps"] - arrival, finished & (table["scheduled_ps"] != NOT_YET)),
        }
        work, rows = log.workload, table["row"]
        return cls(table, work.class_index[rows], work.prompt_tokens[rows], finished, latency, work.classes)

    def __len__(self) -> int:
        return len(self.finished)


def _ms(duration_ps: IntColumn, known: NDArray[np.bool_]) -> FloatColumn:
    return np.where(known, duration_ps / PS_PER_MS, np.nan)


def interpolated(below: float, above: float, fraction: float) -> float:
    """Between two neighbouring order statistics, rounded as ``numpy.percentile`` rounds."""
    if fraction >= 0.5:
        return above - (above - below) * (1 - fraction)
    return below + (above - below) * fraction


def percentile_place(count: int, percent: float) -> tuple[int, int, float]:
    """The ranks below and above the percentile of ``count`` values, and the fraction between: (n−1)·p/100."""
    place = (count - 1) * (percent / 100)
    below = math.floor(place)
    return below, min(below + 1, count - 1), place - below


def statistics(name: str, values: FloatColumn) -> dict[str, float | None]:
    """mean, median, std, p90, p95 and p99 of a metric, ms; None where there is no value."""
    known = values[~np.isnan(values)]
    keys = [f"{stat}_{name}_ms" for stat in ("mean", "median", "std", "p90", "p95", "p99")]
    if len(known) == 0:
        return dict.fromkeys(keys)
    ordered = np.sort(known)
    points = [percentile(ordered, percent) for percent in PERCENTILES.values()]
    return dict(zip(keys, (float(known.mean()), points[0], float(known.std()), *points[1:]), strict=True))


def percentile(ordered: FloatColumn, percent: float) -> float:
    """``numpy.percentile`` of sorted values, to the last bit (that one imports numpy.ma at its first call: slow)."""
    below, above, fraction = percentile_place(len(ordered), percent)
    return interpolated(float(ordered[below]), float(ordered[above]), fraction)


def most_in_flight(facts: RequestFacts, end_ps: int) -> int:
    """The most requests that were in the system at once: max_t |{arrival ≤ t < finish}| (a finish goes first)."""
    table = facts.columns
    served = table["status"] != Status.REJECTED
    finish = np.where(table["finish_ps"] == NOT_YET, end_ps, table["finish_ps"])[served]
    arrivals = np.sort(table["arrival_ps"][served])
    if len(arrivals) == 0:
        return 0
    left = np.searchsorted(np.sort(finish), arrivals, side="right")
    return int((np.arange(1, len(arrivals) + 1) - left).max())
