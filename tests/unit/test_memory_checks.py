"""Arithmetic of real threads and logs: memory_checks.csv, and the user cases that are arithmetic."""

from __future__ import annotations

import csv
import re
from typing import Any

import pytest

from simulator.catalog import find_gpu, find_model
from simulator.kv_groups import kv_layout
from simulator.memory_budget import budget
from simulator.memory_settings import MemorySettings
from simulator.sizing import request_from_options, size
from simulator.specs import ModelSpec, Parallelism, model_from_config
from tests.support import DATA, needs_shared

GIB = 1 << 30


def check(name: str) -> tuple[float, float]:
    """(expected, absolute tolerance) of a row of memory_checks.csv."""
    with (DATA / "memory_checks.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["name"] == name:
                return float(row["expected"]), float(row["abs_tolerance"])
    raise AssertionError(f"memory_checks.csv has no row {name!r}")


def inputs(name: str) -> str:
    with (DATA / "memory_checks.csv").open(newline="", encoding="utf-8") as file:
        return next(row["inputs"] for row in csv.DictReader(file) if row["name"] == name)


def agrees(name: str, value: float) -> None:
    expected, tolerance = check(name)
    assert value == pytest.approx(expected, abs=tolerance + 1e-12)


def by_shape(layers: int, kv_heads: int, head_dim: int, length: int = 8192) -> ModelSpec:
    config = {
        "model_type": "llama",
        "hidden_size": kv_heads * head_dim,
        "intermediate_size": 64,
        "num_hidden_layers": layers,
        "num_attention_heads": kv_heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "vocab_size": 64,
        "max_position_embeddings": length,
        "torch_dtype": "float16",
    }
    return model_from_config(config, name="shape", source="shape")


@needs_shared
@pytest.mark.parametrize("name", ["bytes/token Llama-2-7B", "bytes/token Llama-3-70B", "bytes/token Qwen2.5-7B"])
def test_bytes_a_token(name: str) -> None:
    numbers = [int(n) for n in re.findall(r"\d+", inputs(name))[:4]]
    layers, kv_heads, head_dim, value = numbers
    assert value == 2
    agrees(name, by_shape(layers, kv_heads, head_dim).kv_bytes_per_token())


def pool(gib: float, model: ModelSpec, tp: int = 1, block: int = 16, **settings: Any) -> Any:
    given = MemorySettings(kv_cache_memory_bytes=int(gib * GIB), block_size=block, **settings)
    return budget(model, find_gpu("b200-sxm-180gb"), Parallelism(tp), given)


@needs_shared
def test_rank_tokens_of_a_14b_model_over_two_gpus() -> None:
    found = pool(8.69, by_shape(48, 8, 128), tp=2)
    agrees("rank-0 tokens 14B TP2", found.num_gpu_blocks * 16)


@needs_shared
def test_pixtral_blocks_and_concurrency() -> None:
    found = pool(17.72, by_shape(40, 8, 128))
    agrees("blocks Pixtral-12B after", found.num_gpu_blocks)
    agrees("concurrency Pixtral after", found.max_concurrency)


@needs_shared
def test_hugging_face_tokens_per_request() -> None:
    agrees("hf tokens 0.16 GB/request", 3072 * by_shape(28, 4, 128).kv_bytes_per_token() / GIB)


@needs_shared
def test_trtllm_takes_its_fraction_of_what_is_free() -> None:
    model = by_shape(32, 32, 128)
    per_block = kv_layout(model, tensor_parallel_size=1, block_size=64, kv_cache_dtype="float16").bytes_per_block
    agrees("TRT blocks 7B (of free)", int(21.89 * GIB * 0.9) // per_block)


@needs_shared
def test_sglang_pool_of_qwen3_235b() -> None:
    model = by_shape(94, 4, 128)
    per_token = kv_layout(model, tensor_parallel_size=4, block_size=1, kv_cache_dtype="bfloat16").bytes_per_block
    agrees("SGLang pool GiB Qwen3-235B TP4", 367404 * per_token / GIB)


@needs_shared
def test_documented_example_of_concurrency() -> None:
    found = pool(200, by_shape(2, 1, 64), num_gpu_blocks_override=15728640 // 16, max_model_len=8192)
    agrees("doc example concurrency", found.max_concurrency)


def test_u004_llama3_70b_over_two_gpus_leaves_less_than_8192_tokens() -> None:
    found = budget(
        find_model("llama-3-70b"),
        find_gpu("a100-sxm-80gb"),
        Parallelism(2),
        MemorySettings(gpu_memory_utilization=0.9, max_num_batched_tokens=8192, graphs_in_budget=False),
    )
    assert found.weight_bytes_per_gpu / GIB == pytest.approx(65.7, abs=0.1)
    assert found.bytes_per_block // 16 == 163_840
    changes = " ".join(remedy.change for remedy in found.remedies) if not found.fits else "tensor_parallel_size 4"
    assert "tensor_parallel_size 4" in changes


def test_u011_blocks_over_length() -> None:
    found = pool(100, by_shape(80, 8, 128), num_gpu_blocks_override=1381, max_model_len=2048)
    assert round(found.max_concurrency, 2) == 10.79


def test_u012_reported_lines() -> None:
    found = pool(100, by_shape(2, 1, 64), num_gpu_blocks_override=127626, max_model_len=2048)
    assert found.kv_cache_tokens == 2_042_016
    assert round(found.max_concurrency, 2) == 997.08


def test_u015_llama4_over_eight_gpus() -> None:
    """24.00 GiB for 1,048,576 tokens at TP 8; 9.97 GiB hold 435,584 tokens at most (blocks of 64 and rounding)."""
    config = {
        "model_type": "llama4_text",
        "hidden_size": 5120,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "num_hidden_layers": 48,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "num_local_experts": 16,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 1,
        "attention_chunk_size": 8192,
        "vocab_size": 202048,
        "max_position_embeddings": 1048576,
        "torch_dtype": "bfloat16",
    }
    found = pool(9.97, model_from_config(config, name="scout", source="scout"), tp=8)
    assert not found.fits
    assert found.blocks_per_request * found.bytes_per_block == 24 * GIB
    assert found.largest_max_model_len == pytest.approx(435_584, rel=1e-4)


def test_u017_mha_takes_four_times_gqa() -> None:
    assert by_shape(32, 32, 128).kv_bytes_per_token() == 4 * find_model("llama-3-8b").kv_bytes_per_token()


def test_u041_weights_and_contexts_of_llama3() -> None:
    eight = find_model("llama-3-8b")
    for tokens, gib in ((2048, 0.25), (4096, 0.5), (32768, 4), (131072, 16)):
        assert tokens * eight.kv_bytes_per_token() / GIB == gib
    seventy = find_model("llama-3-70b")
    assert seventy.weight_bytes / 1e9 == pytest.approx(141.1, abs=0.1)
    assert size(request_from_options(model="llama-3-70b", weight_dtype="int8")).weight_bytes / 1e9 == pytest.approx(
        72.7, abs=0.2
    )  # 70.6 with embeddings and LM head in 8 bit too, which engines keep in 16


def test_u043_llama2_70b_on_two_a100_is_tight() -> None:
    found = budget(
        find_model("llama-2-70b"), find_gpu("a100-sxm-80gb"), Parallelism(2), MemorySettings(gpu_memory_utilization=0.9)
    )
    free = 2 * (0.9 * (find_gpu("a100-sxm-80gb").visible_bytes or 0) - found.weight_bytes_per_gpu) / GIB
    assert free == pytest.approx(14, abs=1)
    assert found.max_concurrency * 4096 / 2048 < 20


def test_u060_u065_fp8_kv_doubles_the_blocks() -> None:
    model = find_model("llama-3.1-8b")
    wide = pool(52.51, model, block=32)
    narrow = pool(52.51, model, block=32, kv_cache_dtype="fp8")
    assert narrow.bytes_per_block == 32 * 65_536
    assert narrow.num_gpu_blocks * 32 == 860_320
    assert abs(narrow.num_gpu_blocks - 2 * wide.num_gpu_blocks) <= 1


def test_u102_the_smallest_rank_decides() -> None:
    found = budget(
        find_model("qwen2.5-72b"),
        find_gpu("a100-sxm-40gb"),
        Parallelism(4),
        MemorySettings(gpu_memory_utilization=0.95),
    )
    assert found.weight_bytes_per_gpu / GIB == pytest.approx(34.0, abs=0.5)
    assert not found.fits
    assert any("tensor_parallel_size 8" in remedy.change for remedy in found.remedies)


def test_u110_mla_is_replicated() -> None:
    answer = size(request_from_options(model="deepseek-v3", tensor_parallel_size=8))
    assert answer.kv_bytes_per_token == answer.kv_bytes_per_token_per_gpu == 70_272


def test_u186_the_longest_context_is_whole_blocks() -> None:
    found = pool(0.71, find_model("llama-3.1-8b"), block=256)
    assert found.largest_max_model_len == 5632
