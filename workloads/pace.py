"""The same requests, faster or slower: one factor on all times, so that two rates differ in nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from workloads.errors import WorkloadError
from workloads.workload import PS_PER_S, Workload


def own_rate_rps(workload: Workload) -> float | None:
    """Arrivals a second: the rate asked for, else (n - 1) / (last - first) over rows that follow no other.

    A session counts once, as it does in ``arrivals.rate_rps``. None where there is no such rate: a closed loop, a
    single arrival, all at once.
    """
    if workload.max_concurrency is not None:
        return None
    if workload.requested_rate_rps is not None:
        return workload.requested_rate_rps
    times = workload.arrival_ps[workload.after < 0]
    span_ps = int(times.max() - times.min()) if len(times) else 0
    return (len(times) - 1) * PS_PER_S / span_ps if span_ps else None


def paced(workload: Workload, rate_rps: float, where: str = "workload.rate_rps") -> Workload:
    """The rows with all times of arrival multiplied by own rate / ``rate_rps``; think times stay.

    Raises:
        WorkloadError: the workload has no rate of its own to start from.
    """
    own = own_rate_rps(workload)
    if own is None:
        what = "is a closed loop" if workload.max_concurrency is not None else "has no rate of its own"
        raise WorkloadError(
            f"the workload {what}, which no rate can stretch",
            where=where,
            remedy="give it arrivals: {kind: poisson, rate_rps: 1} instead, or leave out rate_rps",
        )
    times = np.rint(workload.arrival_ps.astype(np.float64) * (own / rate_rps)).astype(np.int64)
    return replace(workload, arrival_ps=times, requested_rate_rps=rate_rps)
