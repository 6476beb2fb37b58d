"""The engine against the plain twin, pass by pass."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from simulator.allocators.pools import PagedPool
from simulator.cluster import simulate
from simulator.pass_recorder import PassRecorder
from tests.differential.twin_scheduler import Twin
from tests.scenarios_random import Case, cases


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(reactive=False, contiguous=False))
def test_every_pass_is_the_twins(case: Case) -> None:
    assert isinstance(case.pool, PagedPool)
    recorder = PassRecorder([str(i) for i in range(len(case.workload))])
    log = simulate(case.workload, case.engine, case.pool, case.step_time, stepwise=True, recorders=[recorder])
    twin = Twin(case.engine, case.pool, case.step_time)
    twin.run(case.workload, 1 << 60 if log.status == "ok" else len(recorder.passes))  # a live-lock has no end
    ours = [
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
    assert ours == twin.passes
    assert log.status in ("ok", "livelock")
    table = log.request_columns()
    finish = {
        int(r): int(t) for r, t, s in zip(table["row"], table["finish_ps"], table["status"], strict=True) if s == 0
    }
    assert finish == twin.finished
