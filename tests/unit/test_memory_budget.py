"""The memory table: it adds up, by engine, TP and PP, and its remedies work when applied."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simulator.catalog import find_gpu, find_model
from simulator.engine_defaults import engine_defaults
from simulator.errors import InputError
from simulator.memory_budget import MemoryBudget, Remedy, budget
from simulator.memory_settings import MemorySettings
from simulator.rank_memory import pipeline_stages, valid_tensor_parallel_sizes
from simulator.specs import Parallelism

GIB = 1 << 30


def ask(model: str, gpu: str, tp: int = 1, pp: int = 1, **settings: Any) -> MemoryBudget:
    return budget(find_model(model), find_gpu(gpu), Parallelism(tp, pp), MemorySettings(**settings))


CASES: list[tuple[str, str, int, int, dict[str, Any]]] = [
    ("llama-3.1-8b", "h100-sxm-80gb", 1, 1, {}),
    ("llama-3.1-8b", "h100-sxm-80gb", 1, 1, {"engine": "sglang"}),
    ("llama-3.1-8b", "h100-sxm-80gb", 1, 1, {"engine": "trtllm"}),
    ("llama-3.1-70b", "h100-sxm-80gb", 1, 1, {}),
    ("llama-3.1-70b", "a100-sxm-80gb", 4, 2, {"enforce_eager": True}),
    ("gemma-3-27b", "h100-sxm-80gb", 1, 3, {"kv_cache_dtype": "fp8"}),
    ("deepseek-v3", "h200-sxm-141gb", 8, 1, {}),
    ("opt-13b", "a100-sxm-40gb", 1, 1, {"kv_cache_memory_bytes": 8 * GIB}),
]


@pytest.mark.parametrize(("model", "gpu", "tp", "pp", "settings"), CASES)
def test_rows_add_up_to_the_gpu(model: str, gpu: str, tp: int, pp: int, settings: dict[str, Any]) -> None:
    found = ask(model, gpu, tp, pp, **settings)
    for rank in found.ranks:
        assert sum(row.bytes for row in rank.rows) == find_gpu(gpu).memory_bytes
    assert found.num_gpu_blocks == min(rank.num_gpu_blocks for rank in found.ranks)
    assert found.num_gpu_blocks * found.bytes_per_block <= found.kv_pool_bytes_per_gpu or not found.fits


def test_vllm_formula() -> None:
    found = ask("llama-3.1-8b", "h100-sxm-80gb", gpu_memory_utilization=0.9, max_model_len=8192)
    rows = {row.name: row.bytes for row in found.rows}
    visible = find_gpu("h100-sxm-80gb").visible_bytes
    assert visible is not None
    fixed = sum(rows[n] for n in ("weights", "activation peak", "runtime buffers (cuBLAS, NCCL)", "CUDA graphs"))
    assert rows["KV pool"] == pytest.approx(0.9 * visible - fixed, abs=1)
    assert found.num_gpu_blocks == rows["KV pool"] // (2 << 20)
    assert found.max_concurrency == found.num_gpu_blocks / 512
    assert rows["weights"] == find_model("llama-3.1-8b").weight_bytes


def test_engines_mean_different_things_by_their_fraction() -> None:
    pools = {
        e: ask("llama-3.1-8b", "h100-sxm-80gb", engine=e, gpu_memory_utilization=0.8)
        for e in ("vllm", "sglang", "trtllm")
    }
    visible = find_gpu("h100-sxm-80gb").visible_bytes or 0
    weights = pools["sglang"].weight_bytes_per_gpu
    assert pools["sglang"].kv_pool_bytes_per_gpu == int(visible * 0.8) - weights
    rows = {row.name: row.bytes for row in pools["trtllm"].rows}
    assert rows["KV pool"] / (rows["KV pool"] + rows["left free"]) == pytest.approx(0.8, abs=1e-6)
    assert pools["vllm"].kv_pool_bytes_per_gpu < pools["sglang"].kv_pool_bytes_per_gpu


@pytest.mark.parametrize(
    ("layers", "stages", "counts"),
    [(80, 1, [80]), (80, 4, [20] * 4), (61, 4, [15, 15, 16, 15]), (10, 4, [2, 3, 3, 2]), (5, 5, [1] * 5)],
)
def test_uneven_pipeline_split_as_vllm(layers: int, stages: int, counts: list[int]) -> None:
    found = pipeline_stages(layers, stages)
    assert [len(stage.layers) for stage in found] == counts
    assert [i for stage in found for i in stage.layers] == list(range(layers))
    assert [stage.first for stage in found].count(True) == [stage.last for stage in found].count(True) == 1


def test_weights_of_all_stages_are_the_model() -> None:
    found = ask("llama-3.1-70b", "h200-sxm-141gb", 1, 4)
    assert sum(rank.weight_bytes for rank in found.ranks) == pytest.approx(found.model.weight_bytes, rel=1e-9)


def test_tensor_parallel_shards_all_but_norms() -> None:
    one = ask("llama-3.3-70b", "h200-sxm-141gb", weight_dtype="fp8")
    two = ask("llama-3.3-70b", "h200-sxm-141gb", 2, weight_dtype="fp8")
    assert one.weight_bytes_per_gpu / GIB == pytest.approx(67.72, abs=0.1)  # vLLM log, FP8-dynamic
    assert two.weight_bytes_per_gpu / GIB == pytest.approx(33.88, abs=0.1)
    assert 2 * two.weight_bytes_per_gpu > one.weight_bytes_per_gpu


def test_invalid_tensor_parallel_size_names_valid_ones() -> None:
    with pytest.raises(InputError, match="valid sizes: 1, 2, 4, 8, 40") as caught:
        ask("qwen2.5-32b", "h100-sxm-80gb", 3)
    assert caught.value.where == "tensor_parallel_size"
    assert 3 not in valid_tensor_parallel_sizes(find_model("qwen2.5-32b"))


@pytest.mark.parametrize("pp", [0, 33])
def test_invalid_pipeline_size(pp: int) -> None:
    with pytest.raises(InputError, match="32 layers"):
        ask("llama-3.1-8b", "h100-sxm-80gb", 1, pp)


@pytest.mark.parametrize(
    "settings",
    [
        {"gpu_memory_utilization": 1.2},
        {"gpu_memory_utilization": 0.0},
        {"max_model_len": 0},
        {"block_size": -16},
        {"kv_cache_dtype": "fp7"},
        {"weight_dtype": "int3"},
        {"engine": "llama.cpp"},
        {"max_num_batched_tokens": 100, "max_num_seqs": 200},
    ],
)
def test_impossible_settings_are_input_errors(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        ask("llama-3.1-8b", "h100-sxm-80gb", **settings)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("gpu", "tokens", "seqs"),
    [("b200-sxm-180gb", 16384, 1024), ("h100-sxm-80gb", 8192, 1024), ("a100-sxm-80gb", 2048, 256), ("l4", 2048, 256)],
)
def test_vllm_defaults_follow_the_gpu(gpu: str, tokens: int, seqs: int) -> None:
    found = engine_defaults("vllm", find_gpu(gpu))
    assert (found["max_num_batched_tokens"], found["max_num_seqs"]) == (tokens, seqs)


def test_override_replaces_the_blocks() -> None:
    """U120: 50,231 blocks of 16 at 32,768 tokens: 24.53x."""
    found = ask("qwen2.5-32b", "h100-sxm-80gb", 8, num_gpu_blocks_override=50231, max_model_len=32768)
    assert round(found.max_concurrency, 2) == 24.53
    assert found.kv_cache_tokens == 50231 * 16


def _apply(remedy: Remedy, model: str, gpu: str, tp: int, settings: MemorySettings) -> MemoryBudget:
    changes = dict(remedy.settings)
    gpu = str(changes.pop("gpu", gpu))
    size = changes.pop("tensor_parallel_size", tp)
    assert isinstance(size, int)
    return budget(find_model(model), find_gpu(gpu), Parallelism(size), replace(settings, **changes))


@pytest.mark.parametrize(
    ("model", "gpu"),
    [
        ("llama-3.1-70b", "h100-sxm-80gb"),
        ("gemma-3-27b", "h100-sxm-80gb"),
        ("llama-3.1-8b", "t4"),
        ("llama-3.1-405b", "l4"),
    ],
)
def test_every_remedy_works_when_applied(model: str, gpu: str) -> None:
    found = ask(model, gpu)
    assert not found.fits
    assert len(found.remedies) >= 3
    for remedy in found.remedies:
        mended = _apply(remedy, model, gpu, 1, MemorySettings())
        assert mended.fits, remedy.change
        assert mended.kv_cache_tokens == remedy.kv_cache_tokens
        assert f"{mended.kv_cache_tokens:,}" in remedy.change


def test_the_longest_context_is_the_longest() -> None:
    found = ask("gemma-3-27b", "h100-sxm-80gb")
    longest = found.largest_max_model_len
    assert ask("gemma-3-27b", "h100-sxm-80gb", max_model_len=longest).fits
    assert not ask("gemma-3-27b", "h100-sxm-80gb", max_model_len=longest + 16).fits


def test_a_high_fraction_warns_about_the_context() -> None:
    assert ask("llama-3.2-1b", "rtx-4090", gpu_memory_utilization=0.995).warnings
    assert not ask("llama-3.2-1b", "rtx-4090", gpu_memory_utilization=0.9, max_model_len=8192).warnings


HOPELESS: list[tuple[str, str, dict[str, Any], str]] = [
    # (model, GPU, settings that can hold nothing, what one remedy has to name)
    ("llama-3.2-3b", "h200-sxm-141gb", {"engine": "sglang", "gpu_memory_utilization": 1.0}, "gpu_memory_utilization"),
    ("llama-3.1-8b", "h100-sxm-80gb", {"engine": "sglang", "gpu_memory_utilization": 1.0}, "gpu_memory_utilization"),
    ("llama-3.1-405b", "rtx-4090", {"gpu_memory_utilization": 0.05}, "gpu_memory_utilization"),
    ("gpt-oss-120b", "a40", {"engine": "sglang", "gpu_memory_utilization": 1.0, "block_size": 8}, "tensor_parallel"),
    ("deepseek-v3", "h100-sxm-80gb", {"max_num_batched_tokens": 1_000_000}, "max_num_batched_tokens"),
    ("opt-13b", "l40s", {"max_num_batched_tokens": 1_000_000, "max_model_len": 1_000_000}, "max_model_len"),
    ("llama-3.1-8b", "h100-sxm-80gb", {"kv_cache_memory_bytes": 1000, "max_model_len": 8192}, "kv_cache_memory_bytes"),
    ("llama-3.1-8b", "h100-sxm-80gb", {"kv_cache_memory_bytes": 10**15}, "kv_cache_memory_bytes"),
    ("llama-3.1-8b", "h100-sxm-80gb", {"num_gpu_blocks_override": 7}, "num_gpu_blocks_override"),
    ("llama-3.1-8b", "h100-sxm-80gb", {"block_size": 1 << 20}, "block_size"),
]


@pytest.mark.parametrize(("model", "gpu", "settings", "named"), HOPELESS)
def test_settings_that_hold_nothing_have_a_remedy_that_works_as_written(
    model: str, gpu: str, settings: dict[str, Any], named: str
) -> None:
    found = ask(model, gpu, **settings)
    assert not found.fits and found.remedies
    assert any(named in remedy.change for remedy in found.remedies), [r.change for r in found.remedies]
    for remedy in found.remedies:
        keys = {**settings, **remedy.settings}
        tp, device = int(str(keys.pop("tensor_parallel_size", 1))), str(keys.pop("gpu", gpu))
        mended = ask(model, device, tp, **keys)
        assert mended.fits, remedy.change
        assert mended.kv_cache_tokens == remedy.kv_cache_tokens, remedy.change


def test_the_formula_of_a_stated_cache_says_who_stated_it() -> None:
    assert (
        "as kv_cache_memory_bytes states" in ask("opt-13b", "a100-sxm-40gb", kv_cache_memory_bytes=8 * GIB).formula[0]
    )
