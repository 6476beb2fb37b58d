"""The engine against the plain twin, pass by pass and token by token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simulator.cluster
from simulator.allocators.pools import PagedPool
from simulator.cluster import simulate
from simulator.pass_recorder import PassRecorder
from simulator.run_log import RunLog
from simulator.schedulers.chunked_prefill import ChunkedPrefill
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.plan import Plan
from simulator.step_time.linear import LinearStepTime
from tests.differential.twin_scheduler import Twin
from tests.expand import steps_of
from tests.scenarios_random import Case, cases
from workloads.workload import Workload


def passes_of(recorder: PassRecorder) -> list[dict[str, Any]]:
    return [
        {
            "t": p["t_ns"] * 1000,
            "sched": [(int(row), n) for row, n in p["sched"]],
            "admit": [int(row) for row, _ in p.get("admit", [])],
            "preempt": [int(row) for row in p.get("preempt", [])],
            "free": p["free"],
            "run": p["run"],
            "wait": p["wait"],
            "dur": p["dur_ns"] * 1000,
            "fin": [int(row) for row in p.get("fin", [])],
        }
        for p in recorder.passes
        if "stall" not in p
    ]


def gaps_of(log: RunLog) -> list[int]:
    """All times between two tokens of the same request, as the log tells them."""
    gaps = list(log.replicas[0].irregular_gaps_ps)
    for step in steps_of(log.replicas[0]):
        gaps += [step["duration_ps"]] * step["regular"]
    return sorted(gaps)


def assert_twins(case: Case, budget_at: Callable[[int], int] | None = None) -> RunLog:
    """The plain twin knows one group that keeps every token, no cache and no async scheduling."""
    assert isinstance(case.pool, PagedPool)
    engine = replace(case.engine, enable_prefix_caching=False, async_scheduling=False, version="0.33")
    case = replace(case, engine=engine, pool=replace(case.pool, groups=()))
    recorder = PassRecorder([str(i) for i in range(len(case.workload))])
    log = simulate(case.workload, case.engine, case.pool, case.step_time, stepwise=True, recorders=[recorder])
    twin = Twin(case.engine, case.pool, case.step_time, budget_at=budget_at)
    # A live-lock has no end: the twin stops where the engine has given up.
    twin.run(case.workload, 1 << 60 if log.status == "ok" else len(recorder.passes))
    assert log.status in ("ok", "livelock")
    assert passes_of(recorder) == twin.passes
    table = log.request_columns()
    ended = table["status"] == 0
    assert dict(zip(table["row"][ended].tolist(), table["finish_ps"][ended].tolist(), strict=True)) == twin.finished
    if log.status == "ok":
        gaps = [b - a for times in twin.token_times.values() for a, b in pairwise(times)]
        assert gaps_of(log) == sorted(gaps)
    return log


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(reactive=False, contiguous=False))
def test_every_pass_is_the_twins(case: Case) -> None:
    assert_twins(case)


class Throttled(ChunkedPrefill):
    """A budget that changes from pass to pass, too small for all decoders at times: some are left out.

    Only for single steps: a leap would not see the budget change.
    """

    period = 3
    skips = 0

    def budget_at(self, step: int) -> int:
        return 1 + step * 5 % self.period

    def schedule(self, step: int, now_ps: int) -> Plan:
        self.budget = self.budget_at(step)
        plan = super().schedule(step, now_ps)
        type(self).skips += len(plan.skipped)
        return plan


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(reactive=False, contiguous=False), st.integers(2, 12))
def test_decoders_that_a_pass_leaves_out_are_the_twins(case: Case, period: int) -> None:
    if not case.engine.enable_chunked_prefill:
        return  # a whole prompt may never fit in such a budget
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator.cluster, "make_scheduler", Throttled)
        patch.setattr(Throttled, "period", period)
        assert_twins(case, lambda step: 1 + step * 5 % period)


def test_the_throttle_does_leave_decoders_out() -> None:
    Throttled.skips = 0
    case = Case(
        Workload.from_columns([0] * 5, [4] * 5, [40] * 5),
        EngineConfig(64, 5, 64),
        PagedPool(80, 4),
        LinearStepTime(5_000_000_000, 0, 0),
        {},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator.cluster, "make_scheduler", Throttled)
        patch.setattr(Throttled, "period", 7)
        log = assert_twins(case, lambda step: 1 + step * 5 % 7)
    assert Throttled.skips > 20
    assert len(log.replicas[0].irregular_gaps_ps) > 10


def test_those_that_end_together_leave_in_the_order_of_admission() -> None:
    """A long prompt, capped, completes in the very step in which a request admitted after it decodes its last."""
    engine = EngineConfig(64, 4, 16, long_prefill_token_threshold=4)
    case = Case(
        Workload.from_columns([0, 0], [12, 2], [1, 3]),
        engine,
        PagedPool(40, 4),
        LinearStepTime(5_000_000_000, 0, 0),
        {},
    )
    recorder = PassRecorder(["0", "1"])
    simulate(case.workload, engine, case.pool, case.step_time, stepwise=True, recorders=[recorder])
    assert [p["fin"] for p in recorder.passes if "fin" in p] == [["0", "1"]]
    assert_twins(case)
