"""A sweep on Ray: the same bytes, also where a worker dies. Only in ``make test-all``, which installs Ray."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.sweeping import SCENARIO, Sweeps, contents

pytest.importorskip("ray", reason="needs the extra [ray]")
psutil = pytest.importorskip("psutil", reason="needs psutil, to find Ray's workers")

POINTS = 8
OVER = ("--over", "engine.max_num_seqs=" + ",".join(str(seats) for seats in range(4, 4 + POINTS)))
TEXT = SCENARIO.replace("num_requests: 40", "num_requests: 1500")
KVPLAN = [sys.executable, "-c", "from simulator.cli import app; app()"]
PATIENCE_S = 180.0


@pytest.mark.slow
def test_a_ray_worker_killed_in_the_middle_loses_no_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    (tmp_path / "chat.yaml").write_text(TEXT, encoding="utf-8")
    options = ["--executor", "ray", "--workers", "2", "--no-report", "--out", str(out), *OVER]
    sweep = subprocess.Popen(
        [*KVPLAN, "sweep", str(tmp_path / "chat.yaml"), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    end = time.monotonic() + PATIENCE_S
    while not list(out.glob("points/*/provenance.json")) and sweep.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    below = psutil.Process(sweep.pid).children(recursive=True)
    busy = [process for process in below if any("ray::run_job" in word for word in process.cmdline())]
    assert busy, [process.cmdline() for process in below]
    busy[0].kill()
    _, stderr = sweep.communicate(timeout=PATIENCE_S)
    assert sweep.returncode == 0, stderr
    assert Sweeps(tmp_path, monkeypatch)(*OVER, text=TEXT, out="here").exit_code == 0
    assert contents(out) == contents(tmp_path / "here")
