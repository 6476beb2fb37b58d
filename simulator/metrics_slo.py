"""Service level objectives: which limits were met, and how many requests met them all.

A limit on a statistic, ``ttft_ms: {p99: 500}``, is met when that statistic of the class is at most the limit. For
goodput a request counts when each of its latencies is at most the limit of that metric (the largest, where a
metric has several), as ``vllm bench serve --goodput`` counts; a request of one token has a TPOT of 0. A request
that did not finish is not good. ITL has no value per request, so it takes no part in goodput.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError
from simulator.metrics_requests import REQUEST_METRICS, RequestFacts

Slo = Mapping[str, Mapping[str, float]]
SLO_METRICS = ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms", "queue_ms")
SLO_STATS = ("mean", "median", "p50", "p90", "p95", "p99", "std")


@dataclass(frozen=True)
class Limit:
    """One limit of one class, and what came out (None: no request to judge by, which counts as met)."""

    class_name: str
    metric: str
    stat: str
    limit: float
    value: float | None

    @property
    def met(self) -> bool:
        return self.value is None or self.value <= self.limit

    def as_dict(self) -> dict[str, object]:
        """The limit as it stands in result.json."""
        return {
            "class": self.class_name,
            "metric": self.metric,
            "stat": self.stat,
            "limit": self.limit,
            "value": self.value,
            "met": self.met,
        }


def check_slo(slo: Slo, where: str = "slo") -> None:
    """Raises InputError on a metric or a statistic that is not reported."""
    for metric, limits in slo.items():
        if metric not in SLO_METRICS:
            raise InputError(
                f"{metric} is not a latency metric", where=where, remedy=f"use one of {', '.join(SLO_METRICS)}"
            )
        for stat in limits:
            if stat not in SLO_STATS:
                raise InputError(
                    f"{stat} is not a statistic", where=f"{where}.{metric}", remedy=f"use one of {', '.join(SLO_STATS)}"
                )


def judge(class_name: str, slo: Slo, statistics: Mapping[str, float | None]) -> list[Limit]:
    """Each limit of a class beside its value; ``statistics`` has keys such as ``p99_ttft_ms``."""
    return [
        Limit(class_name, metric, stat, limit, statistics.get(f"{'median' if stat == 'p50' else stat}_{metric}"))
        for metric, limits in slo.items()
        for stat, limit in limits.items()
    ]


def good_requests(facts: RequestFacts, slo: Slo) -> NDArray[np.bool_]:
    """Which requests finished within every limit of one SLO."""
    good = facts.finished.copy()
    for name in REQUEST_METRICS:
        limits = slo.get(f"{name}_ms")
        if limits:
            good &= np.nan_to_num(facts.latency_ms[name], nan=0.0) <= max(limits.values())
    return good
