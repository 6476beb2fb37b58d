"""Our side of the speed bench: one process that simulates, measures itself and prints one JSON object.

usage: python -m tests.bench.ours --requests 20000 --output-tokens 300 --rate-rps 10
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np

from simulator.allocators.pools import PagedPool
from simulator.cluster import simulate
from simulator.metrics import summarize
from simulator.run_log import RunLog
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from tests.bench.load import BLOCK_SIZE, MAX_NUM_SEQS, NUM_BLOCKS, PROMPT_TOKENS, STEP_TIME_UNITS, TOKEN_BUDGET
from tests.bench.pinned import one_core
from tests.support import ROOT
from workloads.workload import PS_PER_S, Workload


@dataclass(frozen=True)
class Measured:
    """What one process measured of itself."""

    requests: int
    workload_s: float
    simulate_s: float
    metrics_s: float
    steps: int
    mean_batch: float  # tokens that a step samples
    mean_e2el_ms: float
    peak_rss_bytes: int

    @property
    def wall_s(self) -> float:
        """Simulation and metrics: what the peer's "Wall Time" is compared with."""
        return self.simulate_s + self.metrics_s


def poisson_workload(requests: int, output_tokens: int, rate_rps: float, seed: int = 0) -> Workload:
    """Fixed lengths, exponential gaps."""
    gaps_s = np.random.default_rng(seed).exponential(1 / rate_rps, requests)
    return Workload.from_columns(
        np.rint(np.cumsum(gaps_s) * PS_PER_S).astype(np.int64),
        np.full(requests, PROMPT_TOKENS),
        np.full(requests, output_tokens),
        requested_rate_rps=rate_rps,
    )


def run(workload: Workload) -> RunLog:
    """The issue's server: one replica, plain vLLM v1."""
    engine = EngineConfig(max_model_len=8192, max_num_seqs=MAX_NUM_SEQS, max_num_batched_tokens=TOKEN_BUDGET)
    pool = PagedPool(num_gpu_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE)
    return simulate(workload, engine, pool, LinearStepTime.from_units(**STEP_TIME_UNITS))


def measure(requests: int, output_tokens: int, rate_rps: float) -> Measured:
    """Runs once in this process."""
    start = time.perf_counter()
    workload = poisson_workload(requests, output_tokens, rate_rps)
    built = time.perf_counter()
    log = run(workload)
    simulated = time.perf_counter()
    result = summarize(log)
    summarized = time.perf_counter()
    if log.status != "ok" or result["completed"] != requests:
        raise RuntimeError(f"the run ended as {log.status} with {result['completed']} of {requests} requests")
    segments = log.replicas[0].segment_columns()
    steps = int(segments["steps"].sum())
    return Measured(
        requests=requests,
        workload_s=built - start,
        simulate_s=simulated - built,
        metrics_s=summarized - simulated,
        steps=steps,
        mean_batch=int((segments["steps"] * segments["sampled"]).sum()) / steps,
        mean_e2el_ms=result["mean_e2el_ms"],
        peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def measured(requests: int, output_tokens: int, rate_rps: float) -> Measured:
    """Runs once in a fresh process on one core."""
    options = {"--requests": requests, "--output-tokens": output_tokens, "--rate-rps": rate_rps}
    words = [str(word) for pair in options.items() for word in pair]
    command = [*one_core(), sys.executable, "-m", "tests.bench.ours", *words]
    proc = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=1800, check=True)
    return Measured(**json.loads(proc.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--output-tokens", type=int, required=True)
    parser.add_argument("--rate-rps", type=float, required=True)
    arguments = parser.parse_args()
    print(json.dumps(vars(measure(arguments.requests, arguments.output_tokens, arguments.rate_rps))))


if __name__ == "__main__":
    main()
