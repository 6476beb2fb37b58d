"""``kvplan run --workers``: the files of one process from any number of workers, and what cannot be split."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simulator.cli import run_workers
from simulator.planner import fleet
from simulator.planner.executors.serial_executor import SerialExecutor
from tests.running import SCENARIO, Run, result_of, runs_in, same_bytes

FLEET = SCENARIO + "parallelism: {replicas: 7}\nrouter: random\n"
REJECTED = FLEET.replace("max: 2000", "max: 8000").replace("mean: 200", "mean: 3000")
SESSIONS = (
    FLEET.replace("random", "prefix_affine")
    .replace("engine: {", "engine: {enable_prefix_caching: true, ")
    .replace("  prompt_tokens", "  session: {turns: {kind: uniform, min: 1, max: 5}}\n  prompt_tokens")
)
GROUPS = (
    SCENARIO
    + """\
router: random
fleet:
  groups:
    - {name: large, replicas: 3}
    - {name: small, replicas: 2, engine: {num_gpu_blocks_override: 150, max_num_seqs: 4}}
"""
)
PIPELINES = SCENARIO + "parallelism: {pipeline_parallel_size: 2, replicas: 3}\n"
KVPLAN = [sys.executable, "-c", "from simulator.cli import app; app()"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return runs_in(tmp_path)


@pytest.fixture
def serial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs in this process: no time to start workers, and all else the same."""
    monkeypatch.setattr("simulator.planner.executors.make_executor", lambda *_, **__: SerialExecutor())


def test_any_number_of_workers_writes_the_same_bytes(run: Run, tmp_path: Path) -> None:
    assert run("--workers", "1", text=FLEET).exit_code == 0
    for count in ("2", "3"):
        done = run("--workers", count, "--quiet", out=count, text=FLEET)
        assert (done.exit_code, done.stderr) == (0, "")
        same_bytes(tmp_path / "out", tmp_path / count)


@pytest.mark.usefixtures("serial")
@pytest.mark.parametrize(
    "text", [REJECTED, SESSIONS, GROUPS, PIPELINES], ids=["rejections", "sessions", "groups", "pipelines"]
)
def test_fleets_of_all_kinds_are_the_same(run: Run, tmp_path: Path, text: str) -> None:
    assert run(text=text).exit_code == 0
    done = run("--workers", "2", out="two", text=text)
    assert (done.exit_code, done.stderr) == (0, "")
    same_bytes(tmp_path / "out", tmp_path / "two")
    result = result_of(tmp_path / "out")
    assert (result["rejected"] > 0) == (text == REJECTED)
    assert (result["prefix_cache_hit_rate"] > 0) == (text == SESSIONS)
    assert (len(result.get("fleet", {}).get("groups", ())) == 2) == (text == GROUPS)


@pytest.mark.usefixtures("serial")
def test_variants_run_one_after_the_other_and_those_that_need_one_clock_say_why(run: Run, tmp_path: Path) -> None:
    text = (
        FLEET
        + """\
variants:
  spread: {}
  watched: {router: least_outstanding}
  one: {parallelism.replicas: 1}
  failing: {fleet: {events: [{kind: fail, at_s: 0.5, replica: 1}]}}
"""
    )
    assert run(text=text).exit_code == 0
    done = run("--workers", "2", out="two", text=text)
    assert done.exit_code == 0 and done.stderr.splitlines() == [
        "watched: simulated in one process: router least_outstanding looks at all replicas whenever a request arrives",
        "one: simulated in one process: one replica has no parts",
        "failing: simulated in one process: fleet.events and fleet.autoscaler: requests go from replica to replica",
    ]
    assert run("--workers", "2", "--quiet", out="quiet", text=text).stderr == ""
    for name in ("spread", "watched", "one", "failing"):
        same_bytes(tmp_path / "out" / name, tmp_path / "two" / name)


@pytest.mark.usefixtures("serial")
def test_a_large_fleet_takes_workers_by_itself(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    split: list[int] = []
    in_parts = fleet.run_in_parts

    def spy(*args: object, **options: object) -> object:
        split.append(1)
        return in_parts(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(fleet, "run_in_parts", spy)
    monkeypatch.setattr("simulator.planner.executors.local_executor.usable_cores", lambda: 2)
    assert run(text=FLEET).exit_code == 0 and not split
    monkeypatch.setattr(run_workers, "WORTHWHILE_REQUESTS", 60)
    assert run("--workers", "1", text=FLEET).exit_code == 0 and not split
    assert run(text=FLEET, out="split").exit_code == 0 and split
    same_bytes(tmp_path / "out", tmp_path / "split")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--executor", "spark"), "'spark' is not an executor"),
        (("--scheduler", "tcp://a:1"), "local processes have no scheduler"),
        (("--executor", "dask", "--scheduler", "tcp://a:1", "--workers", "2"), "goes with local workers alone"),
    ],
)
def test_options_that_contradict_each_other(run: Run, tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    done = run(*options)
    assert done.exit_code == 2 and said in done.stderr and not (tmp_path / "out").exists()


@pytest.mark.usefixtures("serial")
def test_an_error_of_a_part_is_the_error_of_the_run(run: Run, tmp_path: Path) -> None:
    text = FLEET.replace("num_gpu_blocks_override: 400", "num_gpu_blocks_override: 2")
    one, two = run(text=text), run("--workers", "2", text=text)
    assert one.exit_code == two.exit_code != 0 and one.stderr == two.stderr
    assert not (tmp_path / "out").exists()


def test_workers_that_die_again_and_again_are_told(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Deadly:
        workers = 2

        def run(self, jobs: list[fleet.FleetJob]) -> object:
            yield from ((job.index, job.run() if job.index else job.lost("they died")) for job in jobs)

        def close(self) -> None:
            pass

    monkeypatch.setattr("simulator.planner.executors.make_executor", lambda *_, **__: Deadly())
    done = run("--workers", "2", text=FLEET)
    assert done.exit_code == 1 and "of the fleet's replicas could not be simulated: they died" in done.stderr
    assert "try --workers 1" in done.stderr and not (tmp_path / "out").exists()


def test_ctrl_c_leaves_the_folder_as_it_was_and_no_process(run: Run, tmp_path: Path) -> None:
    assert run(text=FLEET).exit_code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    long = FLEET.replace("num_requests: 60", "num_requests: 100000")
    (tmp_path / "chat.yaml").write_text(long, encoding="utf-8")
    options = ["run", str(tmp_path / "chat.yaml"), "--out", str(tmp_path / "out"), "--no-report"]
    started = subprocess.Popen(
        [*KVPLAN, *options, "--workers", "2", "--stepwise"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert started.stderr is not None
    assert started.stderr.readline().startswith(b"chat: ")  # the workers are at it
    os.killpg(started.pid, signal.SIGINT)
    _, stderr = started.communicate(timeout=60)
    assert started.returncode == 130 and b"interrupted, nothing was written" in stderr and b"Traceback" not in stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            os.killpg(started.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError("a process is left")
