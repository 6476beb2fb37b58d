"""Recipes of the model types that are Llama with small differences; facts from Hugging Face Transformers' code."""

from __future__ import annotations

from dataclasses import replace

from simulator.model_config.llama_like import Recipe

_LLAMA_DEFAULTS = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
}
_MISTRAL_DEFAULTS = {
    **_LLAMA_DEFAULTS,
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "sliding_window": 4096,
}
_QWEN_DEFAULTS = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
_GEMMA3_DEFAULTS = {
    "vocab_size": 262208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131072,
    "sliding_window": 4096,
    "sliding_window_pattern": 6,
}

_GEMMA_DEFAULTS = {
    "vocab_size": 256000,
    "hidden_size": 3072,
    "intermediate_size": 24576,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 256,
    "max_position_embeddings": 8192,
}
_GEMMA2_DEFAULTS = {
    **_GEMMA_DEFAULTS,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "sliding_window": 4096,
}

_LLAMA = Recipe(
    qkv_bias="attention_bias",
    output_bias="attention_bias",
    mlp_bias="mlp_bias",
    kv_defaults_to_query=True,
    defaults=_LLAMA_DEFAULTS,
)
_PLAIN = Recipe()
_QWEN2 = Recipe(qkv_bias=True, window="from_max_window_layers", defaults=_QWEN_DEFAULTS)
_QWEN3 = Recipe(
    qkv_bias="attention_bias",
    output_bias="attention_bias",
    qk_norm="head",
    window="from_max_window_layers",
    defaults={**_QWEN_DEFAULTS, "head_dim": 128},
)
_GEMMA = Recipe(tied=True, qkv_bias="attention_bias", output_bias="attention_bias", defaults=_GEMMA_DEFAULTS)
_GEMMA2 = replace(_GEMMA, norms=4, window="alternate", defaults=_GEMMA2_DEFAULTS)
_COHERE = Recipe(
    tied=True,
    qkv_bias="attention_bias",
    output_bias="attention_bias",
    norms=1,
    qk_norm="width",
    qk_norm_switch="use_qk_norm",
    kv_defaults_to_query=True,
)
_OLMO2 = replace(_LLAMA, mlp_bias=False, qk_norm="width", defaults={})
_GLM = Recipe(qkv_bias="attention_bias", defaults={"head_dim": 128})
_MIXTRAL = Recipe(moe="every", moe_width="intermediate_size", window="all")

