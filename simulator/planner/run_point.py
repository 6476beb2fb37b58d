"""Runs one point of a sweep, in whatever process it finds itself. It never raises: a failed point is a row too."""

from __future__ import annotations

import time

from simulator import admission_run, run_scenario
from simulator.errors import KvplanError
from simulator.planner.fingerprint import fingerprint
from simulator.planner.point import Outcome, Status, Task, one_line, status_of
from simulator.result_files import json_text
from simulator.unserved import serves_nobody, unserved_error
from workloads.errors import WorkloadError


def run_point(task: Task) -> Outcome:
    """The result of ``kvplan run`` on that scenario, or its error."""
    start = time.perf_counter()
    error: str | None
    try:
        status, error, result = _run(task)
    except (KvplanError, WorkloadError) as fault:
        status, error, result = status_of(fault), one_line(str(fault)), None
    except MemoryError:
        status, error, result = "failed", "needs more memory than the machine has", None
    except Exception as fault:
        status, error, result = "failed", one_line(f"internal error: {type(fault).__name__}: {fault}"), None
    return Outcome(status, error, result, time.perf_counter() - start, fingerprint())


def _run(task: Task) -> tuple[Status, str | None, str]:
    scenario = task.scenario
    built = run_scenario.build(scenario)
    if built.deployment.settings.mode == "admission":
        compared = admission_run.compare_block_sizes(built)
        result = admission_run.admission_result(built, admission_run.admit(built), compared, task.variant)
    else:
        try:
            result = run_scenario.result(built, run_scenario.run(built), task.variant)
        except KvplanError as error:
            raise scenario.located(error) from None
    if serves_nobody(result):
        raise scenario.located(unserved_error(built.deployment, built.workload))
    misses = run_scenario.missed(result)
    status: Status = "slo_missed" if misses else "ok"
    return status, one_line("; ".join(misses)) or None, json_text(result)
