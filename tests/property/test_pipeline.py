"""A pipeline of one stage is a replica; of several, it loses nobody and its log is true."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simulator.pipeline
from simulator.allocators.pools import PagedPool
from simulator.cluster import simulate
from simulator.metrics import summarize
from simulator.metrics_timeline import timeline
from simulator.run_log import ReplicaLog, RunLog
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.pipelined_prefill import PipelinedPrefill
from simulator.schedulers.plan import Plan
from simulator.step_time.base import StepTimeModel
from simulator.step_time.linear import LinearStepTime
from simulator.step_time.pipeline import PipelinedStepTime, StageTransfer
from tests.expand import steps_of
from tests.scenarios_random import Case, cases, columns_equal
from workloads.workload import Workload

PS_PER_MS = 1_000_000_000
SLOW = [HealthCheck.too_slow]


class WatchedPrefill(PipelinedPrefill):
    """Checks itself before and after each pass."""

    passes = 0

    def schedule(self, step: int, now_ps: int) -> Plan:
        type(self).passes += 1
        self.check(step)
        plan = super().schedule(step, now_ps)
        self.check(step)
        return plan


@pytest.fixture(autouse=True, scope="module")
def _watched() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator.pipeline, "PipelinedPrefill", WatchedPrefill)
        yield
    assert WatchedPrefill.passes


def run(case: Case, step_time: StepTimeModel, **more: Any) -> RunLog:
    return simulate(case.workload, case.engine, case.pool, step_time, **case.options, **more)


def gaps_of(log: ReplicaLog) -> Counter[int]:
    """Every inter-token gap and how often it came."""
    gaps = Counter(log.irregular_gaps_ps)
    if log.pipeline is not None:
        table = log.pipeline.gap_columns()
        for gap, count in zip(table["gap_ps"].tolist(), table["count"].tolist(), strict=True):
            gaps[gap] += count
    for step in steps_of(log):
        gaps[step["duration_ps"]] += step["regular"]
    return +gaps


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(cases())
def test_one_stage_is_an_ordinary_replica(case: Case) -> None:
    case = replace(case, engine=replace(case.engine, async_scheduling=False))
    plain, piped = run(case, case.step_time), run(case, PipelinedStepTime((case.step_time,)))
    assert piped.status == plain.status
    assert piped.end_ps == plain.end_ps
    assert columns_equal(piped.request_columns(), plain.request_columns(), leave_out=("reason",))
    for mine, theirs in zip(piped.replicas, plain.replicas, strict=True):
        assert mine.pipeline is not None
        assert mine.pipeline.part_rows == 0
        assert [step | {"regular": 0} for step in steps_of(theirs)] == steps_of(mine)
        assert gaps_of(mine) == gaps_of(theirs)
        rows = [log.requeue_columns() for log in (mine, theirs)]
        assert sorted(zip(*rows[0].values(), strict=True)) == sorted(zip(*rows[1].values(), strict=True))
        assert mine.holds == theirs.holds
        assert mine.evicted_blocks == theirs.evicted_blocks
    if plain.status == "ok":
        told = summarize(piped)
        assert told.pop("pipeline")["bubble_share"] == 0.0
        assert told == summarize(plain)


@pytest.mark.parametrize("block", [2, 4])
def test_one_stage_keeps_the_same_blocks_of_answers_that_nobody_shares(block: int) -> None:
    """What preempted and ended requests leave in the cache, a full last block too, in pools that preempt and evict."""
    returned = evicted = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        work = Workload.from_columns(
            np.sort(rng.integers(0, 200, 30)) * PS_PER_MS, rng.integers(1, 40, 30), rng.integers(1, 40, 30)
        )
        engine = EngineConfig(128, 8, 32, enable_prefix_caching=True, scheduler_reserve_full_isl=False)
        case = Case(work, engine, PagedPool(150 // block, block), LinearStepTime(5 * PS_PER_MS, 0, 0), {})
        plain, piped = run(case, case.step_time), run(case, PipelinedStepTime((case.step_time,)))
        assert columns_equal(piped.request_columns(), plain.request_columns())
        assert piped.replicas[0].evicted_blocks == plain.replicas[0].evicted_blocks
        returned += int(plain.request_columns()["preemptions"].sum())
        evicted += plain.replicas[0].evicted_blocks
    assert min(returned, evicted) > 25


@st.composite
def pipelines(draw: st.DrawFn) -> PipelinedStepTime:
    """Two to four stages, equal or not."""
    ms = st.sampled_from([1, 2, 5])
    stages = tuple(
        LinearStepTime(
            draw(ms) * PS_PER_MS,
            draw(st.sampled_from([0, 50_000_000])),
            draw(st.sampled_from([0, 100_000])),
        )
        for _ in range(draw(st.integers(2, 4)))
    )
    return PipelinedStepTime(
        stages, StageTransfer(draw(st.sampled_from([0, PS_PER_MS])), draw(st.sampled_from([0, 7])))
    )


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(cases(), pipelines())
def test_nobody_is_lost_and_the_log_is_true(case: Case, step_time: PipelinedStepTime) -> None:
    case = replace(case, engine=replace(case.engine, async_scheduling=False))
    log = run(case, step_time)
    summary = summarize(log)  # Little's law, to the picosecond
    if case.engine.scheduler_reserve_full_isl:
        assert log.status == "ok"
    if log.status != "ok":
        return
    table = log.request_columns()
    assert table["row"].tolist() == list(range(len(case.workload)))
    finished = table["status"] == 0
    wanted = case.workload.output_tokens.clip(max=(case.engine.max_model_len - case.workload.prompt_tokens).clip(min=1))
    assert (table["generated_tokens"][finished] == wanted[finished]).all()
    assert summary["completed"] + summary["rejected"] == len(case.workload)
    generated = int(table["generated_tokens"].sum())
    assert sum(sum(gaps_of(replica).values()) for replica in log.replicas) == generated - int(finished.sum())
    spread = ((table["finish_ps"] - table["first_token_ps"])[finished]).sum()
    assert sum(gap * n for replica in log.replicas for gap, n in gaps_of(replica).items()) == spread
    for replica in log.replicas:
        check_rows(replica, len(step_time.stages))
    state = timeline(log, 60)
    taken = table["status"] == 0
    arrival, finish = table["arrival_ps"][taken], table["finish_ps"][taken]
    present = [int(((arrival <= time) & (time < finish)).sum()) for time in state.time_ps]
    assert (state.state["running"] + state.state["waiting"]).tolist() == present


def test_a_last_token_may_come_after_its_request_was_preempted() -> None:
    """Its wait ends there: Little's law holds to the picosecond (``summarize``)."""
    stages = PipelinedStepTime(tuple(LinearStepTime(5 * PS_PER_MS, 0, 0) for _ in range(3)))
    ended_waiting = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        work = Workload.from_columns(
            np.sort(rng.integers(0, 200, 40)) * PS_PER_MS, rng.integers(1, 40, 40), rng.integers(1, 6, 40)
        )
        engine = EngineConfig(128, 16, 24, scheduler_reserve_full_isl=False)
        log = run(Case(work, engine, PagedPool(60, 1), LinearStepTime(1, 0, 0), {}), stages)
        summarize(log)
        table, back = log.request_columns(), log.replicas[0].requeue_columns()
        ended_waiting += int((table["finish_ps"][back["row"]] == back["readmitted_ps"]).sum())
    assert ended_waiting > 3


