"""What the PagedAttention paper's plots measure in a run: means over the engine steps that begin in a window.

The paper's own scripts read one sample a step (``np.mean`` over the steps of a window), and so does this; a step of
an idle server does not exist and is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.allocators.contiguous import Reservation, reservation_slots
from simulator.errors import InputError
from simulator.inbox import capped_output
from simulator.run_log import NOT_YET, IntColumn, ReplicaLog, RunLog, Status
from workloads.workload import PS_PER_S


@dataclass(frozen=True)
class MemoryShares:
    """Shares of the KV slots; they add up to 1.

    tokens: hold the KV of a token. reserved: will hold one before their request ends. internal: reserved for output
    that never comes. other: the rest, that is what the allocator loses (a buddy block's rounding, holes too short for
    the head of the queue) and what is free. These are the paper's words (its section 3.1 and Fig. 2), where the buddy
    allocator's rounding counts as external.
    """

    tokens: float
    reserved: float
    internal: float
    other: float


@dataclass(frozen=True)
class StepColumns:
    """One row a step of replica 0 that begins in the window: its start, and what is held after its allocation."""

    start_ps: IntColumn
    running: IntColumn
    stored: IntColumn
    used: IntColumn
    saved: IntColumn
    total_slots: int

    @classmethod
    def of(cls, log: RunLog, from_s: float, to_s: float) -> StepColumns:
        """Expands the rows of the log into steps.

        Raises:
            InputError: no step begins in the window.
        """
        replica = log.replicas[0]
        rows = replica.segment_columns()
        steps = rows["steps"]
        row = np.repeat(np.arange(len(steps)), steps)
        place = np.arange(len(row)) - np.repeat(np.cumsum(steps) - steps, steps)  # i, from 0 in each row
        start = rows["start_ps"][row] + place * rows["duration_ps"][row] + rows["growth_ps"][row] * _pairs(place)
        inside = (start >= round(from_s * PS_PER_S)) & (start < round(to_s * PS_PER_S))
        if not inside.any():
            raise InputError(
                f"no step begins between {from_s:g} and {to_s:g} s",
                where="window",
                remedy="measure within the time in which requests arrive",
            )
        used = rows["used_slots"][row] + _grown(replica, rows["growth_at"], row, place)
        stored = rows["stored_tokens"][row] + place * rows["decodes"][row]
        return cls(
            start[inside],
            rows["running"][row][inside],
            stored[inside],
            used[inside],
            rows["saved_slots"][row][inside],
            replica.pool.total_slots,
        )


def batched_requests(steps: StepColumns) -> float:
    """Requests in the batch, averaged over steps (Fig. 13)."""
    return float(steps.running.mean())


def sharing_saved(steps: StepColumns) -> float:
    """Share of the blocks that sharing saves: 1 − 1 / mean(blocks without sharing / blocks held) (Fig. 15)."""
    held = steps.used[steps.used > 0]
    saved = steps.saved[steps.used > 0]
    return float(1 - 1 / ((held + saved) / held).mean())


def memory_shares(log: RunLog, steps: StepColumns, reservation: Reservation | None) -> MemoryShares:
    """The split of the pool (Fig. 2); ``reservation`` None: a paged pool, which reserves nothing."""
    total = steps.total_slots
    tokens = float((steps.stored / total).mean())
    if reservation is None:
        internal = float(((steps.used - steps.stored) / total).mean())
        return MemoryShares(tokens, 0.0, internal, 1 - tokens - internal)
    useful, wanted = _held(log, steps.start_ps, reservation)
    reserved = float(((useful - steps.stored) / total).mean())
    internal = float(((wanted - useful) / total).mean())
    return MemoryShares(tokens, reserved, internal, 1 - tokens - reserved - internal)


def normalized_latency_s(log: RunLog, warmup_s: float) -> float:
    """Mean over requests of (end − arrival) / output tokens, without those that arrive in the warm-up (Fig. 12).

    Raises:
        InputError: a request was not served to its end, or all arrive in the warm-up.
    """
    table = log.request_columns()
    measured = table["arrival_ps"] >= round(warmup_s * PS_PER_S)
    if log.status != "ok" or not measured.any() or (table["status"] != Status.FINISHED).any():
        raise InputError(
            f"the run ended {log.status!r} with requests that were not served",
            where="normalized latency",
            remedy="give the server slots for its longest request, and the trace more than the warm-up",
        )
    latency = table["finish_ps"] - table["arrival_ps"]
    return float((latency[measured] / table["generated_tokens"][measured]).mean() / PS_PER_S)


def _held(log: RunLog, at_ps: IntColumn, reservation: Reservation) -> tuple[IntColumn, IntColumn]:
    """Per step, over the requests that hold a reservation: slots that they will fill, slots that they asked for."""
    holds = log.replicas[0].hold_columns()
    until = np.where(holds["to_ps"] == NOT_YET, log.end_ps, holds["to_ps"])
    prompt, workload = log.workload.prompt_tokens, log.workload
    longest = log.limits["max_model_len"]
    output = capped_output(prompt, workload.output_tokens, longest)
    wanted = np.array(
        [
            reservation_slots(reservation, p, o, longest)
            for p, o in zip(prompt[holds["row"]].tolist(), output[holds["row"]].tolist(), strict=True)
        ],
        dtype=np.int64,
    )
    useful = np.minimum(holds["final_tokens"], wanted)
    return _sum_at(at_ps, holds["from_ps"], until, useful), _sum_at(at_ps, holds["from_ps"], until, wanted)


def _sum_at(at_ps: IntColumn, begin: IntColumn, end: IntColumn, amount: IntColumn) -> IntColumn:
    """Per time: the sum of ``amount`` over what has begun by then and not ended."""
    return _sum_until(at_ps, begin, amount) - _sum_until(at_ps, end, amount)


def _sum_until(at_ps: IntColumn, when: IntColumn, amount: IntColumn) -> IntColumn:
    order = np.argsort(when, kind="stable")
    sums = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(amount[order])])
    result: IntColumn = sums[np.searchsorted(when[order], at_ps, side="right")]
    return result


def _pairs(place: IntColumn) -> IntColumn:
    result: IntColumn = place * (place - 1) // 2
    return result


def _grown(replica: ReplicaLog, growth_at: IntColumn, row: IntColumn, place: IntColumn) -> IntColumn:
    """Slots allocated in a row's steps 1 .. place; the listed blocks repeat with the block size as their period."""
    blocks = np.frombuffer(replica.growth_blocks, dtype=np.int32) if len(replica.growth_blocks) else np.zeros(1, int)
    size = replica.pool.block_size
    at = growth_at[row] + (place - 1) % max(size, 1)
    new = np.where(place > 0, blocks[np.minimum(at, len(blocks) - 1)], 0).astype(np.int64)
    if not len(replica.growth_blocks):
        new[:] = 0
    so_far = np.cumsum(new)
    before = so_far[np.flatnonzero(place == 0)]  # a row's first step allocates nothing beyond used_slots
    result: IntColumn = (so_far - np.repeat(before, np.diff(np.append(np.flatnonzero(place == 0), len(place))))) * size
    return result
