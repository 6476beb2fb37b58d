"""Rules of config.json spellings on small configs written here, so that they hold for files not seen."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.errors import InputError
from simulator.specs import ModelSpec, Parallelism, model_from_config

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}


def spec(**changes: Any) -> ModelSpec:
    config = {**LLAMA, **changes}
    return model_from_config({k: v for k, v in config.items() if v is not ...}, name="m", source="m.json")


def test_grouped_queries_by_hand() -> None:
    model = spec()
    assert model.kv_bytes_per_token() == 4 * 2 * 2 * 8 * 2
    attention = 64 * 64 * 2 + 64 * 16 * 2
    layer = attention + 3 * 64 * 128 + 2 * 64
    assert model.parameters == 4 * layer + 64 + 2 * 100 * 64
    assert model.dense_linear_parameters == 4 * (attention + 3 * 64 * 128)
    assert model.attention_flops_per_context_token() == 4 * 2 * 8 * (8 + 8)


MLA = {
    "model_type": "deepseek_v3",
    "num_attention_heads": 128,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "q_lora_rank": 1536,
}


def test_latent_attention_of_deepseek_v3_in_both_forms() -> None:
    (layers,) = spec(**MLA).attention
    assert (layers.prefill_head_dim_qk, layers.prefill_head_dim_v) == (192, 128)
    assert layers.flops_per_context_token() == 2 * 128 * (576 + 512)
    assert layers.flops_per_prefill_pair() == 2 * 128 * (192 + 128)
    assert layers.expanded_values_per_token == 128 * 320
    assert layers.up_projection_flops() == 2 * 512 * 128 * (128 + 128)  # kv_b_proj for one token
    (other,) = spec(**MLA | {"v_head_dim": 64}).attention
    assert other.flops_per_prefill_pair() == 2 * 128 * (192 + 64)
    (sparse,) = spec(**MLA, index_head_dim=128, index_n_heads=64).attention
    assert sparse.flops_per_prefill_pair() == sparse.flops_per_context_token() == layers.flops_per_context_token()
    assert sparse.up_projection_flops() == 0


def test_attention_without_a_latent_has_one_form() -> None:
    (layers,) = spec().attention
    assert layers.flops_per_prefill_pair() == layers.flops_per_context_token() == 2 * 8 * (8 + 8)
    assert layers.expanded_values_per_token == layers.up_projection_flops() == 0


def test_kv_dtype_scales_the_cache() -> None:
    model = spec()
    assert model.kv_bytes_per_token(1.0) * 2 == model.kv_bytes_per_token(2.0)
    assert model.kv_bytes_per_token(0.5) * 4 == model.kv_bytes_per_token(2.0)


def test_absent_kv_heads_of_llama_mean_multi_head() -> None:
    assert spec(num_key_value_heads=...).kv_bytes_per_token() == spec(num_key_value_heads=8).kv_bytes_per_token()


def test_explicit_head_dim_wins() -> None:
    assert spec(head_dim=32).kv_bytes_per_token() == 4 * spec().kv_bytes_per_token()


def test_null_head_dim_is_hidden_over_heads() -> None:
    assert spec(head_dim=None).kv_bytes_per_token() == spec().kv_bytes_per_token()


def test_nested_text_config_inherits_the_outer_fields() -> None:
    inner = {k: v for k, v in LLAMA.items() if k not in ("torch_dtype", "tie_word_embeddings")}
    outer = {
        "model_type": "some_vision_model",
        "text_config": inner,
        "torch_dtype": "float16",
        "tie_word_embeddings": True,
    }
    model = model_from_config(outer, name="m", source="m.json")
    assert model.dtype == "float16"
    assert model.tied_embeddings
    assert model.parameters == spec(tie_word_embeddings=True).parameters


def test_tied_embeddings_are_counted_once() -> None:
    assert spec().parameters - spec(tie_word_embeddings=True).parameters == 100 * 64


@pytest.mark.parametrize(
    ("changes", "full_layers"),
    [
        ({"model_type": "mistral", "sliding_window": 128}, 0),
        ({"model_type": "mistral", "sliding_window": None}, 4),
        ({"model_type": "mistral", "sliding_window": 512}, 4),  # a window as long as the context has no effect
        ({"model_type": "qwen2", "sliding_window": 128, "use_sliding_window": False}, 4),
        ({"model_type": "qwen2", "sliding_window": 128}, 4),  # Qwen's default is no window
        ({"model_type": "qwen2", "sliding_window": 128, "use_sliding_window": True, "max_window_layers": 3}, 3),
        ({"model_type": "gemma2", "sliding_window": 128}, 2),
        ({"model_type": "gemma3_text", "sliding_window": 128, "sliding_window_pattern": 2}, 2),
        ({"model_type": "cohere2", "sliding_window": 128, "sliding_window_pattern": 4}, 1),
        ({"model_type": "exaone4", "sliding_window": 128, "sliding_window_pattern": "LLLG"}, 1),
        ({"model_type": "mistral", "sliding_window": 128, "layer_types": ["full_attention"] * 4}, 4),
    ],
)
def test_which_layers_slide(changes: dict[str, Any], full_layers: int) -> None:
    model = spec(**changes)
    assert sum(group.count for group in model.attention if group.kind == "full") == full_layers
    assert sum(group.count for group in model.attention) == 4
    assert all(group.window_tokens == 128 for group in model.attention if group.kind == "sliding")


@pytest.mark.parametrize(
    "field", ["hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size", "max_position_embeddings"]
)
def test_a_missing_field_is_named(field: str) -> None:
    config = {key: value for key, value in {**LLAMA, "model_type": "internlm2"}.items() if key != field}
    with pytest.raises(InputError, match=field) as caught:
        model_from_config(config, name="m", source="there/config.json")
    assert caught.value.where == "there/config.json"


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "t5"},
        {"model_type": None},
        {"hidden_size": -1},
        {"hidden_size": "64"},
        {"num_hidden_layers": 0},
        {"num_key_value_heads": 3},
        {"num_attention_heads": 7},
        {"torch_dtype": "float12"},
        {"tie_word_embeddings": "yes"},
        {"layer_types": ["full_attention"] * 3},
        {"layer_types": ["a_new_kind"] * 4},
        {"quantization_config": {"quant_method": "brand_new"}},
        {"quantization_config": []},
    ],
)
def test_impossible_configs_are_input_errors(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        spec(**changes)
    assert "m.json" in str(caught.value)


def test_experts() -> None:
    moe = {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}
    model = spec(**moe)
    assert model.num_experts == 4
    assert model.num_moe_layers == 4
    assert model.parameters_per_expert == 3 * 64 * 128
    assert model.parameters - model.active_parameters == 4 * 2 * 3 * 64 * 128


def test_more_experts_a_token_than_there_are_is_an_error() -> None:
    with pytest.raises(InputError, match="exceeds"):
        spec(model_type="mixtral", num_local_experts=2, num_experts_per_tok=3)


QUANT: list[tuple[dict[str, Any], float]] = [
    ({"quant_method": "awq", "bits": 4, "group_size": 32}, 4 + 20 / 32),
    ({"quant_method": "gptq", "bits": 8, "group_size": 32}, 8 + 24 / 32),
    ({"quant_method": "mxfp4"}, 4.25),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5),
    ({"quant_method": "fp8", "weight_block_size": [16, 16]}, 8 + 32 / 256),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5),
    (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"g": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}},
        },
        4.5,
    ),
    (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"g": {"weights": {"num_bits": 4, "type": "int", "group_size": 32, "symmetric": True}}},
        },
        4.5,
    ),
]


@pytest.mark.parametrize(("quantization", "bits"), QUANT, ids=[str(i) for i in range(len(QUANT))])
def test_bits_a_parameter_with_scales(quantization: dict[str, Any], bits: float) -> None:
    model = spec(quantization_config=quantization)
    assert model.linear_weight_bytes_per_parameter == pytest.approx(bits / 8)
    assert model.kv_bytes_per_token() == spec().kv_bytes_per_token()


@pytest.mark.parametrize(
    ("ignored", "share"),
    [
        (["lm_head"], 0.0),
        (["re:.*self_attn.*"], 10240 / 34816),
        (["model.layers.*.self_attn"], 10240 / 34816),
        (["model.layers.0*"], 0.25),
        (["language_model.model.layers.0.mlp"], 24576 / 34816 / 4),
        (["self_attn"], 10240 / 34816),
    ],
)
def test_ignored_modules_keep_16_bit(ignored: list[str], share: float) -> None:
    model = spec(quantization_config={"quant_method": "mxfp4", "ignore": ignored})
    assert model.linear_weight_bytes_per_parameter == pytest.approx(share * 2 + (1 - share) * 4.25 / 8)


def test_quantised_kv_cache_is_remembered() -> None:
    config = {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    assert spec(quantization_config=config).kv_cache_dtype == "fp8"


def test_float32_checkpoints_are_held_in_16_bit_and_say_so() -> None:
    model = spec(torch_dtype="float32")
    assert model.weight_bytes == spec().weight_bytes
    assert any("float32" in note for note in model.notes)


def test_seed_bytes_per_token() -> None:
    """SEED.md: 131,072 B a token for Llama-3-8B, 819,200 for OPT-13B, 24,576 for question 4's model."""
    small = spec(num_hidden_layers=24, num_attention_heads=16, num_key_value_heads=4, head_dim=64)
    assert small.kv_bytes_per_token() == 24_576
    assert 2000 * small.kv_bytes_per_token() == 49_152_000
    llama = spec(hidden_size=4096, num_attention_heads=32, num_key_value_heads=8, num_hidden_layers=32)
    assert llama.kv_bytes_per_token() == 131_072
    opt = {
        "model_type": "opt",
        "hidden_size": 5120,
        "ffn_dim": 20480,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        "torch_dtype": "float16",
    }
    assert model_from_config(opt, name="opt", source="opt").kv_bytes_per_token() == 819_200


def test_parallelism_counts_gpus() -> None:
    assert Parallelism(4, 2, 3).gpus == 24
