"""``kvplan run`` with pipeline stages: the pool of the tightest one, bubbles in the result, other choices beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simulator.catalog import find_gpu, find_model
from simulator.deployment import Deployment, build_deployment
from simulator.memory_budget import budget
from simulator.memory_settings import MemorySettings
from simulator.scenario import load_scenario
from simulator.specs import Parallelism
from tests.running import Run, result_of, runs_in

SCENARIO = """\
name: stages
model: {model}
gpu: h100-sxm-80gb
parallelism: {{{parallelism}}}
engine: {{preset: vllm, max_model_len: 8192, max_num_batched_tokens: 1024{engine}}}
workload:
  arrivals: {{kind: poisson, rate_rps: {rate}}}
  num_requests: 60
  prompt_tokens: {{kind: uniform, min: 100, max: 2000}}
  output_tokens: {{kind: uniform, min: 10, max: 150}}
"""


def text_of(parallelism: str, *, model: str = "llama-3.1-70b", engine: str = "", rate: float = 3.0) -> str:
    return SCENARIO.format(model=model, parallelism=parallelism, engine=engine, rate=rate)


def deployed(tmp_path: Path, text: str) -> Deployment:
    file = tmp_path / "stages.yaml"
    file.write_text(text, encoding="utf-8")
    return build_deployment(load_scenario(str(file)).scenario.settings)


@pytest.mark.parametrize(
    ("model", "tp", "pp"),
    [("llama-3.1-70b", 2, 2), ("llama-3.1-70b", 1, 4), ("gemma-3-27b", 1, 3), ("qwen3-30b-a3b", 4, 2)],
)
def test_a_run_has_the_pool_that_size_states(tmp_path: Path, model: str, tp: int, pp: int) -> None:
    settings = f"tensor_parallel_size: {tp}, pipeline_parallel_size: {pp}"
    built = deployed(tmp_path, text_of(settings, model=model))
    limits = MemorySettings(max_model_len=8192, max_num_batched_tokens=1024)
    sized = budget(find_model(model), find_gpu("h100-sxm-80gb"), Parallelism(tp, pp), limits)
    assert built.pool.kind == "paged"
    assert built.pool.num_gpu_blocks == sized.num_gpu_blocks == min(rank.num_gpu_blocks for rank in sized.ranks)
    tokens = built.pool.groups[0].block_size if built.pool.groups else built.pool.block_size
    assert built.pool.bytes_per_token == sized.bytes_per_block // tokens
    assert built.engine.async_scheduling is False
    assert len(built.step_time.stages) == pp  # type: ignore[union-attr]


def test_a_pool_in_bytes_holds_what_the_heaviest_stage_can(tmp_path: Path) -> None:
    """80 layers do not divide by 3: two stages have 27, so that their blocks are the largest."""
    built = deployed(
        tmp_path,
        text_of("pipeline_parallel_size: 3, tensor_parallel_size: 2", engine=", kv_cache_memory_bytes: 1e9").replace(
            "1e9", "1000000000"
        ),
    )
    assert built.pool.kind == "paged"
    assert built.pool.num_gpu_blocks == 1_000_000_000 // (16 * 27 * 4 * 256 * 2)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return runs_in(tmp_path)


def served(run: Run, tmp_path: Path, name: str, text: str) -> dict[str, Any]:
    told = run(out=name, text=text)
    assert told.exit_code == 0, told.output
    return result_of(tmp_path / name)


def test_two_gpus_one_after_the_other_and_side_by_side(run: Run, tmp_path: Path) -> None:
    """At little load tensor parallelism has the shorter tokens; both serve all; bubbles are told of stages alone."""
    fp8 = ", weight_dtype: fp8"
    piped = served(run, tmp_path, "pp2", text_of("pipeline_parallel_size: 2", engine=fp8, rate=0.2))
    tensor = served(run, tmp_path, "tp2", text_of("tensor_parallel_size: 2", engine=fp8, rate=0.2))
    assert piped["completed"] == tensor["completed"] == 60
    assert 1.2 < piped["median_tpot_ms"] / tensor["median_tpot_ms"] < 2.0
    assert "pipeline" not in tensor
    assert 0.3 < piped["pipeline"]["bubble_share"] < 0.55
    assert piped["usd_per_hour"] == tensor["usd_per_hour"]
    assert any("stages of 40, 40 layers" in note for note in piped["assumptions"])
    assert any(note.startswith("async_scheduling = false") for note in piped["assumptions"])
    assert not any(note.startswith("async_scheduling = false") for note in tensor["assumptions"])
    assert any("Pipeline stages stood idle" in note for note in piped["warnings"])
    busy = served(run, tmp_path, "busy", text_of("pipeline_parallel_size: 2", engine=fp8, rate=20))
    assert busy["pipeline"]["mean_batches_in_flight"] > 1.5
    assert busy["pipeline"]["bubble_share"] < 0.25


def test_whole_experts_cost_the_imbalance(run: Run, tmp_path: Path) -> None:
    settings = "tensor_parallel_size: 4"
    sliced = served(run, tmp_path, "tp4", text_of(settings, model="qwen3-30b-a3b"))
    whole = served(run, tmp_path, "ep4", text_of(f"{settings}, enable_expert_parallel: true", model="qwen3-30b-a3b"))
    assert 1.0 < whole["median_tpot_ms"] / sliced["median_tpot_ms"] < 1.5
    assert whole["kv"]["num_gpu_blocks"] == sliced["kv"]["num_gpu_blocks"]
    assert any("busiest of 4 ranks" in note for note in whole["assumptions"])
    resolved = (tmp_path / "ep4" / "scenario.resolved.yaml").read_text()
    assert "enable_expert_parallel: true" in resolved
    assert "enable_expert_parallel" not in (tmp_path / "tp4" / "scenario.resolved.yaml").read_text()
