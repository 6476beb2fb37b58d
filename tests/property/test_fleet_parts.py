"""A fleet in parts: any partition of its replicas gives the log of one process, to the last bit."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from simulator.allocators.pools import ContiguousPool, PagedPool
from simulator.cluster import simulate_fleet
from simulator.errors import KvplanError
from simulator.fleet_parts import joined, simulate_part, why_one_clock
from simulator.members import Member
from simulator.metrics import summarize
from simulator.run_log import RunLog
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from tests.scenarios_random import Case, cases, columns_equal, engines
from workloads.workload import Workload

MS = 1_000_000_000


def members_of(case: Case, other: EngineConfig, count: int) -> list[Member]:
    """Two kinds of replicas by turns."""
    one = Member(case.engine, case.pool, case.step_time, "one")
    engine = replace(other, on_unservable="faithful", enable_prefix_caching=case.engine.enable_prefix_caching)
    two = Member(engine, case.pool, case.step_time, "two", 2)
    return [(one, two)[number % 2] for number in range(count)]


def in_parts(workload: Workload, members: list[Member], parts: list[list[int]], router: str, seed: int) -> RunLog:
    done = [simulate_part(workload, members, numbers, router=router, seed=seed) for numbers in parts if numbers]
    return joined(workload, members, pickle.loads(pickle.dumps(done)))


def assert_same_log(one: RunLog, other: RunLog) -> None:
    assert one.replicas == other.replicas
    assert (one.status, one.end_ps, one.limits) == (other.status, other.end_ps, other.limits)
    mine, theirs = one.request_columns(), other.request_columns()
    assert columns_equal(mine, theirs, leave_out=("reason",))
    assert [one.reasons[i] for i in mine["reason"]] == [other.reasons[i] for i in theirs["reason"]]
    assert repr(summarize(one)) == repr(summarize(other))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), engines(), st.data())
def test_any_partition_is_the_run_of_one_process(case: Case, other: EngineConfig, data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 5))
    router = data.draw(st.sampled_from(["round_robin", "random", "prefix_affine", "prefix_affine"]))
    seed = data.draw(st.integers(0, 3))
    members = members_of(case, other, count)
    sessions = bool((case.workload.after >= 0).any())
    why = why_one_clock(case.workload, members, router, seed)
    if case.workload.max_concurrency is not None or (sessions and router != "prefix_affine"):
        assume(why is None)  # a session may happen to stay on one replica
    assert why is None
    order = data.draw(st.permutations(range(count)))
    cuts = sorted(data.draw(st.lists(st.integers(0, count), max_size=3)))
    parts = [list(order[begin:end]) for begin, end in zip([0, *cuts], [*cuts, count], strict=True)]
    try:
        whole = simulate_fleet(case.workload, members, router=router, seed=seed)
    except KvplanError as error:
        with pytest.raises(type(error)) as caught:
            in_parts(case.workload, members, parts, router, seed)
        assert str(caught.value) == str(error)
        return
    assert_same_log(whole, in_parts(case.workload, members, parts, router, seed))


def test_a_replica_that_is_stuck_ends_with_the_whole_run() -> None:
    """Replica 0 dead-locks early; replica 1 runs on for long."""
    workload = Workload.from_columns([0, 0, 0, 9 * MS], [30, 10, 30, 10], [40, 900, 40, 10])
    engine = EngineConfig(1000, 1, 1000, on_unservable="faithful")
    stuck = Member(engine, ContiguousPool(40, "oracle", "first"), LinearStepTime(5 * MS, 0, 0))
    long = Member(engine, ContiguousPool(1000, "oracle", "first"), LinearStepTime(5 * MS, 0, 0))
    whole = simulate_fleet(workload, [stuck, long])
    assert whole.status == "deadlock" and whole.end_ps == 5 * MS * (900 + 10)
    assert_same_log(whole, in_parts(workload, [stuck, long], [[1], [0]], "round_robin", 0))


def test_who_needs_one_clock_and_why() -> None:
    member = Member(EngineConfig(64, 4, 64), PagedPool(20, 16), LinearStepTime(MS, 0, 0))
    two = [member] * 2
    open_loop = Workload.from_columns([0, 0], [8, 8], [8, 8])
    assert why_one_clock(open_loop, two, "random", 0) is None
    assert "one replica" in str(why_one_clock(open_loop, [member], "random", 0))
    assert "least_outstanding" in str(why_one_clock(open_loop, two, "least_outstanding", 0))
    assert "closed loop" in str(why_one_clock(replace(open_loop, max_concurrency=1), two, "random", 0))
    session = Workload.from_columns([0, 0], [8, 8], [8, 8], after=[-1, 0])
    assert "session" in str(why_one_clock(session, two, "round_robin", 0))
    assert why_one_clock(session, two, "prefix_affine", 0) is None
