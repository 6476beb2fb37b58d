"""A million requests in under 2 GiB, from the trace file to the report; ``make bench`` runs this."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.bench.ours import measured

GIB = 1 << 30
MOST_BYTES = 2 * GIB
REQUESTS = 1_000_000

SCENARIO = """\
name: million
model: llama-3.1-8b
gpu: h100-sxm-80gb
engine: {preset: vllm, max_model_len: 8192, enable_prefix_caching: false, async_scheduling: false}
workload: {trace: {path: trace.csv, format: csv}}
step_time: {kind: linear, base_ms: 6, per_token_us: 50, per_context_token_ns: 26}
"""


def write_trace(path: Path, requests: int, rate_rps: float = 10.0, seed: int = 0) -> None:
    """Poisson arrivals, lengths spread around 200 and 300 tokens."""
    draw = np.random.default_rng(seed)
    arrivals_s = np.cumsum(draw.exponential(1 / rate_rps, requests))
    prompts = draw.integers(100, 301, requests)
    outputs = draw.integers(150, 451, requests)
    with path.open("w", encoding="utf-8") as file:
        file.write("arrival_s,prompt_tokens,output_tokens\n")
        for arrival_s, prompt, output in zip(arrivals_s, prompts, outputs, strict=True):
            file.write(f"{arrival_s:.6f},{prompt},{output}\n")


def bench_a_million_requests_in_memory() -> None:
    run = measured(REQUESTS, 300, 10)
    print(f"\nsimulate() and metrics, {REQUESTS:,} requests: {run.wall_s:.1f} s, {run.peak_rss_bytes / GIB:.2f} GiB")
    assert run.peak_rss_bytes < MOST_BYTES


def bench_a_million_request_trace_from_end_to_end(tmp_path: Path) -> None:
    kvplan = Path(sys.executable).with_name("kvplan")
    if not kvplan.is_file():
        pytest.skip(f"{kvplan} is not installed: make install")
    write_trace(tmp_path / "trace.csv", REQUESTS)
    (tmp_path / "million.yaml").write_text(SCENARIO, encoding="utf-8")
    # RUSAGE_CHILDREN is a maximum over all children, so a process in between has this run as its only child.
    code = f"""
import resource, subprocess, sys
rc = subprocess.run([{str(kvplan)!r}, "run", "million.yaml", "--quiet"]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
sys.exit(rc)
"""
    start = time.perf_counter()
    proc = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True, timeout=3600, check=True
    )
    peak_rss_bytes = int(proc.stdout.split()[-1])
    print(
        f"\nkvplan run on a trace of {REQUESTS:,}: {time.perf_counter() - start:.1f} s, {peak_rss_bytes / GIB:.2f} GiB"
    )
    assert peak_rss_bytes < MOST_BYTES
