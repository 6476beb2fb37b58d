"""`kvplan size`: the promised keys, the text that adds up, vLLM's lines word for word."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from simulator.errors import InputError
from simulator.sizing import request_from_options, size, size_dict, size_text

PROMISED = {
    "fits",
    "kv_bytes_per_token",
    "kv_bytes_per_token_per_gpu",
    "weight_bytes_per_gpu",
    "activation_bytes",
    "reserve_bytes",
    "kv_pool_bytes_per_gpu",
    "num_gpu_blocks",
    "kv_cache_tokens",
    "max_concurrency",
    "parameters",
    "formula",
    "warnings",
    "remedies",
}


def answer(**options: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(size_dict(size(request_from_options(**options)))))
    return document


def test_promised_keys_with_and_without_a_gpu() -> None:
    assert set(answer(model="llama-3.1-8b", gpu="h100-sxm-80gb")) >= PROMISED
    bare = answer(model="llama-3.1-8b")
    assert set(bare) >= PROMISED
    assert bare["fits"] is None
    assert bare["num_gpu_blocks"] is None
    assert bare["kv_bytes_per_token"] == 131_072
    assert bare["parameters"] == 8_030_261_248


def test_numbers_agree_with_each_other() -> None:
    found = answer(model="llama-3.1-8b", gpu="h100-sxm-80gb", max_model_len=8192)
    assert sum(row["bytes"] for row in found["rows"]) == found["gpu_memory_bytes"]
    assert found["num_gpu_blocks"] == found["kv_pool_bytes_per_gpu"] // found["bytes_per_block"]
    assert found["max_concurrency"] == found["num_gpu_blocks"] / found["blocks_per_request"]
    assert found["kv_cache_tokens"] == int(found["max_concurrency"] * 8192)
    assert found["kv_bytes_per_token"] * found["block_size"] == found["bytes_per_block"]


def test_per_gpu_bytes_follow_the_split() -> None:
    whole = answer(model="llama-3.1-70b")
    split = answer(model="llama-3.1-70b", tensor_parallel_size=16, pipeline_parallel_size=2)
    assert split["kv_bytes_per_token_per_gpu"] == whole["kv_bytes_per_token"] // 8 // 2  # 8 KV heads, 2 stages


def test_text_is_ascii_and_adds_up() -> None:
    text = size_text(size(request_from_options(model="llama-3.1-8b", gpu="h100-sxm-80gb", max_model_len=8192)))
    assert text.isascii()
    table = text.split("-" * 78)[1]
    parts = [float(re.findall(r"-?\d+\.\d\d(?=  )", line)[0]) for line in table.strip().splitlines()]
    total = float(re.findall(r"total \(nvidia-smi\)\s+([\d.]+)", text)[0])
    assert sum(parts) == pytest.approx(total, abs=0.005 * (len(parts) + 1))
    assert all(word in text for word in ("exact", "estimated", "assumed"))


def test_vllm_lines_word_for_word() -> None:
    result = size(request_from_options(model="llama-3.1-8b", gpu="h100-sxm-80gb", max_model_len=8192))
    lines = size_text(result).splitlines()
    budget = result.budget
    assert budget is not None
    assert f"GPU KV cache size: {budget.kv_cache_tokens:,} tokens" in lines
    assert f"Maximum concurrency for 8,192 tokens per request: {budget.max_concurrency:.2f}x" in lines


def test_a_no_ends_with_changes_that_work() -> None:
    text = size_text(size(request_from_options(model="llama-3.1-70b", gpu="h100-sxm-80gb")))
    assert "Does not fit" in text
    assert text.index("What would make it fit:") < text.index("tensor_parallel_size 4")


def test_windows_stand_beside_the_bytes_a_token() -> None:
    found = answer(model="gemma-3-27b")
    assert found["kv_bytes_per_token"] == 507_904
    assert found["kv_bytes_per_token_full_layers"] == 81_920
    assert found["sliding_cap_bytes"] == 436_207_616
    assert "window 1024" in " ".join(found["formula"])


def test_the_engines_of_the_contract() -> None:
    for engine in ("vllm", "sglang", "trtllm"):
        assert answer(model="llama-3.1-8b", gpu="h100-sxm-80gb", engine=engine)["engine"] == engine


@pytest.mark.parametrize(
    "options",
    [
        {"model": "llama-9"},
        {"model": "llama-3.1-8b", "gpu": "h1000"},
        {"model": "llama-3.1-8b", "tensor_parallel_size": 3},
        {"model": "llama-3.1-8b", "gpu": "l4", "kv_cache_dtype": "fp3"},
        {"model": "llama-3.1-8b", "weight_dtype": "fp3"},
        {"model": "llama-3.1-8b", "block_sise": 16},
    ],
)
def test_bad_options_are_input_errors(options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        size(request_from_options(**options))
    assert caught.value.remedy


def test_flops_per_token_are_twice_the_parameters_of_the_linear_layers() -> None:
    """Llama-3.1-8B: all but the embeddings, the LM head and 65 norms; 32 heads of 128 for K and for V in 32 layers."""
    found = size_dict(size(request_from_options(model="llama-3.1-8b")))
    assert found["linear_flops_per_token"] == 2 * (8_030_261_248 - 2 * 128_256 * 4_096 - 65 * 4_096)
    assert found["attention_flops_per_context_token"] == 32 * 2 * 32 * (128 + 128)
