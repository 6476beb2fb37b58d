"""KV groups: vLLM's grouping of layers and what real servers printed of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simulator.catalog import find_model
from simulator.kv_groups import KvLayout, kv_layout
from simulator.specs import ModelSpec, model_from_config
from tests.support import DATA, needs_shared

GIB = 1 << 30


def sliding(num_layers: int, types: list[str], **changes: Any) -> ModelSpec:
    config = {
        "model_type": "mistral",
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": num_layers,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 100,
        "max_position_embeddings": 16384,
        "sliding_window": 1024,
        "layer_types": types,
        "torch_dtype": "bfloat16",
        **changes,
    }
    return model_from_config(config, name="m", source="m")


def layout(model: ModelSpec, **options: Any) -> KvLayout:
    given = {"tensor_parallel_size": 1, "block_size": 16, "kv_cache_dtype": "bfloat16", **options}
    return kv_layout(model, **given)


def test_llama_block_is_two_mebibytes() -> None:
    """SCHEDULERS.md section 7: Llama-3-8B, 16 tokens, 16 bit: 2 MiB a block."""
    assert layout(find_model("llama-3-8b")).bytes_per_block == 2 << 20


@pytest.mark.parametrize(
    ("full", "slide", "groups", "size"),
    [(10, 20, 3, 10), (8, 40, 6, 8), (10, 14, 2, 14), (10, 15, 3, 10)],  # from 1.5 times on, the smaller count rules
)
def test_groups_have_equal_layer_counts(full: int, slide: int, groups: int, size: int) -> None:
    model = sliding(full + slide, ["full_attention"] * full + ["sliding_attention"] * slide)
    found = layout(model)
    assert len(found.groups) == groups
    assert found.bytes_per_block == size * 16 * 2 * 2 * 32 * 2
    assert sorted(i for group in found.groups for i in group.layers) == list(range(full + slide))


def test_sliding_group_needs_window_and_budget() -> None:
    """USERS U018: starcoder2-3b, window 4096, budget 8192, 16,384 tokens: 769 blocks, 137,407 / 769 = 178.68x."""
    model = sliding(4, ["sliding_attention"] * 4, sliding_window=4096)
    need = layout(model).blocks_per_request(16384, 8192)
    assert need == 769
    assert round(137407 / need, 2) == 178.68


def test_without_windows_every_token_counts() -> None:
    model = sliding(4, ["sliding_attention"] * 4, sliding_window=4096)
    assert layout(model, windows=False).blocks_per_request(16384, 8192) == 1024


def test_kv_heads_are_replicated_beyond_their_number() -> None:
    model = find_model("qwen3-30b-a3b")  # 4 KV heads
    per_block = [layout(model, tensor_parallel_size=tp).bytes_per_block for tp in (1, 2, 4, 8, 16)]
    assert per_block[0] == 2 * per_block[1] == 4 * per_block[2]
    assert per_block[2] == per_block[3] == per_block[4]


def test_mla_is_replicated_on_every_rank() -> None:
    """U110, Kimi-K2 log: 70,272 B a token at any tensor-parallel size."""
    model = find_model("deepseek-v3")
    for tp in (1, 8, 16):
        assert layout(model, tensor_parallel_size=tp, block_size=64).bytes_per_block == 64 * 70_272
    assert layout(model, kv_cache_dtype="fp8", block_size=1).bytes_per_block == 61 * 576
    assert layout(model, kv_cache_dtype="fp8_ds_mla", block_size=1).bytes_per_block == 61 * 656


@needs_shared
def test_sparse_mla_adds_the_indexer() -> None:
    """SGLang PR 11309: 656 + 132 bytes a layer, 48,068 a token."""
    path = DATA / "model_configs" / "configs" / "deepseek-ai__DeepSeek-V3.2.json"
    model = model_from_config(json.loads(path.read_text()), name="v3.2", source=path.name)
    assert layout(model, kv_cache_dtype="fp8", block_size=1).bytes_per_block == 48_068


@needs_shared
def test_recurrent_state_raises_the_block() -> None:
    """vLLM 0.24 log of Qwen3.6-35B-A3B: 5.98 GiB of fp8 KV gave 567,978 tokens, 4.33x at 131,072 (blocks of 2096)."""
    path = DATA / "model_configs" / "configs" / "nvidia__Qwen3.6-35B-A3B-NVFP4.json"
    model = model_from_config(json.loads(path.read_text()), name="q", source=path.name)
    found = layout(model, kv_cache_dtype="fp8")
    assert found.block_size == 2096
    blocks = int(5.98 * GIB) // found.bytes_per_block
    concurrency = blocks / found.blocks_per_request(131072, 2048)
    assert round(concurrency, 2) == 4.33
    assert int(concurrency * 131072) == 567_978


def test_stages_share_the_grouping_but_not_the_bytes() -> None:
    model = sliding(12, ["full_attention", "sliding_attention"] * 6)
    whole = layout(model)
    first = layout(model, stage=range(6))
    assert [g.layers for g in first.groups] == [g.layers for g in whole.groups]
    assert first.bytes_per_block * 2 == whole.bytes_per_block


@needs_shared
def test_sparse_layers_that_share_an_indexer_keep_the_same_layout() -> None:
    """GLM-5.2: 78 layers of 656 bytes, and the indexer's 132 in the 21 layers that have one."""
    path = DATA / "model_configs" / "configs" / "zai-org__GLM-5.2.json"
    model = model_from_config(json.loads(path.read_text()), name="glm", source=path.name)
    assert layout(model, kv_cache_dtype="fp8", block_size=1).bytes_per_block == 78 * 656 + 21 * 132
