"""Time-weighted use of the batch and of the KV pool, and Little's law as a check.

All integrals are over [first arrival, end], in Python integers (token·ps overflow 64 bits), summed over replicas, each
of which counts while it is up:

    running  = ∫ running requests dt          waiting = ∫ waiting requests dt
    stored   = ∫ KV tokens dt                 held    = ∫ slots held dt        total = slots · time
    external = ∫ free slots dt while the head of the queue waits for KV memory (contiguous pools)
    saved    = ∫ slots that sharing saves dt; saved by sharing = saved / (held + saved), for without sharing every
               table would have its own blocks (paper, figure 15)
    table_slots = Σ over steps of slots (held + saved) of all running requests: by block size, the entries of their
               block tables, which attention looks up in every step (paged pools)

Requests and sequences that share blocks store the tokens of these once: shared blocks are full, so what is stored
physically is stored − saved; ``stored`` means that in what follows.

Shares of the pool (of ``total``), which add up to 1:

    paged:       token = stored           contiguous:  token = stored
                 internal = held − stored              reserved = Σ min(final, R)·time − stored
                 reserved = external = 0               internal = Σ (R − min(final, R))·time
                 free = total − held                   external as above, free = total − held − external

where R are a request's reserved slots and ``final`` the tokens that it will store in the end.

With prefill/decode disaggregation a request is somewhere else between its prefill and its decode replica:

    transferring = ∫ requests that have blocks at their decode replica and whose KV has not come, dt,

and all other time between the two it waits. Its tokens count as stored, at the prefill replica until the blocks are
given back, at the decode replica from when it has blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simulator.metrics_exact import ratio, sum_of_first, sum_of_first_squares, sum_of_products
from simulator.metrics_gaps import GapCollector
from simulator.metrics_requests import RequestFacts
from simulator.metrics_steps import BrokenRunLogError, GrowthMoments, step_blocks
from simulator.run_log import NOT_YET, HeadWait, IntColumn, ReplicaLog, RunLog, Status


@dataclass
class Occupancy:
    """Integrals over a run (see the module), and the steps and peaks of all replicas."""

    first_ps: int = 0
    duration_ps: int = 0
    replica_ps: int = 0  # Σ over replicas of the time for which they were up
    engine_steps: int = 0
    busy_ps: int = 0
    running: int = 0
    stored: int = 0
    held: int = 0
    external: int = 0
    saved: int = 0
    table_slots: int = 0
    total: int = 0
    reservable: int = 0  # Σ min(final, R)·time of contiguous holds
    waiting: int = 0
    transferring: int = 0
    peak_utilization: float = 0.0
    head_wait_ps: dict[HeadWait, int] = field(default_factory=lambda: dict.fromkeys(HeadWait, 0))

    def shares(self, contiguous: bool) -> dict[str, float]:
        """The four shares of the pool and what is free, and the share of the held slots that hold tokens."""
        stored = min(max(self.stored - self.saved, 0), self.held)
        reserved = max(self.reservable - stored, 0) if contiguous else 0
        internal = self.held - stored - reserved
        external = self.external if contiguous else 0
        free = self.total - self.held - external
        return {
            "token_share": ratio(stored, self.total),
            "reserved_share": ratio(reserved, self.total),
            "internal_fragmentation_share": ratio(internal, self.total),
            "external_fragmentation_share": ratio(external, self.total),
            "free_share": ratio(free, self.total) if self.total else 1.0,
            "token_share_of_held": ratio(stored, self.held),
            "saved_by_sharing_share": ratio(self.saved, self.held + self.saved),
        }


def occupancy(log: RunLog, facts: RequestFacts, gaps: GapCollector | None = None) -> Occupancy:
    """The integrals of a run; hands the steps to ``gaps`` too, so that they are read once.

    Raises BrokenRunLogError where Little's law does not hold to the picosecond.
    """
    arrivals = facts.columns["arrival_ps"]
    first_ps = int(arrivals.min()) if len(arrivals) else log.end_ps
    use = occupancy_of(log.replicas, first_ps, log.end_ps, gaps)
    if log.status in ("max_steps", "livelock"):
        use.running += _left_running(log, facts)
    use.transferring = transfer_time(log)
    use.waiting = waiting_time(log, facts) - use.transferring
    _check_little(log, facts, use)
    return use


def occupancy_of(
    replicas: Sequence[ReplicaLog], first_ps: int, end_ps: int, gaps: GapCollector | None = None
) -> Occupancy:
    """What the steps of some replicas add up to; who waits is not known of a part of them."""
    use = Occupancy(first_ps, duration_ps=end_ps - first_ps)
    for replica in replicas:
        up_ps = uptime_ps(replica, first_ps, end_ps)
        use.replica_ps += up_ps
        use.total += replica.pool.total_slots * up_ps
        for steps in step_blocks(replica):
            _add_steps(use, replica, steps)
            if gaps is not None:
                gaps.add_steps(steps)
        if gaps is not None:
            gaps.add_irregular(np.array(replica.irregular_gaps_ps, dtype=np.int64))
            if replica.pipeline is not None:
                gaps.add_batches(replica.pipeline.gap_columns())
        if replica.pipeline is not None:
            use.engine_steps -= replica.pipeline.part_rows
        use.reservable += _reservable(replica, end_ps)
        use.stored += replica.parked.tokens
        use.held += replica.parked.held_slots
        use.saved += replica.parked.saved_slots
    return use


def uptime_ps(replica: ReplicaLog, first_ps: int, end_ps: int) -> int:
    """For how long of [first, end] a replica was up."""
    until = end_ps if replica.to_ps is None else min(replica.to_ps, end_ps)
    return max(until - max(replica.from_ps, first_ps), 0)


def _add_steps(use: Occupancy, replica: ReplicaLog, steps: dict[str, IntColumn]) -> None:
    k, length = steps["steps"], steps["length_ps"]
    use.engine_steps += int(k.sum())
    use.busy_ps += sum_of_products(length)
    use.running += sum_of_products(steps["running"], length)
    d, g, decodes = steps["duration_ps"], steps["growth_ps"], steps["decodes"]
    # Σ_{i<k} (stored + i·decodes)·(d + i·g)
    use.stored += (
        sum_of_products(steps["stored_tokens"], length)
        + sum_of_products(decodes, d, sum_of_first(k))
        + sum_of_products(decodes, g, sum_of_first_squares(k))
    )
    use.saved += sum_of_products(steps["saved_slots"], length)
    growth = GrowthMoments.of(replica, steps["growth_at"], k)
    _add_held(use, steps, growth, paged=replica.pool.kind == "paged")
    total_slots = replica.pool.total_slots
    peak = int((steps["used_slots"] + growth.block_size * growth.highest(steps["growth_at"], k - 1)).max())
    use.peak_utilization = max(use.peak_utilization, ratio(peak, total_slots))
    # not np.unique, which imports numpy.ma: as long as all the rest of a summary
    for cause in np.flatnonzero(np.bincount(steps["head_wait"])).tolist():
        these = steps["head_wait"] == cause
        use.head_wait_ps[HeadWait(cause)] += sum_of_products(length[these])
        if cause == HeadWait.KV_MEMORY and replica.pool.kind == "contiguous":
            use.external += sum_of_products(total_slots - steps["used_slots"][these], length[these])


def _add_held(use: Occupancy, steps: dict[str, IntColumn], growth: GrowthMoments, *, paged: bool) -> None:
    """Adds ∫ used slots dt, and what the block tables of each step stand for.

    A block of step j is held for the rest of the row, k−j steps: Σ_j b_j · Σ_{i=j}^{k−1} (d + i·g)
    = d·(k·Σb − Σjb) + g/2·(k(k−1)·Σb − Σj²b + Σjb).
    """
    k, d, g = steps["steps"], steps["duration_ps"], steps["growth_ps"]
    blocks, first, second = growth.until(steps["growth_at"], k - 1)
    size = growth.block_size
    rest = k * blocks - first
    slope = (k * (k - 1) * blocks - second + first) // 2
    use.held += sum_of_products(steps["used_slots"], steps["length_ps"]) + size * (
        sum_of_products(d, rest) + sum_of_products(g, slope)
    )
    if paged:
        slots = sum_of_products(steps["used_slots"] + steps["saved_slots"], k)
        use.table_slots += slots + size * sum_of_products(rest)


def _reservable(replica: ReplicaLog, end_ps: int) -> int:
    holds = replica.hold_columns()
    until = np.where(holds["to_ps"] == NOT_YET, end_ps, holds["to_ps"])
    useful = np.minimum(holds["final_tokens"], holds["reserved_slots"])
    return sum_of_products(useful, until - holds["from_ps"])


def _left_running(log: RunLog, facts: RequestFacts) -> int:
    """Request·ps of requests that still ran when a run was cut, from their replica's last step to the end.

    A cut falls between two steps of one replica; the step that another was in is not in the log. Its requests count
    as running (for Little's law); their tokens and slots do not count any more.
    """
    table = facts.columns
    left = (table["status"] == Status.UNFINISHED) & (table["scheduled_ps"] != NOT_YET)
    moved = log.handover_columns()
    total = 0
    for replica in log.replicas:
        rows = replica.segment_columns()
        if replica.to_ps is not None or len(rows["steps"]) == 0:  # whoever was up no more has nobody left
            continue
        k, d, g, start = (int(rows[name][-1]) for name in ("steps", "duration_ps", "growth_ps", "start_ps"))
        last_ps = start + k * d + g * (k * (k - 1) // 2)
        waiting_again = int((replica.requeue_columns()["readmitted_ps"] == NOT_YET).sum())
        not_there = int(((moved["decode_replica"] == replica.replica) & (moved["admitted_ps"] == NOT_YET)).sum())
        running = int((left & (table["replica"] == replica.replica)).sum()) - waiting_again - not_there
        total += running * (log.end_ps - last_ps)
    return total


def _was_taken(facts: RequestFacts) -> NDArray[np.bool_]:
    """Requests that were not turned away at the door (one that ran may still be rejected, when it comes back)."""
    table = facts.columns
    taken: NDArray[np.bool_] = (table["status"] != Status.REJECTED) | (table["finish_ps"] != NOT_YET)
    return taken


def waiting_time(log: RunLog, facts: RequestFacts) -> int:
    """Σ over requests of (scheduled − arrival) + Σ over preemptions of (readmitted − preempted), ps.

    And Σ over handovers of (admitted − prefilled), of which ``transfer_time`` is a part.

    What never came counts to the end of the run; a request rejected before it ran does not wait.
    """
    table = facts.columns
    served = _was_taken(facts)
    scheduled = np.where(table["scheduled_ps"] == NOT_YET, log.end_ps, table["scheduled_ps"])
    waiting = sum_of_products((scheduled - table["arrival_ps"])[served])
    for replica in log.replicas:
        requeues = replica.requeue_columns()
        back = np.where(requeues["readmitted_ps"] == NOT_YET, log.end_ps, requeues["readmitted_ps"])
        waiting += sum_of_products(back - requeues["preempted_ps"])
    moved = log.handover_columns()
    return waiting + sum_of_products(known_by(moved["admitted_ps"], log.end_ps) - moved["prefilled_ps"])


def transfer_time(log: RunLog) -> int:
    """Σ over handovers of (loaded − reserved), ps; what has not come counts to the end of the run."""
    moved = log.handover_columns()
    return sum_of_products(known_by(moved["loaded_ps"], log.end_ps) - known_by(moved["reserved_ps"], log.end_ps))


def known_by(times_ps: IntColumn, end_ps: int) -> IntColumn:
    """The times, or the end of the run where they have not come by then."""
    return np.where((times_ps == NOT_YET) | (times_ps > end_ps), end_ps, times_ps)


def _check_little(log: RunLog, facts: RequestFacts, use: Occupancy) -> None:
    """∫ running dt (from the steps) + ∫ waiting dt + ∫ transferring dt = Σ (finish or end − arrival), exactly."""
    table = facts.columns
    served = _was_taken(facts)
    finish = np.where(table["finish_ps"] == NOT_YET, log.end_ps, table["finish_ps"])
    residence = sum_of_products((finish - table["arrival_ps"])[served])
    found = use.running + use.waiting + use.transferring
    if found != residence:
        raise BrokenRunLogError(
            f"Little's law is broken: running {use.running} + waiting {use.waiting} + transferring {use.transferring} "
            f"request·ps, but the requests spent {residence} (difference {found - residence})",
            remedy="this is a fault of the simulator; please report it with the scenario",
        )
