"""A sweep on a real Dask cluster: a scheduler and workers, each a process of its own, on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simulator.cli import app
from tests.running import same_bytes
from tests.sweeping import SCENARIO, Sweeps, contents, rows_of

pytest.importorskip("distributed", reason="needs the extra [dask]")

POINTS = 10
OVER = ("--over", "engine.max_num_seqs=" + ",".join(str(seats) for seats in range(4, 4 + POINTS)))
TEXT = SCENARIO.replace("num_requests: 40", "num_requests: 800")  # long enough to die in the middle of one
KVPLAN = [sys.executable, "-c", "from simulator.cli import app; app()"]
PATIENCE_S = 120.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """The scheduler's address and the processes of two workers, which nobody starts again."""
    file = tmp_path / "scheduler.json"
    common = {"cwd": tmp_path, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    dask = [sys.executable, "-m", "dask"]
    address = ["--host", "127.0.0.1", "--scheduler-file", str(file)]
    started = [subprocess.Popen([*dask, "scheduler", *address, "--port", "0", "--no-dashboard"], **common)]
    try:
        worker = [*dask, "worker", *address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
        wait_for(lambda: file.exists() and file.stat().st_size > 0)
        started += [subprocess.Popen([*worker, "--local-directory", str(tmp_path)], **common) for _ in range(2)]
        from distributed import Client

        with Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(2, timeout=PATIENCE_S)
            found = client.scheduler.address
        yield found, started[1:]
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def wait_for(happened: object, what: str = "") -> None:
    end = time.monotonic() + PATIENCE_S
    while not happened():  # type: ignore[operator]
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.02)


def test_a_worker_killed_in_the_middle_loses_no_point(
    cluster: tuple[str, list[subprocess.Popen[bytes]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, workers = cluster
    out = tmp_path / "out"
    (tmp_path / "chat.yaml").write_text(TEXT, encoding="utf-8")
    options = ["--executor", "dask", "--scheduler", address, "--no-report", "--out", str(out), *OVER]
    sweep = subprocess.Popen(
        [*KVPLAN, "sweep", str(tmp_path / "chat.yaml"), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )

    def landed() -> int:
        return len(list(out.glob("points/*/provenance.json")))

    wait_for(lambda: landed() >= 2 or sweep.poll() is not None, "points")
    assert landed() < POINTS, sweep.communicate()
    os.kill(workers[0].pid, signal.SIGKILL)
    workers[0].wait()
    _, stderr = sweep.communicate(timeout=PATIENCE_S)
    assert sweep.returncode == 0, stderr
    assert workers[1].poll() is None
    assert [row["status"] for row in rows_of(out)] == ["ok"] * POINTS
    here = Sweeps(tmp_path, monkeypatch)  # the same in this process
    assert here(*OVER, text=TEXT, out="here").exit_code == 0
    assert contents(out) == contents(tmp_path / "here")


def test_a_fleet_whose_worker_dies_writes_the_bytes_of_one_process(
    cluster: tuple[str, list[subprocess.Popen[bytes]]], tmp_path: Path
) -> None:
    address, workers = cluster
    fleet = (
        SCENARIO.replace("num_requests: 40", "num_requests: 16000").replace("rate_rps: 40", "rate_rps: 400")
        + "parallelism: {replicas: 8}\n"
    )
    (tmp_path / "chat.yaml").write_text(fleet, encoding="utf-8")
    common = ["run", str(tmp_path / "chat.yaml"), "--no-report", "--quiet", "--out"]
    options = ["--executor", "dask", "--scheduler", address]
    run = subprocess.Popen([*KVPLAN, *common, str(tmp_path / "dask"), *options], stderr=subprocess.PIPE)

    from distributed import Client

    with Client(address, set_as_default=False) as client:
        wait_for(lambda: any(client.processing().values()) or run.poll() is not None, "work")
    assert run.poll() is None
    workers[0].kill()
    _, stderr = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, stderr
    assert CliRunner().invoke(app, [*common, str(tmp_path / "here")]).exit_code == 0
    same_bytes(tmp_path / "dask", tmp_path / "here")


def test_a_local_cluster_is_made_where_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chat.yaml").write_text(SCENARIO, encoding="utf-8")
    options = ["--executor", "dask", "--workers", "1", "--no-report", "--out", str(tmp_path / "out")]
    over = ("--over", "engine.block_size=8,16")
    done = subprocess.run(
        [*KVPLAN, "sweep", str(tmp_path / "chat.yaml"), *options, *over], capture_output=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    assert Sweeps(tmp_path, monkeypatch)(*over, out="here").exit_code == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "here")


def test_a_scheduler_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from simulator.errors import InputError
    from simulator.planner.executors import dask_executor, make_executor

    monkeypatch.setattr(dask_executor, "_CONNECT_S", 0.5)
    with pytest.raises(InputError, match="no Dask scheduler with workers answers") as caught:
        make_executor("dask", workers=None, scheduler="tcp://127.0.0.1:9")
    assert caught.value.where == "--scheduler tcp://127.0.0.1:9"
