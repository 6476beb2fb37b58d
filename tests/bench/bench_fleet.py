"""A fleet on two workers beside one process, in the same run, and 1,000 replicas of two million requests."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.running import same_bytes

GIB = 1 << 30
MOST_BYTES = 3 * GIB
"""Of each process, the parent included."""
MOST_S = 240.0
LEAST_RATIO = 1.2
"""Two workers on two cores: reading, metrics and writing stay in one process."""
ROUNDS = 3

SCENARIO = """\
name: fleet
model: llama-3.1-8b
gpu: h100-sxm-80gb
parallelism: {{replicas: {replicas}}}
engine: {{preset: vllm, max_model_len: 8192, enable_prefix_caching: false, async_scheduling: false}}
workload:
  num_requests: {requests}
  arrivals: {{kind: poisson, rate_rps: {rate_rps}}}
  prompt_tokens: {{kind: lognormal, mean: 512, cv: 1.0, max: 4096}}
  output_tokens: {{kind: lognormal, mean: 256, cv: 1.0, max: 2048}}
"""


@dataclass(frozen=True)
class Ran:
    """One ``kvplan run``: wall clock, CPU of all its processes, and the peak memory of the largest of them."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


def kvplan_run(folder: Path, replicas: int, requests: int, workers: int) -> Ran:
    """Runs the scenario at 20 requests a second and replica into ``folder / workers``."""
    scenario = folder / "fleet.yaml"
    scenario.write_text(SCENARIO.format(replicas=replicas, requests=requests, rate_rps=20 * replicas), encoding="utf-8")
    kvplan = [sys.executable, "-c", "from simulator.cli import app; app()"]
    options = ["--workers", str(workers), "--out", str(folder / str(workers)), "--no-report", "--quiet"]
    start = time.perf_counter()
    run = subprocess.Popen([*kvplan, "run", str(scenario), *options], stdout=subprocess.DEVNULL, start_new_session=True)
    peaks: dict[str, int] = {}
    cpu: dict[str, float] = {}
    while run.poll() is None:
        _look(run.pid, peaks, cpu)
        time.sleep(0.05)
    wall_s = time.perf_counter() - start
    assert run.returncode == 0
    return Ran(wall_s, sum(cpu.values()), max(peaks.values()))


def _look(session: int, peaks: dict[str, int], cpu: dict[str, float]) -> None:
    """Reads what the processes of a session have used; workers are no children of ``kvplan``, but of a server."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) != session:
                continue
            cpu[folder.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            for line in (folder / "status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    peaks[folder.name] = int(line.split()[1]) * 1024
        except (OSError, IndexError):  # it has just ended
            continue


def show(name: str, ran: Ran) -> None:
    print(
        f"  {name:<14} {ran.wall_s:7.1f} s  {ran.cpu_s:7.1f} s of CPU  {ran.peak_bytes / GIB:5.2f} GiB at most",
        flush=True,
    )


def bench_two_workers_beside_one_process(tmp_path: Path) -> None:
    if not Path("/proc/self/status").exists() or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs Linux and two cores")
    replicas, requests = 100, 200_000
    print(f"\n{replicas} replicas, {requests:,} requests, by turns (load {os.getloadavg()[0]:.1f})")
    ones, twos = [], []
    for _ in range(ROUNDS):
        ones.append(kvplan_run(tmp_path, replicas, requests, 1))
        twos.append(kvplan_run(tmp_path, replicas, requests, 2))
        same_bytes(tmp_path / "1", tmp_path / "2")
    one, two = (min(runs, key=lambda ran: ran.wall_s) for runs in (ones, twos))
    show("one process", one)
    show("two workers", two)
    ratios = ", ".join(f"{a.wall_s / b.wall_s:.2f}" for a, b in zip(ones, twos, strict=True))
    print(f"  two workers are {one.wall_s / two.wall_s:.2f} times as fast (round by round: {ratios})")
    assert one.wall_s / two.wall_s >= LEAST_RATIO


def bench_a_thousand_replicas(tmp_path: Path) -> None:
    if not Path("/proc/self/status").exists() or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs Linux and two cores")
    print(f"\n1,000 replicas, 2,000,000 requests (load {os.getloadavg()[0]:.1f})")
    two = kvplan_run(tmp_path, 1000, 2_000_000, 2)
    show("two workers", two)
    one = kvplan_run(tmp_path, 1000, 2_000_000, 1)
    show("one process", one)
    print(f"  two workers are {one.wall_s / two.wall_s:.2f} times as fast")
    same_bytes(tmp_path / "1", tmp_path / "2")
    assert two.wall_s < MOST_S and two.peak_bytes < MOST_BYTES
