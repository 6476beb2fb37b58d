"""The door of the simulation: what it refuses, and where requests go."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.allocators.pools import PagedPool
from simulator.cluster import simulate
from simulator.errors import InputError
from simulator.run_log import NOT_YET, RunLog
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from workloads.workload import Workload

MS = 1_000_000_000
STEP = LinearStepTime(5 * MS, 0, 0)
ENGINE = EngineConfig(64, 4, 64)


def served(
    workload: Workload, *, replicas: int = 1, router: str = "round_robin", engine: EngineConfig = ENGINE
) -> RunLog:
    return simulate(workload, engine, PagedPool(40, 16), STEP, replicas=replicas, router=router, seed=7)


def test_arrivals_out_of_order_are_refused_by_row() -> None:
    workload = Workload.from_columns([0, 5, 3], [1, 1, 1], [1, 1, 1])
    with pytest.raises(InputError, match="request '2' arrives before"):
        served(workload)
    assert served(workload.sorted_by_arrival()).status == "ok"


def test_an_unknown_router_is_refused_with_those_that_exist() -> None:
    with pytest.raises(InputError, match="use one of round_robin, random, least_outstanding, least_kv, prefix_affine"):
        served(Workload.from_columns([0], [1], [1]), router="round-robin")


def test_round_robin_goes_by_row_and_least_outstanding_by_load() -> None:
    arrivals = [0, 0, 0, 0]
    workload = Workload.from_columns(arrivals, [4, 4, 4, 4], [20, 1, 1, 1])
    assert served(workload, replicas=2).request_columns()["replica"].tolist() == [0, 1, 0, 1]
    later = Workload.from_columns([0, 0, 12 * MS, 12 * MS], [4, 4, 4, 4], [20, 1, 1, 1])
    routed = served(later, replicas=2, router="least_outstanding").request_columns()["replica"].tolist()
    assert routed == [0, 1, 1, 0]  # replica 1 is empty again; then one each, and the first of equals


def test_the_random_router_uses_its_seed_alone() -> None:
    workload = Workload.from_columns(np.arange(200) * MS, np.ones(200), np.ones(200))
    first = served(workload, replicas=3, router="random").request_columns()["replica"]
    assert np.array_equal(first, served(workload, replicas=3, router="random").request_columns()["replica"])
    assert set(first.tolist()) == {0, 1, 2}


def test_a_fleet_behind_a_static_router_is_its_replicas() -> None:
    """Each replica alone, with its own rows, gives the same times as in the fleet."""
    rng = np.random.default_rng(1)
    workload = Workload.from_columns(
        np.sort(rng.integers(0, 400 * MS, 60)), rng.integers(1, 40, 60), rng.integers(1, 20, 60)
    )
    fleet = served(workload, replicas=3).request_columns()
    for number in range(3):
        rows = np.arange(60) % 3 == number
        alone = served(
            Workload.from_columns(workload.arrival_ps[rows], workload.prompt_tokens[rows], workload.output_tokens[rows])
        ).request_columns()
        for column in ("scheduled_ps", "first_token_ps", "finish_ps", "preemptions"):
            assert np.array_equal(fleet[column][rows], alone[column])


def test_what_can_never_be_served_is_rejected_with_numbers() -> None:
    log = served(Workload.from_columns([0, 0, 0], [64, 70, 5], [1, 1, 5]))
    table = log.request_columns()
    assert table["status"].tolist() == [1, 1, 0]
    assert "prompt of 64 tokens" in log.reasons[table["reason"][0]]
    assert table["finish_ps"][0] == NOT_YET
    small = simulate(Workload.from_columns([0], [40], [9]), ENGINE, PagedPool(3, 16), STEP)
    assert "needs 3 KV blocks" in small.reasons[1]
    assert "the pool has 2" in small.reasons[1]


def test_without_chunks_a_prompt_above_the_budget_is_rejected() -> None:
    engine = EngineConfig(64, 4, 16, enable_chunked_prefill=False)
    log = served(Workload.from_columns([0, 0], [17, 10], [1, 5]), engine=engine)
    assert log.request_columns()["status"].tolist() == [1, 0]
    assert "prefilled at once" in log.reasons[1]


def test_outputs_stop_at_the_context() -> None:
    log = served(Workload.from_columns([0], [60], [500]))
    assert log.request_columns()["generated_tokens"].tolist() == [4]


def test_a_faithful_server_dead_locks_and_the_run_says_so() -> None:
    engine = EngineConfig(64, 4, 64, on_unservable="faithful")
    log = simulate(Workload.from_columns([0, 0], [40, 4], [2, 2]), engine, PagedPool(3, 16), STEP)
    assert log.status == "deadlock"
    assert log.request_columns()["status"].tolist() == [2, 2]  # head-of-line: nobody passes the one that never fits


@pytest.mark.parametrize("router", ["round_robin", "least_outstanding"])
def test_a_run_past_the_end_of_the_clock_is_an_overflow(router: str) -> None:
    """Steps of twelve days each: the ninth would end past 64-bit picoseconds."""
    twelve_days = LinearStepTime(12 * 86_400 * 10**12, 0, 0)
    workload = Workload.from_columns([0, 0], [4, 4], [20, 20])
    with pytest.raises(OverflowError, match=r"106\.7 days"):
        simulate(workload, ENGINE, PagedPool(40, 16), twelve_days, router=router)
    last = Workload.from_columns([100 * 86_400 * 10**12], [4], [2])  # an arrival on day 100 is fine
    assert simulate(last, ENGINE, PagedPool(40, 16), STEP, router=router).status == "ok"


def test_a_follower_arrives_its_think_time_after_the_end_of_the_one_before() -> None:
    workload = Workload.from_columns([0, 0, 0], [4, 4, 4], [2, 3, 1], after=[-1, 0, 1], think_ps=[0, 30 * MS, 0])
    table = served(workload).request_columns()
    assert table["finish_ps"].tolist() == [10 * MS, 55 * MS, 60 * MS]
    assert table["arrival_ps"].tolist() == [0, 40 * MS, 55 * MS]


def test_a_closed_loop_sends_the_next_when_one_ends_and_never_more() -> None:
    workload = Workload.from_columns([0] * 5, [4] * 5, [2, 4, 2, 2, 2], max_concurrency=2)
    table = served(workload).request_columns()
    assert table["arrival_ps"].tolist() == [0, 0, 10 * MS, 20 * MS, 20 * MS]
    in_flight = [
        sum(a <= t < f for a, f in zip(table["arrival_ps"], table["finish_ps"], strict=True))
        for t in range(0, 40 * MS, MS)
    ]
    assert max(in_flight) == 2
