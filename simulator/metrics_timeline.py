"""The state of the run at given times, the same from leaps as from single steps.

At time t a replica is in the step i of the row whose time contains t: the last i with
i·d + g·i(i−1)/2 ≤ t − start. Replicas are added up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.metrics_exact import sum_of_first
from simulator.run_log import NOT_YET, HeadWait, IntColumn, ReplicaLog, RunLog, Status

MAX_SAMPLES = 1000
STATE_COLUMNS = (
    "running",
    "waiting",
    "tokens",  # computed in the step at that time
    "decodes",
    "context",
    "stored_tokens",  # tokens in the KV cache; one that requests or sequences share counts once
    "used_slots",
    "reserved_slots",  # held for tokens that will still come (contiguous)
    "internal_slots",  # held and never to be used
    "external_slots",  # free, but the head of the queue does not fit (contiguous)
    "free_slots",  # the rest
)


@dataclass(frozen=True)
class Timeline:
    """Columns of equal length: ``time_ps`` and the sums over replicas of STATE_COLUMNS at that time."""

    time_ps: IntColumn
    state: dict[str, IntColumn]
    total_slots: int  # the most there were at any of these times


def sample_times(log: RunLog, samples: int = MAX_SAMPLES) -> IntColumn:
    """At most ``samples`` times, evenly from the first arrival to the end of the run, both included."""
    arrivals = log.request_columns()["arrival_ps"]
    first = int(arrivals.min()) if len(arrivals) else 0
    span = max(log.end_ps - first, 0)
    count = min(samples, span + 1)
    return np.array([first + span * i // max(count - 1, 1) for i in range(count)], dtype=np.int64)


def timeline(log: RunLog, samples: int = MAX_SAMPLES) -> Timeline:
    """The state of the whole run on a fixed grid of times."""
    times = sample_times(log, samples)
    total = {name: np.zeros(len(times), dtype=np.int64) for name in STATE_COLUMNS}
    slots = np.zeros(len(times), dtype=np.int64)
    for replica in log.replicas:
        for name, values in _replica_state(replica, times, log.end_ps).items():
            total[name] += values
        slots += replica.pool.total_slots * _is_up(replica, times)
    total["waiting"] = _waiting(log, times)
    return Timeline(times, total, int(slots.max(initial=0)))


def _is_up(replica: ReplicaLog, times: IntColumn) -> IntColumn:
    """1 at the times at which a replica is up, else 0."""
    up = times >= replica.from_ps
    if replica.to_ps is not None:
        up &= times < replica.to_ps
    return up.astype(np.int64)


def _replica_state(replica: ReplicaLog, times: IntColumn, end_ps: int) -> dict[str, IntColumn]:
    rows = replica.segment_columns()
    total_slots = replica.pool.total_slots
    names = ("running", "tokens", "decodes", "context", "stored_tokens", "used_slots")
    state = {name: np.zeros(len(times), dtype=np.int64) for name in STATE_COLUMNS if name != "waiting"}
    head_wait = np.zeros(len(times), dtype=np.int64)
    if len(rows["start_ps"]):
        row = np.maximum(np.searchsorted(rows["start_ps"], times, side="right") - 1, 0)
        at = {name: column[row] for name, column in rows.items()}
        elapsed = times - at["start_ps"]
        length = at["steps"] * at["duration_ps"] + at["growth_ps"] * sum_of_first(at["steps"])
        active = (elapsed >= 0) & (elapsed < length)
        step = _step_at(at, elapsed)
        at["used_slots"] = at["used_slots"] + _grown_slots(replica, at["growth_at"], step)
        at["stored_tokens"] = np.maximum(at["stored_tokens"] + step * at["decodes"] - at["saved_slots"], 0)
        at["context"] = at["context"] + step * at["decodes"]
        for name in names:
            state[name] = np.where(active, at[name], 0)
        head_wait = np.where(active, at["head_wait"], HeadWait.NOBODY_WAITS)
    _split_memory(state, replica, head_wait, times, end_ps, total_slots * _is_up(replica, times))
    return state


def _grown_slots(replica: ReplicaLog, growth_at: IntColumn, step: IntColumn) -> IntColumn:
    """B · Σ_{j=1..step} b_j of each sampled row; see ``metrics_steps``."""
    size = max(replica.pool.block_size, 1)
    if len(replica.growth_blocks) == 0:
        return np.zeros_like(step)
    blocks = np.frombuffer(replica.growth_blocks, dtype=np.int32)
    before = np.zeros(len(blocks) + 1, dtype=np.int64)
    np.cumsum(blocks, out=before[1:])
    begin = np.minimum(growth_at, len(blocks))
    periods, rest = np.divmod(step, size)
    # blocks are listed up to the period, or up to the last step of a row that has none
    whole = before[np.minimum(begin + np.minimum(step, size), len(blocks))] - before[begin]
    part = before[np.minimum(begin + rest, len(blocks))] - before[begin]
    grown: IntColumn = size * (periods * whole + part)
    return grown


def _step_at(at: dict[str, IntColumn], elapsed: IntColumn) -> IntColumn:
    """The last i in [0, k) with i·d + g·i(i−1)/2 ≤ elapsed, by bisection."""
    low, high = np.zeros_like(elapsed), at["steps"].copy()
    while (high - low > 1).any():
        middle = (low + high) // 2
        begun = middle * at["duration_ps"] + at["growth_ps"] * sum_of_first(middle) <= elapsed
        wide = high - low > 1
        low = np.where(wide & begun, middle, low)
        high = np.where(wide & ~begun, middle, high)
    return low


def _split_memory(
    state: dict[str, IntColumn],
    replica: ReplicaLog,
    head_wait: IntColumn,
    times: IntColumn,
    end_ps: int,
    total_slots: IntColumn,
) -> None:
    """Splits the slots that are not tokens, by the rules of ``metrics_occupancy``."""
    used = state["used_slots"]
    stored = np.minimum(state["stored_tokens"], used)
    free = total_slots - used
    if replica.pool.kind == "contiguous":
        holds = replica.hold_columns()
        useful = np.minimum(holds["final_tokens"], holds["reserved_slots"])
        until = np.where(holds["to_ps"] == NOT_YET, end_ps, holds["to_ps"])
        in_use = _sum_at(times, holds["from_ps"], until, useful)
        state["reserved_slots"] = np.where(used > 0, np.clip(in_use - stored, 0, used - stored), 0)
        state["external_slots"] = np.where(head_wait == HeadWait.KV_MEMORY, free, 0)
    state["internal_slots"] = used - stored - state["reserved_slots"]
    state["free_slots"] = free - state["external_slots"]


def _waiting(log: RunLog, times: IntColumn) -> IntColumn:
    table = log.request_columns()
    served = (table["status"] != Status.REJECTED) | (table["finish_ps"] != NOT_YET)
    scheduled = np.where(table["scheduled_ps"] == NOT_YET, log.end_ps, table["scheduled_ps"])
    one = np.ones(int(served.sum()), dtype=np.int64)
    waiting = _sum_at(times, table["arrival_ps"][served], scheduled[served], one)
    for replica in log.replicas:
        requeues = replica.requeue_columns()
        back = np.where(requeues["readmitted_ps"] == NOT_YET, log.end_ps, requeues["readmitted_ps"])
        waiting += _sum_at(times, requeues["preempted_ps"], back, np.ones(len(back), dtype=np.int64))
    return waiting


def _sum_at(times: IntColumn, begin: IntColumn, end: IntColumn, amount: IntColumn) -> IntColumn:
    """Σ of the amounts whose [begin, end) contains each time."""

    def until_now(moments: IntColumn) -> IntColumn:
        order = np.argsort(moments, kind="stable")
        summed = np.concatenate((np.zeros(1, np.int64), np.cumsum(amount[order])))
        return summed[np.searchsorted(moments[order], times, side="right")]

    return until_now(begin) - until_now(end)