RECIPES: dict[str, Recipe] = {
    "llama": _LLAMA,
    "mistral": Recipe(window="all", defaults=_MISTRAL_DEFAULTS),
    "ministral": Recipe(window="all", defaults=_MISTRAL_DEFAULTS),
    "mixtral": _MIXTRAL,
    "qwen2": _QWEN2,
    "qwen2_vl": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen2_moe": replace(_QWEN2, moe="qwen2"),
    "qwen3": _QWEN3,
    "qwen3_moe": replace(_QWEN3, moe="qwen3", defaults=_QWEN_DEFAULTS),
    "qwen3_vl": _QWEN3,
    "qwen3_vl_moe": replace(_QWEN3, moe="qwen3"),
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma3": replace(_GEMMA2, qk_norm="head", window="pattern", defaults=_GEMMA3_DEFAULTS),
    "phi3": Recipe(window="all", kv_defaults_to_query=True),
    "phimoe": replace(
        _MIXTRAL,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        norm_bias=True,
        lm_head_bias="lm_head_bias",
    ),
    "stablelm": Recipe(
        qkv_bias="use_qkv_bias",
        norm_bias=True,
        parallel_switch="use_parallel_residual",
        qk_norm="width",
        qk_norm_switch="qk_layernorm",
    ),
    "starcoder2": Recipe(
        tied=True,
        qkv_bias="use_bias",
        output_bias="use_bias",
        mlp_bias="use_bias",
        norm_bias=True,
        gated=False,
        window="all",
        defaults={"use_bias": True},
    ),
    "seed_oss": Recipe(
        qkv_bias="attention_bias",
        output_bias="attention_out_bias",
        mlp_bias="mlp_bias",
        defaults={"attention_bias": True, "head_dim": 128},
    ),
    "mimo": replace(_QWEN2, qkv_bias="attention_bias"),
    "minicpm": replace(_LLAMA, tied=True, mlp_bias=False, defaults={}),
    "xverse": replace(_LLAMA, qkv_bias=False, output_bias=False, mlp_bias=False, defaults={}),
    "baichuan": replace(_LLAMA, qkv_bias=False, output_bias=False, mlp_bias=False, defaults={}),
    "internlm2": Recipe(qkv_bias="bias", output_bias="bias", kv_defaults_to_query=True),
    "internlm3": Recipe(qkv_bias="qkv_bias", output_bias="bias", mlp_bias="bias"),
    "cohere": _COHERE,
    "cohere2": replace(
        _COHERE,
        qk_norm="none",
        window="pattern",
        defaults={"sliding_window": 4096, "sliding_window_pattern": 4},
    ),
    "olmo": replace(_LLAMA, norms=0, final_norm=False, mlp_bias=False, defaults={}),
    "olmo2": _OLMO2,
    "olmo3": replace(_OLMO2, window="pattern", defaults={"sliding_window": 4096, "sliding_window_pattern": 4}),
    "olmoe": replace(_OLMO2, moe="every", moe_width="intermediate_size"),
    "granite": replace(_LLAMA, defaults={}),
    "granitemoe": replace(_LLAMA, mlp_bias=False, moe="every", moe_width="intermediate_size", defaults={}),
    "granitemoeshared": replace(_LLAMA, mlp_bias=False, moe="shared", moe_width="intermediate_size", defaults={}),
    "glm": _GLM,
    "glm4": replace(_GLM, norms=4),
    "glm4_moe": replace(
        _GLM, qk_norm="head", qk_norm_switch="use_qk_norm", moe="deepseek", correction=True, defaults={}
    ),
    "exaone4": Recipe(qk_norm="head", window="pattern"),
    "smollm3": replace(_LLAMA, tied=True, defaults={"use_sliding_window": False}),
    "arcee": replace(_LLAMA, gated=False, defaults={}),
    "nemotron": replace(_LLAMA, gated=False, norm_bias=True, defaults={}),
    "orion": Recipe(norm_bias=True, qkv_bias="attention_bias", output_bias="attention_bias"),
    "gpt_oss": Recipe(
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        window="alternate",
        moe="every",
        moe_width="intermediate_size",
        sinks=True,
        defaults={"attention_bias": True, "head_dim": 64, "sliding_window": 128},
    ),
    "minimax_m2": Recipe(
        qk_norm="width",
        qk_norm_switch="use_qk_norm",
        moe="every",
        moe_width="intermediate_size",
        correction=True,
        defaults={"use_qk_norm": True, "use_routing_bias": True},
    ),
    "ernie4_5": Recipe(tied=True, qkv_bias="use_bias", output_bias="use_bias", mlp_bias="use_bias"),
    "ernie4_5_moe": Recipe(
        tied=True, qkv_bias="use_bias", output_bias="use_bias", mlp_bias="use_bias", moe="ernie", correction=True
    ),
    "internlm": Recipe(qkv_bias="bias", output_bias="bias", kv_defaults_to_query=True, defaults={"bias": True}),
    "hunyuan_v1_dense": Recipe(qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="head"),
    "apertus": replace(_LLAMA, gated=False, mlp_bias=False, qk_norm="head", extra_per_layer=2, defaults={}),
    "helium": Recipe(qkv_bias="attention_bias", mlp_bias="mlp_bias"),
    "exaone": Recipe(kv_defaults_to_query=True),
    "vaultgemma": replace(_GEMMA2, norms=2),
    "cwm": replace(_LLAMA, window="all", defaults={}),
    "ministral3": replace(_LLAMA, window="all", defaults={}),
    "flex_olmo": replace(_OLMO2, moe="every", moe_width="intermediate_size"),
    "deepseek": replace(_LLAMA, mlp_bias=False, moe="deepseek", defaults={}),
    "solar_open": replace(_GLM, moe="deepseek", correction=True, defaults={}),
    "phi4_multimodal": Recipe(window="all", kv_defaults_to_query=True),
    "dots1": replace(_QWEN3, moe="deepseek", correction=True, defaults=_QWEN_DEFAULTS),
}

# Model types that are written like another one.
ALIASES: dict[str, str] = {
    "gemma3_text": "gemma3",
    "qwen2_vl_text": "qwen2_vl",
    "qwen2_5_vl_text": "qwen2_5_vl",
    "qwen3_vl_text": "qwen3_vl",
    "qwen3_vl_moe_text": "qwen3_vl_moe",
    "llama4_text": "llama4",
    "mllama_text_model": "mllama",
    "gemma4_text": "gemma4",
    "kimi_k2": "deepseek_v3",
    "deepseek_v32": "deepseek_v3",
    "glm_moe_dsa": "deepseek_v3",
    "qwen3_5": "qwen3_next",
    "qwen3_5_text": "qwen3_next",
    "qwen3_5_moe": "qwen3_next",
    "qwen3_5_moe_text": "qwen3_next",
    "falcon_rw": "falcon",
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "yi": "llama",
    "aquila": "llama",
    "glm4v_moe_text": "glm4_moe",
    "minimax_text_01": "minimax",
    "minimax_m1": "minimax",
    "MiniMaxText01": "minimax",
    "MiniMaxM1": "minimax",
    "phi3_v": "phi3",
    "phi4mm": "phi4_multimodal",
    "qwen2_5_omni_text": "qwen2_5_vl",
    "qwen3_omni_moe_text": "qwen3_vl_moe",
    "ernie4_5_text": "ernie4_5",
}
