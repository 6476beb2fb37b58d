"""The whole engine on reservations: what must follow whatever the workload.

Reserving the whole context makes the pool a cap on sequences, so a pool of k contexts serves exactly as a pool
without end under ``max_num_seqs`` = k.
"""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from simulator.allocators.contiguous import Reservation, reservation_slots
from simulator.allocators.extents import Fit, power_of_two_at_least
from simulator.allocators.pools import ContiguousPool, PagedPool, PoolConfig
from simulator.cluster import simulate
from simulator.run_log import RunLog, Status
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from workloads.workload import PS_PER_S, Workload

CONTEXT = 128


def chats(seed: int, n: int = 60) -> Workload:
    rng = np.random.default_rng(seed)
    arrivals = np.sort(rng.integers(0, 30, n)) * (PS_PER_S // 20)
    return Workload.from_columns(arrivals, rng.integers(1, 80, n), rng.integers(1, 48, n))


def run(workload: Workload, pool: PoolConfig, *, seqs: int = 64, stepwise: bool = False) -> RunLog:
    engine = EngineConfig(max_model_len=CONTEXT, max_num_seqs=seqs, max_num_batched_tokens=100)
    step_time = LinearStepTime.from_units(base_ms=6, per_token_us=50, per_context_token_ns=26)
    return simulate(workload, engine, pool, step_time, stepwise=stepwise)


@pytest.mark.parametrize("fit", get_args(Fit))
@pytest.mark.parametrize("contexts", [1, 3, 8])
def test_whole_contexts_are_a_cap_on_sequences(contexts: int, fit: Fit) -> None:
    for seed in range(3):
        reserved = run(chats(seed), ContiguousPool(contexts * CONTEXT, "max", fit))
        capped = run(chats(seed), PagedPool(100_000, 16), seqs=contexts)
        assert list(reserved.requests) == list(capped.requests)
        assert reserved.end_ps == capped.end_ps


@pytest.mark.parametrize("fit", get_args(Fit))
@pytest.mark.parametrize("reservation", get_args(Reservation))
def test_reservations_hold_from_admission_to_the_end(reservation: Reservation, fit: Fit) -> None:
    workload, slots = chats(7), 450
    log = run(workload, ContiguousPool(slots, reservation, fit))
    requests = log.request_columns()
    assert (requests["status"] == Status.FINISHED).all()
    assert not requests["preemptions"].any()
    holds = log.replicas[0].hold_columns()
    assert sorted(holds["row"].tolist()) == list(range(len(workload)))
    for row, held in zip(holds["row"], holds["reserved_slots"], strict=True):
        prompt, output = int(workload.prompt_tokens[row]), int(workload.output_tokens[row])
        wanted = reservation_slots(reservation, prompt, output, CONTEXT)
        assert held == (power_of_two_at_least(wanted) if fit == "buddy" else wanted)
    # At no time do the reservations exceed the pool; the steps say the same as the reservations do.
    segments = log.replicas[0].segment_columns()
    for start, used in zip(segments["start_ps"], segments["used_slots"], strict=True):
        held_now = (holds["from_ps"] <= start) & (start < holds["to_ps"])
        assert holds["reserved_slots"][held_now].sum() == used <= slots


@pytest.mark.parametrize("fit", get_args(Fit))
@pytest.mark.parametrize("reservation", get_args(Reservation))
def test_leaps_and_steps_agree(reservation: Reservation, fit: Fit) -> None:
    pool = ContiguousPool(450, reservation, fit)
    leaps, steps = run(chats(3), pool), run(chats(3), pool, stepwise=True)
    assert list(leaps.requests) == list(steps.requests)
    assert list(leaps.replicas[0].holds) == list(steps.replicas[0].holds)


def test_what_no_empty_pool_can_reserve_is_rejected_with_the_numbers() -> None:
    workload = Workload.from_columns([0, 0, 0], [10, 90, 20], [10, 30, 20])
    log = run(workload, ContiguousPool(100, "oracle", "first"))
    requests = log.request_columns()
    assert requests["status"].tolist() == [Status.FINISHED, Status.REJECTED, Status.FINISHED]
    assert "reserves 120 slots in a row" in log.reasons[requests["reason"][1]]
    assert "the pool has 100 slots" in log.reasons[requests["reason"][1]]
