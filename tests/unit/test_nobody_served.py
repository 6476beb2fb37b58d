"""A run that serves nobody is an error with a remedy that, applied, lets everybody in."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from simulator.cli import app

SCENARIO = """\
name: chat
model: llama-3.1-8b
gpu: h100-sxm-80gb
engine: {max_model_len: 8192}
workload:
  num_requests: 12
  arrivals: {kind: poisson, rate_rps: 40}
  prompt_tokens: {kind: fixed, tokens: 100}
  output_tokens: {kind: uniform, min: 5, max: 30}
"""
NO_GPU = "step_time={kind: linear, base_ms: 6, per_token_us: 50, per_context_token_ns: 26}"
CONTIGUOUS = "engine.allocator={kind: contiguous}"
BUDDY = "engine.allocator={kind: contiguous, fit: buddy}"
CASES = [
    (3, ["engine.num_gpu_blocks_override=7"]),
    (3, ["engine.num_gpu_blocks_override=7", "engine.on_unservable=faithful"]),
    (3, ["engine.num_gpu_blocks_override=3", "mode=admission"]),
    (3, ["engine.num_gpu_blocks_override=100", CONTIGUOUS]),
    (3, ["engine.num_gpu_blocks_override=600", "engine.max_model_len=9000", BUDDY]),
    (3, ["engine.max_total_tokens=5"]),
    (3, ["engine.max_total_tokens=90"]),
    (3, ["engine.kv_cache_memory_bytes=3000000", "gpu=null", NO_GPU]),
    (3, ["engine.kv_cache_memory_bytes=3000000", "gpu=null", NO_GPU, CONTIGUOUS]),
    (3, ["engine.num_gpu_blocks_override=7", "engine.preset=vllm-v0"]),
    (3, ["engine.num_gpu_blocks_override=7", "engine.preset=vllm-v0", "workload.n=3"]),
    (3, ["engine.num_gpu_blocks_override=90", "engine.preset=sglang"]),
    (3, ["engine.max_total_tokens=90", "engine.preset=sglang", "engine.enable_prefix_caching=false"]),
    (3, ["engine.num_gpu_blocks_override=3", "engine.preset=trtllm"]),
    (3, ["engine.max_total_tokens=90", "engine.preset=orca-oracle"]),
    (3, ["engine.num_gpu_blocks_override=9", "model=gpt-oss-20b"]),
    (2, ["engine.enable_chunked_prefill=false", "engine.max_num_batched_tokens=64", "engine.max_num_seqs=4"]),
    (2, ["engine.max_model_len=100"]),
    (2, ["engine.preset=trtllm", "engine.max_num_batched_tokens=64", "engine.max_num_seqs=4"]),
    (2, ["engine.preset=vllm-v0", "workload.n=9", "engine.max_num_seqs=8"]),
]


def run(folder: Path, patches: list[str], *options: str) -> Result:
    path = folder / "chat.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    sets = [part for patch in patches for part in ("--set", patch)]
    return CliRunner().invoke(app, ["run", str(path), "--out", str(folder / "out"), "--no-report", *options, *sets])


@pytest.mark.parametrize(("code", "patches"), CASES, ids=lambda case: str(case))
def test_every_remedy_works(tmp_path: Path, code: int, patches: list[str]) -> None:
    refused = run(tmp_path, patches, "--json")
    assert refused.exit_code == code, refused.stderr
    assert not (tmp_path / "out").exists()
    error = json.loads(refused.stdout)["error"]
    assert "--set engine." in error["where"]
    change = re.search(r"set (\w+): (\w+)", error["remedy"])
    assert change, error
    done = run(tmp_path, [*patches, f"engine.{change[1]}={change[2]}"])
    assert done.exit_code == 0, done.stderr
    whole = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    if whole.get("mode") == "admission":  # nobody leaves the pool, so that it need not take all at once
        assert whole["admitted"] > 0
    else:
        assert whole["completed"] == 12, whole["reject_reasons"]


def test_of_several_variants_one_may_serve_nobody(tmp_path: Path) -> None:
    tiny = "{engine.num_gpu_blocks_override: 7}"
    assert run(tmp_path, [f"variants={{tiny: {tiny}, all: {{}}}}"]).exit_code == 0
    none = run(tmp_path, [f"variants={{tiny: {tiny}, tinier: {{engine.num_gpu_blocks_override: 6}}}}"])
    assert none.exit_code == 3 and "no request can be served" in none.stderr


def test_admission_leaves_out_prompts_longer_than_the_context(tmp_path: Path) -> None:
    lengths = "workload.prompt_tokens={kind: uniform, min: 5, max: 200}"
    done = run(tmp_path, ["mode=admission", lengths, "engine.max_model_len=100"])
    assert done.exit_code == 0 and "prompts are longer than the context" in done.stdout
    result = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    assert 0 < result["offered"] < 12


def test_admission_compares_the_block_sizes_that_a_small_pool_has_room_for(tmp_path: Path) -> None:
    done = run(tmp_path, ["mode=admission", "engine.num_gpu_blocks_override=9"])
    assert done.exit_code == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    points = {p["block_size"]: p for p in result["by_block_size"]["points"] if p["layout"] == "paged"}
    assert list(points) == [1, 2, 4, 8, 16, 32, 64]  # of 144 slots; at 128 the only block is the null block
    assert points[16]["admitted"] == result["admitted"]


GROUPS = ["engine.preset=vllm-v0", "engine.num_gpu_blocks_override=24", "workload.n=4", "engine.watermark=0"]


@pytest.mark.parametrize(
    ("patch", "where", "remedy"),
    [
        ("engine.preemption_mode=recompute", "engine.preemption_mode", "set preemption_mode: auto"),
        ("engine.swap_space=0", "engine.swap_space", "raise swap_space until it holds 24 blocks"),
    ],
)
def test_a_group_that_cannot_be_swapped_out_is_no_small_pool(
    tmp_path: Path, patch: str, where: str, remedy: str
) -> None:
    assert run(tmp_path, GROUPS).exit_code == 0
    stopped = run(tmp_path, [*GROUPS, patch], "--json")
    assert stopped.exit_code == 3
    error = json.loads(stopped.stdout)["error"]
    assert where in error["where"] and remedy in error["remedy"]
    assert "4 sequences is preempted" in error["what"]
