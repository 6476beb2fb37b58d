"""Leaps that end at an exact step: held prefills, and arrivals at the very time when steps end."""

from __future__ import annotations

import pytest

from simulator.allocators.pools import PagedPool
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from tests.property.test_leaps import assert_same_run, run
from tests.scenarios_random import Case
from workloads.workload import Workload

STEP_PS = 5_000_000_000


@pytest.mark.parametrize("arrival_step", range(1, 9))
def test_a_leap_counts_the_passes_that_hold_a_prefill_back(arrival_step: int) -> None:
    """The first prefill is in pass 0, so none is in passes 1 to 4; a leap is cut short in each of them."""
    interval = 5
    workload = Workload.from_columns([0, arrival_step * STEP_PS], [10, 10], [60, 4])
    engine = EngineConfig(128, 8, 64, prefill_schedule_interval=interval)
    case = Case(workload, engine, PagedPool(40, 4), LinearStepTime(STEP_PS, 0, 0), {})
    leaps = run(case, stepwise=False)
    assert_same_run(leaps, run(case, stepwise=True))
    assert leaps.request_columns()["scheduled_ps"][1] == max(arrival_step, interval) * STEP_PS


@pytest.mark.parametrize("stepwise", [False, True], ids=["leaps", "stepwise"])
def test_a_pass_sees_what_the_end_of_a_step_elsewhere_sends_at_that_time(stepwise: bool) -> None:
    """Row 1 ends on replica 1 when a step of replica 0 ends; row 4 comes in its place, to replica 0, at once."""
    workload = Workload.from_columns([0] * 5, [10] * 5, [40, 4, 40, 40, 4], max_concurrency=4)
    engine = EngineConfig(128, 8, 64)
    case = Case(workload, engine, PagedPool(60, 4), LinearStepTime(STEP_PS, 0, 0), {"replicas": 2})
    table = run(case, stepwise=stepwise).request_columns()
    assert table["finish_ps"][1] == 4 * STEP_PS
    assert table["scheduled_ps"][4] == 4 * STEP_PS


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("stepwise", [False, True], ids=["leaps", "stepwise"])
def test_a_pass_sees_what_the_end_of_its_own_step_sends_at_that_time(stepwise: bool, asynchronous: bool) -> None:
    """Row 1 waits for the memory of row 0; row 2 comes when row 0 ends, and both are admitted in that pass."""
    workload = Workload.from_columns([0] * 3, [60, 60, 4], [4, 4, 4], max_concurrency=2)
    engine = EngineConfig(128, 8, 128, async_scheduling=asynchronous)
    case = Case(workload, engine, PagedPool(20, 4), LinearStepTime(STEP_PS, 0, 0), {})
    table = run(case, stepwise=stepwise).request_columns()
    assert table["finish_ps"][0] == 4 * STEP_PS
    assert table["scheduled_ps"].tolist() == [0, 4 * STEP_PS, 4 * STEP_PS]


@pytest.mark.parametrize("think_ms", [0, 1, 4, 5, 6, 10, 13])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_delivered_arrival_ends_a_leap_at_the_first_pass_that_can_see_it(asynchronous: bool, think_ms: int) -> None:
    """With async scheduling a pass is made when the step before it starts, and sees what has come by then."""
    workload = Workload.from_columns(
        [0, 0, 0, 0],
        [10, 10, 4, 4],
        [60, 3, 4, 4],
        after=[-1, -1, 1, 1],
        think_ps=[0, 0, think_ms * STEP_PS // 5, think_ms * STEP_PS // 5 + STEP_PS],
    )
    engine = EngineConfig(128, 8, 128, async_scheduling=asynchronous)
    case = Case(workload, engine, PagedPool(60, 4), LinearStepTime(STEP_PS, 0, 0), {})
    leaps = run(case, stepwise=False)
    assert_same_run(leaps, run(case, stepwise=True))
    table = leaps.request_columns()
    steps = -(-table["arrival_ps"][2:] // STEP_PS)  # that start before it
    assert table["first_token_ps"][2:].tolist() == ((steps + 1 + asynchronous) * STEP_PS).tolist()
