"""Fleets of any kind: leaps are single steps, nobody is lost, and Little's law holds to the picosecond."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simulator.routers
from simulator.allocators.pools import ContiguousPool, PagedPool
from simulator.engine import Replica
from simulator.fleet_replica import FleetReplica
from simulator.members import Member
from simulator.metrics import summarize
from simulator.routers import least_kv
from simulator.run_log import NOT_YET, RunLog, Status
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from tests.expand import steps_of
from tests.fleet_cases import FleetCase, fleets
from tests.policy_cases import System, systems
from tests.property.test_leaps import assert_same_run
from tests.scenarios_random import PS_PER_MS, Case, cases

MS = PS_PER_MS
OTHERS = (
    Member(EngineConfig(64, 3, 64), PagedPool(30, 4), LinearStepTime(7 * MS, 0, 0), gpus=2),
    Member(EngineConfig(128, 8, 80), ContiguousPool(300), LinearStepTime(3 * MS, 1_000_000, 0)),
)
MANY = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FEW = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def accounted_for(case: FleetCase, log: RunLog) -> None:
    """Every request that was sent has one row, whatever happened to its replica."""
    table = log.request_columns()
    rows = table["row"].tolist()
    assert len(set(rows)) == len(rows)
    if log.status == "ok":
        assert rows == list(range(len(case.workload)))
        assert set(table["status"].tolist()) <= {Status.FINISHED, Status.REJECTED}
    finished = table["status"] == Status.FINISHED
    limit = max(member.engine.max_model_len for member in case.members)
    most = case.workload.output_tokens[table["row"]].clip(max=limit)
    assert (table["generated_tokens"][finished] <= most[finished]).all()
    assert (table["generated_tokens"][finished] >= 1).all()
    assert (table["finish_ps"][finished] <= log.end_ps).all()
    if len({member.engine.max_model_len for member in case.members}) == 1:
        room = limit - case.workload.prompt_tokens[table["row"]]
        assert (table["generated_tokens"][finished] == most.clip(max=room.clip(min=1))[finished]).all()


def in_order(log: RunLog) -> None:
    """Nothing happens before its cause, and a replica computes only while it is up, one step after the other."""
    table = log.request_columns()
    for before, after in pairwise(("arrival_ps", "scheduled_ps", "first_token_ps", "finish_ps")):
        known = (table[before] != NOT_YET) & (table[after] != NOT_YET)
        assert (table[before] <= table[after])[known].all()
    lives: dict[int, int] = {}  # replica -> end of its last life
    for replica in log.replicas:
        assert lives.get(replica.replica, 0) <= replica.from_ps
        lives[replica.replica] = log.end_ps if replica.to_ps is None else replica.to_ps
        now = replica.from_ps
        for step in steps_of(replica):
            assert now <= step["start_ps"]
            now = step["start_ps"] + step["duration_ps"]
        assert replica.to_ps is None or now <= replica.to_ps
        for row, since, back in np.array(replica.requeues, dtype=np.int64).reshape(-1, 3).tolist():
            assert back == NOT_YET or table["arrival_ps"][table["row"] == row] <= since <= back


def check(case: FleetCase) -> RunLog:
    leaps, steps = case.run(), case.run(stepwise=True)
    assert_same_run(leaps, steps)
    assert leaps.fleet == steps.fleet
    accounted_for(case, leaps)
    in_order(leaps)
    if leaps.status != "max_steps":
        assert summarize(leaps) == summarize(steps)  # which checks Little's law
    return leaps


@MANY
@given(st.data())
def test_fleets_of_vllm_replicas(data: st.DataObject) -> None:
    check(data.draw(fleets(data.draw(cases()), others=OTHERS)))


@pytest.mark.parametrize("system", systems())
@FEW
@given(st.data())
def test_fleets_of_every_system(system: System, data: st.DataObject) -> None:
    check(data.draw(fleets(data.draw(system.cases()))))


def shares_seen(case: FleetCase, *, stepwise: bool) -> list[tuple[int, list[float]]]:
    """The shares of KV slots held that the router saw of every replica, at each of its choices."""
    seen: list[tuple[int, list[float]]] = []

    def choose(row: int, up: Sequence[Replica]) -> int:
        seen.append((row, [cast(FleetReplica, replica).used_share() for replica in up]))
        return least_kv(row, up)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator.routers, "least_kv", choose)
        case.run(stepwise=stepwise)
    return seen


@MANY
@given(cases(), st.integers(1, 2))
def test_kv_is_read_in_mid_leap_as_after_the_last_step(case: Case, replicas: int) -> None:
    members = (Member(case.engine, case.pool, case.step_time),) * replicas
    fleet = FleetCase(case.workload, members, "least_kv", 0)
    assert shares_seen(fleet, stepwise=False) == shares_seen(fleet, stepwise=True)


@pytest.mark.parametrize("system", systems())
@FEW
@given(st.data())
def test_kv_of_every_system_is_read_in_mid_leap(system: System, data: st.DataObject) -> None:
    case = data.draw(system.cases())
    fleet = FleetCase(case.workload, (Member(case.engine, case.pool, case.step_time),), "least_kv", 0)
    assert shares_seen(fleet, stepwise=False) == shares_seen(fleet, stepwise=True)
