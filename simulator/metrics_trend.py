"""Is the system in balance, and how sure are the means?"""

from __future__ import annotations

import math

import numpy as np

from simulator.metrics_occupancy import known_by
from simulator.metrics_requests import FloatColumn, RequestFacts
from simulator.run_log import NOT_YET, IntColumn, RunLog, Status

RAMP_SHARE = 0.25
"""Share of the arrival window that is left out of the trend: an empty system fills up."""
GROWTH_SHARE = 0.02
GROWTH_DEVIATIONS = 2.0
BATCHES = 20
STUDENT_T_975 = 2.093
"""97.5 % point of Student's t with BATCHES − 1 = 19 degrees of freedom (any table)."""


def waiting_intervals(log: RunLog, facts: RequestFacts) -> tuple[IntColumn, IntColumn]:
    """(from, until) of every wait, ps: for first admissions, returns after preemptions, and between two pools."""
    table = facts.columns
    served = table["status"] != Status.REJECTED
    begin = [table["arrival_ps"][served]]
    end = [np.where(table["scheduled_ps"] == NOT_YET, log.end_ps, table["scheduled_ps"])[served]]
    for replica in log.replicas:
        requeues = replica.requeue_columns()
        begin.append(requeues["preempted_ps"])
        end.append(np.where(requeues["readmitted_ps"] == NOT_YET, log.end_ps, requeues["readmitted_ps"]))
    moved = log.handover_columns()
    begin.append(moved["prefilled_ps"])
    end.append(known_by(moved["admitted_ps"], log.end_ps))
    return np.concatenate(begin), np.concatenate(end)


def is_saturated(log: RunLog, facts: RequestFacts) -> bool:
    """Whether the backlog W(t) of waiting requests grew while requests arrived.

    Over the arrivals' window without its first quarter, [t0, t1] with n arrivals (the drain after the last arrival
    is no part of it), the least-squares line through W has the slope

        b = 12/(t1−t0)³ · ∫ (t − (t0+t1)/2)·W(t) dt,

    and the run is saturated when it grew by b·(t1−t0) > max(0.02·n, 2·√n): by more than the chance variation of a
    Poisson count, and by more than two in a hundred arrivals. A closed loop is never saturated (its backlog is
    bounded); when all arrive at once, it is when somebody waited.
    """
    arrivals = facts.columns["arrival_ps"]
    begin, end = waiting_intervals(log, facts)
    if len(arrivals) == 0 or log.workload.max_concurrency is not None:
        return False
    first, last = int(arrivals.min()), int(arrivals.max())
    if first == last:
        return bool((end > begin).any())
    t0 = first + round((last - first) * RAMP_SHARE)
    span = float(last - t0)
    count = int((arrivals >= t0).sum())
    middle = span / 2
    left = np.clip(begin - t0, 0, last - t0) - middle
    right = np.clip(end - t0, 0, last - t0) - middle
    moment = float(((right**2 - left**2) / 2).sum())
    growth = 12 * moment / span**2
    return growth > max(GROWTH_SHARE * count, GROWTH_DEVIATIONS * math.sqrt(count))


def batch_means_interval(values: FloatColumn) -> list[float] | None:
    """A 95 % interval of the mean of a correlated series, in the order given; NaN are left out.

    The n values are cut into b = 20 runs of ⌊n/b⌋ (the first n mod b values are left out); with the runs' means
    y_j, and s² = Σ (y_j − ȳ)²/(b−1), the interval is ȳ ± t₁₉ · s/√b. None below 40 values.
    """
    known = values[~np.isnan(values)]
    size = len(known) // BATCHES
    if size < 2:
        return None
    runs = known[len(known) - size * BATCHES :].reshape(BATCHES, size)
    means = runs.mean(axis=1)
    centre = float(means.mean())
    deviation = float(means.std(ddof=1))
    half = STUDENT_T_975 * deviation / math.sqrt(BATCHES)
    return [centre - half, centre + half]
