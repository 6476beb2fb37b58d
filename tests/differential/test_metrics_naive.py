"""Every metric that has a formula in the contract, the plain way: from requests.csv, and token by token."""

from __future__ import annotations

import csv
import math
import statistics
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from simulator.allocators.pools import PagedPool
from simulator.cluster import simulate
from simulator.metrics import MetricsOptions, summarize
from simulator.pass_recorder import PassRecorder
from simulator.result import write_requests_csv
from simulator.run_log import RunLog
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from workloads.workload import Workload

NS_PER_MS = 1_000_000
STEP_TIME = LinearStepTime(4_000_000_000, 30_000_000, 5_000)  # 4 ms, 30 us a token, 5 ns a context token: whole ns
SLO = {"ttft_ms": {"p99": 900.0}, "tpot_ms": {"p95": 9.0}, "e2el_ms": {"mean": 2500.0}}
SERVERS = {
    "roomy": (EngineConfig(2048, 64, 512), PagedPool(2000, 16)),
    "preempts": (EngineConfig(2048, 64, 512, scheduler_reserve_full_isl=False), PagedPool(70, 16)),
    "few_seats": (EngineConfig(2048, 3, 128), PagedPool(2000, 8)),
}


def work() -> Workload:
    rng = np.random.default_rng(4)
    arrivals = np.cumsum(rng.integers(0, 60, 150)) * 1_000_000_000
    return Workload.from_columns(arrivals, rng.integers(1, 300, 150), rng.integers(1, 120, 150))


def runs(name: str) -> tuple[RunLog, dict[str, list[int]]]:
    """The log of a run with leaps, and of the same run step by step when each request got its tokens, ns."""
    engine, pool = SERVERS[name]
    workload = work()
    recorder = PassRecorder([str(row) for row in range(len(workload))])
    simulate(workload, engine, pool, STEP_TIME, stepwise=True, recorders=[recorder])
    prompts = workload.prompt_tokens.tolist()
    computed: dict[str, int] = defaultdict(int)
    tokens: dict[str, list[int]] = defaultdict(list)
    for step in recorder.passes:
        for request in step.get("preempt", []):
            computed[request] = 0
        for request, scheduled in step["sched"]:
            computed[request] += scheduled
            if computed[request] == prompts[int(request)] + len(tokens[request]):
                tokens[request].append(step["t_ns"] + step["dur_ns"])
    return simulate(workload, engine, pool, STEP_TIME), tokens


def percentile(values: list[float], percent: float) -> float:
    """Linear between neighbours: the definition, without NumPy."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def check_statistics(got: dict[str, float], name: str, values: list[float]) -> None:
    expected = {"mean": statistics.fmean(values), "std": statistics.pstdev(values), "median": percentile(values, 50)}
    expected |= {f"p{percent}": percentile(values, percent) for percent in (90, 95, 99)}
    for stat, value in expected.items():
        assert got[f"{stat}_{name}_ms"] == pytest.approx(value, rel=1e-9), f"{stat} {name}"


@pytest.mark.parametrize("name", SERVERS)
def test_latencies_are_those_of_the_tokens(name: str) -> None:
    log, tokens = runs(name)
    got = summarize(log)
    arrivals = [ps // 1000 for ps in log.workload.arrival_ps.tolist()]
    outputs = log.workload.output_tokens.tolist()
    assert {int(request): len(times) for request, times in tokens.items()} == dict(enumerate(outputs))
    times = [[t / NS_PER_MS for t in tokens[str(row)]] for row in range(len(outputs))]
    begin = [ns / NS_PER_MS for ns in arrivals]
    check_statistics(got, "ttft", [t[0] - a for t, a in zip(times, begin, strict=True)])
    check_statistics(got, "e2el", [t[-1] - a for t, a in zip(times, begin, strict=True)])
    check_statistics(got, "tpot", [(t[-1] - t[0]) / (len(t) - 1) for t in times if len(t) > 1])
    check_statistics(got, "itl", [(b - a) / NS_PER_MS for t in tokens.values() for a, b in pairwise(t)])
    assert (got["preemptions"] > 20) == (name == "preempts")


@pytest.mark.parametrize("name", SERVERS)
def test_totals_and_goodput_follow_from_requests_csv(name: str, tmp_path: Path) -> None:
    log, _ = runs(name)
    got = summarize(log, MetricsOptions(slo=SLO))
    write_requests_csv(log, tmp_path / "requests.csv")
    with (tmp_path / "requests.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    start = min(float(row["arrival_s"]) for row in rows)
    end = max(float(row["finish_s"]) for row in rows)
    assert got["duration"] == pytest.approx(end - start, rel=1e-12)
    outputs, prompts = (sum(int(row[key]) for row in rows) for key in ("output_tokens", "prompt_tokens"))
    assert got["output_throughput"] == pytest.approx(outputs / (end - start))
    assert got["total_token_throughput"] == pytest.approx((outputs + prompts) / (end - start))
    assert got["request_throughput"] == pytest.approx(len(rows) / (end - start))
    good = [
        float(row["ttft_ms"]) <= 900 and float(row["tpot_ms"] or 0) <= 9 and float(row["e2el_ms"]) <= 2500
        for row in rows
    ]
    assert 0 < sum(good) < len(rows)
    assert got["request_goodput"] == pytest.approx(sum(good) / (end - start))
    assert got["slo"]["attainment"] == sum(good) / len(rows)
    check_statistics(got, "queue", [1000 * (float(row["scheduled_s"]) - float(row["arrival_s"])) for row in rows])
    # Little: the time that requests spend is the time that they run or wait
    spent = sum(float(row["finish_s"]) - float(row["arrival_s"]) for row in rows)
    assert got["mean_running"] + got["mean_waiting"] == pytest.approx(spent / (end - start))
    changes = sorted((float(row[key]), add) for row in rows for key, add in (("arrival_s", 1), ("finish_s", -1)))
    inside = most = 0
    for _, change in changes:
        inside += change
        most = max(most, inside)
    assert got["max_concurrent_requests"] == most