def check_rows(replica: ReplicaLog, stages: int) -> None:
    """Rows follow each other; each stage is busy for at most the time in which a batch is in flight."""
    facts, rows = replica.pipeline, steps_of(replica)
    assert facts is not None
    for before, after in pairwise(rows):
        assert before["start_ps"] + before["duration_ps"] <= after["start_ps"]
    active = sum(row["duration_ps"] for row in rows)
    assert len(facts.stage_busy_ps) == stages
    assert max(facts.stage_busy_ps) <= active
    assert active <= facts.in_flight_ps <= stages * active
    assert len({row["step"] for row in rows}) == len(rows) - facts.part_rows


@settings(max_examples=10, deadline=None, suppress_health_check=SLOW)
@given(cases(), pipelines())
def test_the_same_run_twice_and_coupled(case: Case, step_time: PipelinedStepTime) -> None:
    """A limit on concurrency that nobody reaches delivers what the inbox knew: the same run."""
    workload = replace(case.workload, after=case.workload.after * 0 - 1, max_concurrency=None)
    options = {**case.options, "router": "round_robin"}
    case = replace(case, workload=workload, engine=replace(case.engine, async_scheduling=False), options=options)
    coupled = replace(case, workload=replace(workload, max_concurrency=1000))
    alone, delivered = run(case, step_time), run(coupled, step_time)
    assert columns_equal(alone.request_columns(), delivered.request_columns(), leave_out=("reason",))
    for mine, theirs in zip(alone.replicas, delivered.replicas, strict=True):
        assert mine.segments == theirs.segments
        assert mine.pipeline == theirs.pipeline
