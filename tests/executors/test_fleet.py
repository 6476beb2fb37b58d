"""Parts of a fleet on local processes, one of which is killed: nothing is lost, and the log is the same."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from pathlib import Path

import pytest

from simulator import run_scenario
from simulator.errors import InputError
from simulator.planner.executors.local_executor import LocalExecutor
from simulator.planner.executors.serial_executor import SerialExecutor
from simulator.planner.fleet import fleet_jobs, run_in_parts
from simulator.scenario import load_scenario
from tests.sweeping import SCENARIO


def test_a_worker_killed_in_the_middle_loses_no_replica(tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text(SCENARIO, encoding="utf-8")
    patches = ["workload.num_requests=12000", "parallelism.replicas=6", "workload.arrivals.rate_rps=200"]
    scenario = load_scenario(str(tmp_path / "chat.yaml"), patches).scenario
    built = run_scenario.build(scenario)
    executor = LocalExecutor(workers=1)
    killed: list[int] = []

    def kill_one() -> None:
        while not killed:
            time.sleep(0.05)
            for worker in list(executor._alive):
                if worker.job is not None and worker.process.pid:
                    killed.append(worker.process.pid)
                    os.kill(worker.process.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    log = run_in_parts(built, scenario, executor)
    killer.join()
    whole = run_scenario.run(built)
    assert log.replicas == whole.replicas and log.requests and (log.status, log.end_ps) == (whole.status, whole.end_ps)
    assert {name: column.tolist() for name, column in log.request_columns().items()} == {
        name: column.tolist() for name, column in whole.request_columns().items()
    }


@pytest.mark.parametrize(
    ("replicas", "requests", "workers"), [(1000, 2_000_000, 2), (3, 10, 2), (64, 10**6, 16), (17, 100, 1)]
)
def test_parts_hold_every_replica_once_and_groups_are_spread(
    tmp_path: Path, replicas: int, requests: int, workers: int
) -> None:
    (tmp_path / "chat.yaml").write_text(SCENARIO, encoding="utf-8")
    patches = [f"workload.num_requests={requests}", f"parallelism.replicas={replicas}"]
    scenario = load_scenario(str(tmp_path / "chat.yaml"), patches).scenario
    jobs = fleet_jobs(run_scenario.build(scenario), scenario, workers)
    assert sorted(number for job in jobs for number in job.numbers) == list(range(replicas))
    sizes = {len(job.numbers) for job in jobs}
    assert max(sizes) - min(sizes) <= 1
    assert len(jobs) == replicas or requests / len(jobs) <= 100_000
    assert len(jobs) >= min(replicas, 2 * workers)
    assert len(pickle.dumps(jobs[0])) < 20_000  # the scenario, not its requests


def test_a_worker_that_reads_another_trace_is_told(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = [f"{i / 10},{100 + i},20" for i in range(40)]
    trace.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n", encoding="utf-8")
    text = SCENARIO[: SCENARIO.index("workload:")] + "workload: {trace: {path: trace.csv, format: csv}}\n"
    (tmp_path / "chat.yaml").write_text(text + "parallelism: {replicas: 2}\n", encoding="utf-8")
    scenario = load_scenario(str(tmp_path / "chat.yaml")).scenario
    built = run_scenario.build(scenario)
    assert run_in_parts(built, scenario, SerialExecutor()).status == "ok"
    trace.write_text(trace.read_text().replace("100,20", "101,20"), encoding="utf-8")
    again = run_scenario.build(scenario)
    assert run_in_parts(again, scenario, SerialExecutor()).status == "ok"
    with pytest.raises(InputError, match="reads other requests"):
        run_in_parts(built, scenario, SerialExecutor())
