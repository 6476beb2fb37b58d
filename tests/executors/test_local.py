"""Local processes: warm ones, and what becomes of a task whose worker dies."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.planner.executors import make_executor
from simulator.planner.executors.local_executor import LocalExecutor
from simulator.planner.point import Task
from simulator.planner.run_point import run_point
from simulator.scenario import load_scenario
from tests.sweeping import SCENARIO


def tasks(folder: Path, count: int, num_requests: int = 40) -> list[Task]:
    (folder / "chat.yaml").write_text(SCENARIO, encoding="utf-8")
    scenario = load_scenario(str(folder / "chat.yaml"), [f"workload.num_requests={num_requests}"]).scenario
    return [Task(i, replace(scenario, settings=replace(scenario.settings, seed=i)), None) for i in range(count)]


def test_results_are_those_of_this_process(tmp_path: Path) -> None:
    todo = tasks(tmp_path, 4)
    executor = LocalExecutor(workers=1)
    got = dict(found for found in executor.run(todo) if found is not None)
    assert {i: outcome.result for i, outcome in got.items()} == {task.index: run_point(task).result for task in todo}
    assert all(outcome.result and outcome.seconds > 0 for outcome in got.values())


def test_a_killed_worker_loses_no_task_and_one_that_kills_is_a_failed_point(tmp_path: Path) -> None:
    """The first worker is killed once, in the middle of a task; then a task takes its workers with it."""
    todo = tasks(tmp_path, 3, num_requests=1500)
    executor = LocalExecutor(workers=1)
    killed: list[int] = []

    def kill_workers(times: int) -> None:
        while len(killed) < times:
            time.sleep(0.05)
            for worker in list(executor._alive):
                pid = worker.process.pid
                if pid and pid not in killed and worker.job is not None:
                    killed.append(pid)
                    os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_workers, args=(3,))
    killer.start()
    got = dict(found for found in executor.run(todo) if found is not None)
    killer.join()
    # the first task is tried twice and given up; the second loses one worker and then runs
    assert [got[i].status for i in range(3)] == ["failed", "ok", "ok"]
    assert "the worker process died 2 times (SIGKILL)" in str(got[0].error)
    assert got[1].result == run_point(todo[1]).result


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kind": "spark"}, "'spark' is not an executor"),
        ({"kind": "locl"}, "did you mean local"),
        ({"kind": "local", "scheduler": "tcp://a:1"}, "local processes have no scheduler"),
        ({"kind": "dask", "scheduler": "tcp://a:1", "workers": 2}, "goes with local workers alone"),
    ],
)
def test_executors_that_cannot_be_are_named(options: dict[str, str | int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        make_executor(**{"workers": None, "scheduler": None, **options})  # type: ignore[arg-type]


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'kvplan\[ray\]'"):
        make_executor("ray", workers=None, scheduler=None)
