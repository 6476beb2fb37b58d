"""Additivity: leaps and single steps are the same run, to the last bit."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings

from simulator.allocators.pools import KvGroupShape, PagedPool
from simulator.cluster import simulate
from simulator.run_log import RunLog
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from tests.expand import steps_of
from tests.scenarios_random import Case, cases, columns_equal
from workloads.workload import Workload


def run(case: Case, *, stepwise: bool) -> RunLog:
    return simulate(case.workload, case.engine, case.pool, case.step_time, stepwise=stepwise, **case.options)


def assert_same_run(leaps: RunLog, steps: RunLog) -> None:
    assert leaps.status == steps.status
    assert leaps.end_ps == steps.end_ps
    a, b = leaps.request_columns(), steps.request_columns()
    assert columns_equal(a, b, leave_out=("reason",))
    assert [leaps.reasons[i] for i in a["reason"]] == [steps.reasons[i] for i in b["reason"]]
    for mine, theirs in zip(leaps.replicas, steps.replicas, strict=True):
        assert steps_of(mine) == steps_of(theirs)
        assert sorted(mine.irregular_gaps_ps) == sorted(theirs.irregular_gaps_ps)
        assert mine.requeues == theirs.requeues
        assert mine.holds == theirs.holds


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_leaps_and_single_steps_are_the_same_run(case: Case) -> None:
    assert_same_run(run(case, stepwise=False), run(case, stepwise=True))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_every_request_is_accounted_for_once(case: Case) -> None:
    log = run(case, stepwise=False)
    table = log.request_columns()
    if case.engine.scheduler_reserve_full_isl:
        assert log.status == "ok"  # what can never be served is rejected, so no run hangs
    if log.status != "ok":
        return
    assert table["row"].tolist() == list(range(len(case.workload)))
    finished = table["status"] == 0
    limit = case.engine.max_model_len - case.workload.prompt_tokens
    wanted = case.workload.output_tokens.clip(max=limit.clip(min=1))
    assert (table["generated_tokens"][finished] == wanted[finished]).all()
    assert set(table["status"].tolist()) <= {0, 1}
    for reason in table["reason"][~finished]:
        assert log.reasons[reason]


def test_a_more_important_arrival_overtakes_a_blocked_head_in_mid_leap() -> None:
    """The head is too large for what is free; a small one of higher priority arrives during a long leap and fits."""
    ms = 1_000_000_000
    case = Case(
        Workload.from_columns([0, 1 * ms, 52 * ms], [40, 90, 8], [60, 4, 4], priority=[1, 1, 0]),
        EngineConfig(1024, 8, 256, scheduling_policy="priority"),
        PagedPool(8, 16),
        LinearStepTime(5 * ms, 0, 0),
        {},
    )
    leaps, steps = run(case, stepwise=False), run(case, stepwise=True)
    assert_same_run(leaps, steps)
    scheduled = leaps.request_columns()["scheduled_ps"]
    assert scheduled[2] == 55 * ms < scheduled[1]  # at the first boundary after its arrival
    assert max(leaps.replicas[0].segment_columns()["steps"]) > 5


def test_an_arrival_behind_the_head_shrinks_its_chunk_until_it_fits() -> None:
    """The adaptive cap falls with the number of requests: the third arrival lets the second in."""
    ms = 1_000_000_000
    engine = EngineConfig(
        128, 8, 87, long_prefill_token_threshold=30, long_prefill_token_threshold_adaptive=True,
        scheduler_reserve_full_isl=False,
    )  # fmt: skip
    workload = Workload.from_columns([0, 1 * ms, 52 * ms], [10, 41, 8], [40, 4, 4])
    case = Case(workload, engine, PagedPool(27, 2), LinearStepTime(5 * ms, 0, 0), {})
    leaps = run(case, stepwise=False)
    assert_same_run(leaps, run(case, stepwise=True))
    assert leaps.request_columns()["scheduled_ps"][1] == 55 * ms
    coupled = replace(case, workload=replace(workload, max_concurrency=9))  # the arrival is delivered, not foreseen
    assert_same_run(run(coupled, stepwise=False), leaps)


def test_a_window_that_leaves_a_shared_block_changes_what_sharing_saves_in_that_step() -> None:
    ms = 1_000_000_000
    engine = EngineConfig(128, 8, 64, enable_prefix_caching=True, prefix_cache_retention_interval=None)
    shared = (("g", 0, 16),)
    workload = Workload.from_columns(
        [0, 0], [17, 17], [40, 40], segments=[(*shared, ("a", 0, 1)), (*shared, ("b", 0, 1))]
    )
    pool = PagedPool(200, 2, groups=(KvGroupShape(2), KvGroupShape(2, 10)))
    case = Case(workload, engine, pool, LinearStepTime(5 * ms, 0, 0), {})
    leaps = run(case, stepwise=False)
    assert_same_run(leaps, run(case, stepwise=True))
    saved = [step["saved_slots"] for step in steps_of(leaps.replicas[0])]
    assert saved[0] > saved[-1] > 0, "the full group shares to the end, the windows move on"
