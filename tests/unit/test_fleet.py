"""A fleet by hand: what a failure, a start, a stop and an autoscaler do to whom, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from simulator.allocators.pools import PagedPool
from simulator.cluster import simulate_fleet
from simulator.errors import InputError
from simulator.fleet_events import Autoscaler, Fail, FleetEvent, Start, Stop, check_events
from simulator.members import Member
from simulator.metrics import summarize
from simulator.result import ResultContext, result_dict
from simulator.run_log import NOT_YET, RunLog, Status
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from tests.expand import steps_of
from workloads.workload import Workload

MS = 1_000_000_000
STEP = LinearStepTime(5 * MS, 0, 0)
MEMBER = Member(EngineConfig(64, 4, 64), PagedPool(41, 4), STEP)


def served(
    workload: Workload,
    *events: FleetEvent,
    replicas: int = 2,
    router: str = "round_robin",
    member: Member = MEMBER,
    autoscaler: Autoscaler | None = None,
) -> RunLog:
    return simulate_fleet(workload, [member] * replicas, router=router, events=events, autoscaler=autoscaler)


def long_and_short(*arrivals: int) -> Workload:
    """The first request makes 20 tokens, all others one."""
    n = len(arrivals)
    return Workload.from_columns(list(arrivals), [4] * n, [20] + [1] * (n - 1))


@pytest.mark.parametrize("lag", [False, True])
def test_a_failure_loses_the_step_under_way_and_nothing_else(lag: bool) -> None:
    """Two tokens by 10 ms; the replica fails at 12; the other one computes 4 + 2 tokens at once and goes on."""
    member = replace(MEMBER, engine=replace(MEMBER.engine, async_scheduling=lag))
    log = served(long_and_short(0, 0), Fail(12 * MS, 0), member=member)
    table = log.request_columns()
    assert table["replica"].tolist() == [1, 1]
    assert table["first_token_ps"].tolist() == [5 * MS, 5 * MS]
    assert table["finish_ps"][0] == (12 + 18 * 5) * MS
    assert table["generated_tokens"].tolist() == [20, 1]
    assert table["preemptions"].tolist() == [1, 0]
    assert table["recomputed_tokens"].tolist() == [5, 0]  # the second token's KV was never there
    first, second = log.replicas
    assert (first.from_ps, first.to_ps, second.to_ps) == (0, 12 * MS, None)
    lost = steps_of(first)[-1]
    assert (lost["start_ps"], lost["duration_ps"], lost["tokens"], lost["running"]) == (10 * MS, 2 * MS, 0, 1)
    assert second.requeues.tolist() == [0, 12 * MS, 12 * MS]
    assert second.irregular_gaps_ps.tolist() == [7 * MS]
    assert log.fleet is not None
    assert (log.fleet.failures, log.fleet.rerouted, log.fleet.interrupted, log.fleet.lost_kv_tokens) == (1, 1, 1, 5)


def test_a_failure_at_the_end_of_a_step_finds_that_step_done() -> None:
    log = served(long_and_short(0, 0), Fail(10 * MS, 0))
    table = log.request_columns()
    assert table["finish_ps"][0] == (10 + 18 * 5) * MS
    assert [row["tokens"] for row in steps_of(log.replicas[0])] == [4, 1]


def test_a_failure_in_the_prefill_streams_nothing_and_counts_no_token() -> None:
    log = served(long_and_short(0, 0), Fail(3 * MS, 0))
    table = log.request_columns()
    assert table["first_token_ps"][0] == 10 * MS  # at 5 ms the other one is ready for it
    assert table["recomputed_tokens"][0] == 0
    assert table["scheduled_ps"][0] == 0
    assert log.replicas[1].requeues.tolist() == [0, 3 * MS, 5 * MS]


def test_whoever_waits_at_a_failed_replica_moves_without_a_preemption() -> None:
    member = replace(MEMBER, engine=replace(MEMBER.engine, max_num_seqs=1))
    log = served(Workload.from_columns([0] * 4, [4] * 4, [10, 1, 3, 1]), Fail(12 * MS, 0), member=member)
    table = log.request_columns()
    assert table["preemptions"].tolist() == [1, 0, 0, 0]
    assert table["scheduled_ps"].tolist() == [0, 0, (12 + 8 * 5) * MS, 5 * MS]
    assert log.fleet is not None and (log.fleet.rerouted, log.fleet.interrupted) == (2, 1)


def test_while_nobody_is_up_requests_wait_at_the_router() -> None:
    log = served(long_and_short(0, 20 * MS), Fail(12 * MS, 0, 30 * MS), replicas=1)
    table = log.request_columns()
    assert table["finish_ps"].tolist() == [(42 + 18 * 5) * MS, 47 * MS]
    assert table["scheduled_ps"].tolist() == [0, 42 * MS]
    assert [(life.replica, life.from_ps, life.to_ps) for life in log.replicas] == [(0, 0, 12 * MS), (0, 42 * MS, None)]
    assert log.fleet is not None and log.fleet.held == 2
    assert log.fleet.scaling == [(0, 1, 0, 0), (12 * MS, 0, 1, 0), (42 * MS, 1, 0, 0)]
    summarize(log)


def test_a_replica_that_never_comes_back_leaves_requests_unfinished_and_all_are_told() -> None:
    log = served(long_and_short(0, 20 * MS), Fail(12 * MS, 0), replicas=1)
    table = log.request_columns()
    assert log.status == "deadlock"
    assert table["status"].tolist() == [Status.UNFINISHED] * 2
    assert table["replica"].tolist() == [-1, -1]
    assert table["generated_tokens"].tolist() == [2, 0]
    assert table["scheduled_ps"].tolist() == [0, NOT_YET]
    found = result_dict(log, ResultContext())
    assert found["unfinished"] == 2
    assert any("no replica was up" in warning for warning in found["warnings"])


def test_before_its_start_a_replica_is_absent_and_afterwards_it_takes_its_share() -> None:
    log = served(Workload.from_columns([0, 0, 60 * MS, 60 * MS], [4] * 4, [1] * 4), Start(50 * MS, 1))
    assert log.request_columns()["replica"].tolist() == [0, 0, 0, 1]
    assert [(life.replica, life.from_ps) for life in log.replicas] == [(0, 0), (1, 50 * MS)]


def test_a_stopped_replica_serves_what_it_has_and_takes_no_more() -> None:
    log = served(long_and_short(0, 0, 20 * MS, 30 * MS), Stop(12 * MS, 0))
    table = log.request_columns()
    assert table["replica"].tolist() == [0, 1, 1, 1]
    assert table["preemptions"].sum() == 0
    assert log.replicas[0].to_ps == 100 * MS == table["finish_ps"][0]


def test_a_replica_that_starts_again_while_it_drains_goes_on() -> None:
    log = served(long_and_short(0, 0, 50 * MS), Stop(12 * MS, 0), Start(40 * MS, 0))
    assert [(life.replica, life.to_ps) for life in log.replicas] == [(0, None), (1, None)]
    assert log.request_columns()["replica"].tolist() == [0, 1, 0]


def test_two_that_fail_at_once_do_not_hand_on_to_each_other() -> None:
    log = served(long_and_short(0, 0, 0), Fail(12 * MS, 0), Fail(12 * MS, 1), replicas=3)
    assert log.request_columns()["preemptions"].tolist() == [1, 0, 0]
    assert log.fleet is not None and (log.fleet.failures, log.fleet.rerouted) == (2, 1)


def test_prefixes_are_gone_with_the_replica() -> None:
    member = replace(MEMBER, engine=replace(MEMBER.engine, enable_prefix_caching=True))
    segments = [(("sys", 0, 8),)] * 3
    workload = Workload.from_columns([0, 30 * MS, 90 * MS], [8] * 3, [1] * 3, segments=segments)
    table = served(workload, Fail(50 * MS, 0, 10 * MS), replicas=1, member=member).request_columns()
    assert table["cached_tokens"].tolist() == [0, 4, 0]


def test_hours_and_dollars_are_those_of_replicas_that_are_up() -> None:
    log = served(long_and_short(0, 0), Fail(12 * MS, 0), member=replace(MEMBER, gpus=4))
    found = result_dict(log, ResultContext(usd_per_gpu_hour=2.0, gpus_per_replica=4))
    end = 102 * MS
    assert found["fleet"]["replica_hours"] == (12 * MS + end) / 3600e12
    assert found["fleet"]["gpu_hours"] == 4 * (12 * MS + end) / 3600e12
    assert found["usd_per_hour"] == pytest.approx(2.0 * 4 * (12 + 102) / 102)
    assert found["kv"]["total_slots"] == 160
    assert found["fleet"]["mean_replicas"] == pytest.approx(114 / 102)


def test_a_fleet_that_does_not_change_has_no_such_block() -> None:
    assert "fleet" not in summarize(served(long_and_short(0, 0), router="least_kv"))


# -- routers -----------------------------------------------------------------------------------------------------


def test_least_kv_counts_slots_and_not_requests() -> None:
    """One request of 40 tokens at replica 0 against two of 4 at replica 1."""
    workload = Workload.from_columns([0, 6 * MS, 12 * MS, 18 * MS], [40, 4, 4, 4], [9] * 4)
    assert served(workload, router="least_kv").request_columns()["replica"].tolist() == [0, 1, 1, 1]
    busy = served(workload, router="least_outstanding").request_columns()["replica"].tolist()
    assert busy == [0, 1, 0, 1]


def test_a_central_queue_is_first_come_first_served_over_all_replicas() -> None:
    rng = np.random.default_rng(4)
    member = replace(MEMBER, engine=replace(MEMBER.engine, max_num_seqs=1))
    workload = Workload.from_columns(np.sort(rng.integers(0, 300 * MS, 60)), [4] * 60, rng.integers(1, 30, 60))
    table = served(workload, router="central_queue", replicas=3, member=member).request_columns()
    assert (np.diff(table["scheduled_ps"]) >= 0).all()
    assert table["scheduled_ps"].max() > table["arrival_ps"].max()


def test_whoever_lost_a_replica_has_its_old_place_in_the_central_queue() -> None:
    member = replace(MEMBER, engine=replace(MEMBER.engine, max_num_seqs=1))
    workload = Workload.from_columns([0, 1, 2, 3], [4] * 4, [9, 9, 1, 1])
    table = served(workload, Fail(12 * MS, 1), router="central_queue", member=member).request_columns()
    order = table["finish_ps"].argsort().tolist()
    assert order == [0, 1, 2, 3]


# -- the autoscaler ----------------------------------------------------------------------------------------------


def test_an_autoscaler_starts_what_the_queue_asks_for_and_stops_it_again() -> None:
    """At 20 ms seven wait at one replica: ceil(7 / 3) = 3. Of the two that are ready at 50 ms one stays at 60."""
    member = replace(MEMBER, engine=replace(MEMBER.engine, max_num_seqs=1))
    scaler = Autoscaler("queue", 3.0, 1, 4, 20 * MS, 30 * MS)
    workload = Workload.from_columns([0] * 8 + [60 * MS] * 4, [4] * 12, [8] * 12)
    log = served(workload, replicas=1, router="least_outstanding", member=member, autoscaler=scaler)
    assert log.status == "ok"
    assert log.fleet is not None
    assert log.fleet.scaling[:4] == [(0, 1, 0, 0), (20 * MS, 1, 2, 0), (50 * MS, 3, 0, 0), (60 * MS, 2, 0, 0)]
    table = log.request_columns()
    assert table["replica"].tolist() == [0] * 8 + [1] * 4
    assert log.fleet.starts == [(20 * MS, 50 * MS)] * 2 + [(80 * MS, 110 * MS)]  # 6 + 3 wait at 80 ms
    assert log.fleet.scaling[-1][1] == 1
    found = summarize(log)["fleet"]
    up = sum((life.to_ps or log.end_ps) - life.from_ps for life in log.replicas)
    assert found["replica_hours"] == (up + 90 * MS) / 3600e12


def test_an_autoscaler_keeps_to_its_limits() -> None:
    member = replace(MEMBER, engine=replace(MEMBER.engine, max_num_seqs=1))
    workload = Workload.from_columns([0] * 40, [4] * 40, [8] * 40)
    scaler = Autoscaler("queue", 0.1, 2, 3, 20 * MS)
    log = served(workload, replicas=1, router="central_queue", member=member, autoscaler=scaler)
    assert log.fleet is not None
    assert log.fleet.scaling[0] == (0, 2, 0, 0) or log.fleet.scaling[0] == (0, 1, 0, 0)
    assert max(up + starting for _, up, starting, _ in log.fleet.scaling) == 3
    assert min(up for _, up, _, _ in log.fleet.scaling[1:]) >= 2


def test_an_autoscaler_gives_up_on_a_dead_lock() -> None:
    engine = EngineConfig(64, 4, 64, on_unservable="faithful")
    member = replace(MEMBER, engine=engine, pool=PagedPool(3, 4))
    scaler = Autoscaler("queue", 0.5, 1, 3, 20 * MS, 10 * MS)
    log = served(Workload.from_columns([0, 0], [40, 40], [2, 2]), replicas=1, member=member, autoscaler=scaler)
    assert log.status == "deadlock"


def test_an_autoscaler_looks_on_through_a_long_silence() -> None:
    member = replace(MEMBER, engine=replace(MEMBER.engine, max_num_seqs=1))
    scaler = Autoscaler("queue", 1.0, 1, 3, 5 * MS)
    late = 3000 * MS
    workload = Workload.from_columns([0] + [late] * 9, [4] * 10, [8] * 10)
    log = served(workload, replicas=1, router="central_queue", member=member, autoscaler=scaler)
    assert log.fleet is not None
    assert max(up for _, up, _, _ in log.fleet.scaling) == 3


# -- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "where", "what"),
    [
        ([Fail(5, 2)], "fleet.events.0.replica", "there is no replica 2"),
        ([Fail(5, 0, 10), Stop(14, 0)], "fleet.events.1.at_s", "not up again"),
        ([Fail(5, 0), Fail(9, 0)], "fleet.events.1.at_s", "is not up"),
        ([Start(5, 0), Start(9, 0)], "fleet.events.1.at_s", "is up already"),
        ([Stop(9, 0), Stop(5, 0)], "fleet.events.0.at_s", "is not up"),
        ([Stop(5, 0), Start(5, 0)], "fleet.events.1.at_s", "at the same time"),
    ],
)
def test_events_that_contradict_each_other_are_refused_by_place(
    events: Sequence[FleetEvent], where: str, what: str
) -> None:
    with pytest.raises(InputError, match=what) as caught:
        check_events(events, 2)
    assert caught.value.where == where


def test_who_is_up_at_the_start() -> None:
    assert check_events([Start(5, 1), Stop(7, 1), Start(9, 1), Fail(3, 0)], 3) == [0, 2]


def test_several_sequences_and_failures_are_refused() -> None:
    workload = Workload.from_columns([0], [4], [4], sequences=[2])
    with pytest.raises(InputError):
        served(workload, Fail(5, 0))
