"""A sweep that is killed at any moment goes on with --resume, and ends with the same bytes as one that was not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simulator.planner.lock import NAME
from tests.sweeping import SCENARIO, Sweeps, contents, rows_of

KVPLAN = [sys.executable, "-c", "from simulator.cli import app; app()"]
OVER = ("--over", "engine.max_num_seqs=2,3,4", "--over", "engine.num_gpu_blocks_override=2,60,400")
PATIENCE_S = 120.0
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc, to see who is left")


def start(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    scenario = folder / "chat.yaml"
    scenario.write_text(SCENARIO, encoding="utf-8")
    command = [*KVPLAN, "sweep", str(scenario), "--out", str(folder / "out"), "--no-report", *OVER, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def landed(folder: Path) -> int:
    return len(list((folder / "out").glob("points/*/provenance.json")))


def nobody_is_left(group: int) -> bool:
    """Whether all processes of a group end soon; if not, they are ended."""
    end = time.monotonic() + PATIENCE_S
    while living(group):
        if time.monotonic() > end:
            os.killpg(group, signal.SIGKILL)
            return False
        time.sleep(0.05)
    return True


def living(group: int) -> list[str]:
    """Processes of a group that have not ended (one that nobody has waited for yet has)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().rpartition(")")
        except OSError:  # it ended meanwhile
            continue
        state, _parent, its_group, *_ = rest.split()
        if int(its_group) == group and state != "Z":
            found.append(name)
    return found


@pytest.mark.parametrize("moments", [5, pytest.param(30, marks=pytest.mark.slow)])
def test_a_sweep_killed_at_random_moments_ends_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moments: int
) -> None:
    assert Sweeps(tmp_path, monkeypatch)(*OVER, out="whole").exit_code == 0
    whole = contents(tmp_path / "whole")
    assert [row["status"] for row in rows_of(tmp_path / "whole")].count("does_not_fit") == 3
    begin = time.monotonic()
    first = start(tmp_path, "--workers", "1")
    assert first.wait(PATIENCE_S) == 0, first.stderr and first.stderr.read()
    length_s = time.monotonic() - begin
    dice = random.Random(moments)
    kills = 0
    for _ in range(moments):
        sweep = start(tmp_path, "--workers", "1", "--resume" if dice.random() < 0.7 else "--restart")
        time.sleep(dice.uniform(0.2, 1.0) * length_s)
        kills += sweep.poll() is None
        sweep.kill()  # the process alone: its workers are left to find out by themselves
        sweep.communicate()
        for path in (tmp_path / "out").glob("points/*/result.json"):
            text = path.read_text()
            assert text.startswith("{") and text.endswith("}\n"), path
    assert kills >= 1
    done = start(tmp_path, "--workers", "2", "--resume")
    assert done.wait(PATIENCE_S) == 0, done.stderr and done.stderr.read()
    assert contents(tmp_path / "out") == whole


@needs_proc
def test_ctrl_c_keeps_what_has_landed_says_so_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = ("--set", "workload.num_requests=1000", "--workers", "2")
    sweep = start(tmp_path, *long)
    end = time.monotonic() + PATIENCE_S
    while not landed(tmp_path) and sweep.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    os.killpg(sweep.pid, signal.SIGINT)  # as a terminal does: to the whole group
    _, stderr = sweep.communicate(timeout=PATIENCE_S)
    said = stderr.decode()
    assert sweep.returncode == 130, said
    assert "runs are kept" in said and "--resume goes on from there" in said and "Traceback" not in said
    assert 1 <= landed(tmp_path) < 9 and not (tmp_path / "out" / "points.csv").exists()
    assert not (tmp_path / "out" / NAME).exists()
    assert nobody_is_left(sweep.pid)
    again = Sweeps(tmp_path, monkeypatch)
    kept = landed(tmp_path)
    assert again(*OVER, *long[:2], "--resume").exit_code == 0
    assert again.ran == 9 - kept
    assert again(*OVER, *long[:2], out="whole").exit_code == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@needs_proc
def test_workers_of_a_killed_sweep_end_by_themselves(tmp_path: Path) -> None:
    sweep = start(tmp_path, "--set", "workload.num_requests=3000", "--workers", "2")
    end = time.monotonic() + PATIENCE_S
    while not landed(tmp_path) and sweep.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    sweep.kill()
    sweep.communicate()
    assert nobody_is_left(sweep.pid)
