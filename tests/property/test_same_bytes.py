"""What a run writes: the same bytes from leaps and from single steps, on scenarios that hurt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings

from simulator.cluster import simulate
from simulator.result import ResultContext, result_dict
from simulator.result_files import json_text, write_requests_csv, write_timeline_csv
from tests.scenarios_random import Case, cases


def written(case: Case, *, stepwise: bool) -> dict[str, bytes]:
    log = simulate(case.workload, case.engine, case.pool, case.step_time, stepwise=stepwise, **case.options)
    with TemporaryDirectory() as folder:
        requests, timeline = Path(folder, "requests.csv"), Path(folder, "timeline.csv")
        write_requests_csv(log, requests)
        write_timeline_csv(log, timeline)
        return {
            "result.json": json_text(result_dict(log, ResultContext(slo={"ttft_ms": {"p99": 50.0}}))).encode(),
            "requests.csv": requests.read_bytes(),
            "timeline.csv": timeline.read_bytes(),
        }


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_leaps_and_single_steps_write_the_same_bytes(case: Case) -> None:
    leaps, steps = written(case, stepwise=False), written(case, stepwise=True)
    for name in leaps:
        assert leaps[name] == steps[name], name


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_a_run_changes_nothing_for_the_next(case: Case) -> None:
    """No state outside the run: the same again, and beside another one, gives the same bytes."""
    first = written(case, stepwise=False)
    written(replace(case, options={**case.options, "seed": 9}), stepwise=False)
    assert written(case, stepwise=False) == first
