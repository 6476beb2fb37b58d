"""The binding limit of whole scenarios, each built so that one thing runs out; lifting that limit names another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simulator import run_scenario
from simulator.scenario import load_scenario

SCENARIO = """\
name: limits
model: llama-3.1-8b
gpu: h100-sxm-80gb
engine: {max_model_len: 8192, max_num_seqs: 512, max_num_batched_tokens: 8192}
workload:
  num_requests: 300
  arrivals: {kind: poisson, rate_rps: 30}
  prompt_tokens: {kind: uniform, min: 100, max: 900}
  output_tokens: {kind: uniform, min: 100, max: 300}
"""
LINEAR = "step_time={kind: linear, base_ms: 6, per_token_us: 50, per_context_token_ns: 26}"


def result_of(folder: Path, *changes: str) -> dict[str, Any]:
    path = folder / "limits.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    built = run_scenario.build(load_scenario(str(path), list(changes), None).scenario)
    return run_scenario.result(built, run_scenario.run(built))


LONG_PROMPTS = ("workload.prompt_tokens={kind: fixed, tokens: 4000}", "workload.output_tokens={kind: fixed, tokens: 2}")
CASES = {
    "a small pool": (["engine.num_gpu_blocks_override=600"], "kv_memory", True),
    "few seats": (["engine.max_num_seqs=8"], "max_num_seqs", True),
    "long prompts, a small budget, steps of a fixed length": (
        [*LONG_PROMPTS, "engine.max_num_batched_tokens=1024", "engine.max_num_seqs=1024", LINEAR],
        "token_budget",
        True,
    ),
    "long prompts on a GPU": ([*LONG_PROMPTS], "compute", True),
    "few arrivals": (["workload.arrivals.rate_rps=2"], "arrivals", False),
    "two clients": (["workload.arrivals={kind: closed_loop, max_concurrency: 2}"], "bandwidth", False),
    "two clients with long prompts": (
        [*LONG_PROMPTS, "workload.arrivals={kind: closed_loop, max_concurrency: 2}"],
        "compute",
        False,
    ),
    "slots for the longest request": (["engine.allocator={kind: contiguous, reservation: max}"], "kv_memory", True),
}


@pytest.mark.parametrize("case", CASES)
def test_what_runs_out_is_named(case: str, tmp_path: Path) -> None:
    changes, limit, saturated = CASES[case]
    got = result_of(tmp_path, *changes)
    assert (got["binding_limit"], got["saturated"]) == (limit, saturated), got["wait_shares"]
    assert got["status"] == "ok" and got["failed"] == 0


def test_more_of_what_binds_is_more_throughput(tmp_path: Path) -> None:
    few = result_of(tmp_path, "engine.max_num_seqs=8")
    many = result_of(tmp_path, "engine.max_num_seqs=16")
    other = result_of(tmp_path, "engine.max_num_seqs=8", "engine.max_num_batched_tokens=16384")
    assert many["output_throughput"] > 1.5 * few["output_throughput"]
    assert other["output_throughput"] < 1.05 * few["output_throughput"]


def test_a_result_names_its_step_times_memory_and_price(tmp_path: Path) -> None:
    got = result_of(tmp_path, "workload.num_requests=3")
    assert (got["step_time"], got["calibration"]) == ("roofline", "default")
    assert any("roofline with calibration default" in line for line in got["assumptions"])
    assert any(line.startswith("usd_per_gpu_hour = ") for line in got["assumptions"])
    memory = got["memory"]
    assert sum(row["bytes"] for row in memory["rows"]) == pytest.approx(81_559 * 2**20, rel=0.001)  # nvidia-smi's total
    assert memory["kv_cache_tokens"] == pytest.approx(memory["max_concurrency"] * 8192, abs=8192)
    priced = result_of(tmp_path, "workload.num_requests=3", "cost={usd_per_gpu_hour: 2}", LINEAR)
    assert (priced["step_time"], priced["calibration"]) == ("linear", None)
    assert not any("usd_per_gpu_hour" in line or "roofline" in line for line in priced["assumptions"])
