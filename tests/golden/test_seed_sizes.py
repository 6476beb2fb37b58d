"""SEED.md's bytes: 131,072 (Llama 3 8B), 819,200 (OPT-13B) and 24,576 (question 3) per token."""

from __future__ import annotations

import pytest

from simulator.specs import ModelSpec, model_from_config

MIB, GIB = 2**20, 2**30

LLAMA_3_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
OPT_13B = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "hidden_size": 5120,
    "ffn_dim": 20480,
    "word_embed_proj_dim": 5120,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "max_position_embeddings": 2048,
    "vocab_size": 50272,
    "do_layer_norm_before": True,
    "torch_dtype": "float16",
}
QUESTION_3 = LLAMA_3_8B | {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "torch_dtype": "float16",
}


def model(config: dict[str, object]) -> ModelSpec:
    return model_from_config(config, name="seed", source="SEED.md")


@pytest.mark.parametrize(
    ("config", "per_token", "layers", "kv_heads", "head_dim"),
    [(LLAMA_3_8B, 131_072, 32, 8, 128), (OPT_13B, 819_200, 40, 40, 128), (QUESTION_3, 24_576, 24, 4, 64)],
    ids=["llama-3-8b", "opt-13b", "question-3"],
)
def test_bytes_per_token(config: dict[str, object], per_token: int, layers: int, kv_heads: int, head_dim: int) -> None:
    assert 2 * layers * kv_heads * head_dim * 2 == per_token
    assert model(config).kv_bytes_per_token(2.0) == per_token


def test_a_request_of_llama_3_8b() -> None:
    per_token = model(LLAMA_3_8B).kv_bytes_per_token(2.0)
    assert 1_000 * per_token == 125 * MIB
    assert 8_192 * per_token == GIB
    assert 16 * GIB // per_token == 131_072


def test_a_request_of_opt_13b() -> None:
    per_token = model(OPT_13B).kv_bytes_per_token(2.0)
    assert per_token == 800 * 2**10
    assert 2_048 * per_token == 1.5625 * GIB


def test_question_3_a_request_of_2000_tokens() -> None:
    assert 2_000 * model(QUESTION_3).kv_bytes_per_token(2.0) == 49_152_000
