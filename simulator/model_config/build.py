"""From a config.json to a ModelSpec: picks the family, writes the blueprint, adds it up."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from simulator.errors import InputError
from simulator.model_config import (
    alternating,
    gemma4,
    gpt_like,
    hybrid,
    kimi_linear,
    llama_like,
    mamba,
    mla,
    own_spellings,
)
from simulator.model_config.blueprint import Blueprint
from simulator.model_config.encoders import encoder_parameters
from simulator.model_config.fields import Fields
from simulator.model_config.recipes import ALIASES, RECIPES
from simulator.model_config.totals import add_up
from simulator.specs import ModelSpec

Builder = Callable[[Fields], Blueprint]

# Sections that hold the language model of a multimodal config.
_TEXT_SECTIONS = ("text_config", "llm_config", "language_config")
_INHERITED = ("tie_word_embeddings", "torch_dtype", "dtype", "quantization_config", "vocab_size")

_SIZES = {
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
}

BUILDERS: dict[str, Builder] = {
    "bamba": mamba.build_bamba,
    "bloom": gpt_like.build_bloom,
    "chatglm": own_spellings.build_chatglm,
    "codegen": gpt_like.build_gptj,
    "dbrx": own_spellings.build_dbrx,
    "glm4_moe_lite": mla.build_deepseek,
    "deepseek_v2": mla.build_deepseek,
    "deepseek_v3": mla.build_deepseek,
    "falcon": gpt_like.build_falcon,
    "falcon_mamba": mamba.build_mamba,
    "gemma4": gemma4.build_gemma4,
    "gpt2": gpt_like.build_gpt2,
    "gpt_bigcode": gpt_like.build_gpt_bigcode,
    "gpt_neox": gpt_like.build_gpt_neox,
    "gptj": gpt_like.build_gptj,
    "granitemoehybrid": mamba.build_granite_hybrid,
    "jamba": mamba.build_jamba,
    "kimi_linear": kimi_linear.build_kimi_linear,
    "lfm2": mamba.build_lfm2,
    "llama4": alternating.build_llama4,
    "mamba": mamba.build_mamba,
    "mamba2": mamba.build_mamba,
    "mimo_v2_flash": alternating.build_mimo_v2,
    "minimax": mamba.build_minimax,
    "minicpm3": mla.build_minicpm3,
    "mllama": alternating.build_mllama,
    "mpt": gpt_like.build_mpt,
    "nemotron-nas": own_spellings.build_nemotron_nas,
    "nemotron_h": hybrid.build_nemotron_h,
    "opt": gpt_like.build_opt,
    "phi": gpt_like.build_phi,
    "phi3small": own_spellings.build_phi3small,
    "qwen": own_spellings.build_qwen,
    "qwen3_next": hybrid.build_qwen3_next,
    "rwkv5": hybrid.build_rwkv5,
}

_DEFAULTS: dict[str, dict[str, Any]] = {"mllama": alternating.MLLAMA_DEFAULTS}


def build_model(config: Mapping[str, Any], *, name: str, source: str) -> ModelSpec:
    """See ``specs.model_from_config``."""
    if not isinstance(config, Mapping) or not config:
        raise InputError("a model config must be a non-empty JSON object", where=source)
    data, nested = _language_model(config)
    family = _family(data, source)
    recipe = RECIPES.get(family)
    defaults = recipe.defaults if recipe else _DEFAULTS.get(family, {})
    fields = Fields(data, source, defaults if nested else _without_sizes(defaults))
    blueprint = llama_like.build(fields, recipe) if recipe else BUILDERS[family](fields)
    encoders, notes = encoder_parameters({**data, **config})
    blueprint = replace(blueprint, encoder=encoders, notes=(*blueprint.notes, *notes))
    return add_up(blueprint, fields, name=name, source=source, architecture=_architecture(config, family))


def known_model_types() -> list[str]:
    """Every model_type that is understood, sorted."""
    return sorted({*RECIPES, *ALIASES, *BUILDERS})


def _without_sizes(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Only nested sections leave out sizes equal to the class default; elsewhere a missing size is an error."""
    return {key: value for key, value in defaults.items() if key not in _SIZES}


def _language_model(config: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """(config of the language model, whether it is a nested section with what it inherits)."""
    if isinstance(config.get("thinker_config"), Mapping):  # Qwen-Omni: the part that thinks holds the language model
        config = {**config, **config["thinker_config"]}
    section = next((s for s in _TEXT_SECTIONS if isinstance(config.get(s), Mapping)), None)
    if section is None:
        return dict(config), False
    inherited = {key: config[key] for key in _INHERITED if key in config}
    return {**inherited, **config[section]}, True


def _family(data: Mapping[str, Any], source: str) -> str:
    model_type = data.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        raise InputError(
            "the config has no model_type", where=source, remedy="use the model's own config.json from its repository"
        )
    family = ALIASES.get(model_type, model_type)
    if family in RECIPES or family in BUILDERS:
        return family
    raise _unknown(data, model_type, source)


def _unknown(data: Mapping[str, Any], model_type: str, source: str) -> InputError:
    """Why a model type is not understood: what is missing, and what comes near."""
    close = difflib.get_close_matches(model_type, known_model_types(), n=3, cutoff=0.6)
    near = f"the nearest known model types are {', '.join(close)}; " if close else ""
    if data.get("compress_ratios") is not None:
        why = "its compressed attention (compress_ratios: a ratio of stored tokens a layer) is not modelled"
    elif data.get("is_encoder_decoder"):
        why = "encoder-decoder models keep cross-attention KV per input, which is not modelled"
    else:
        why = "what its layers keep and weigh is not known"
    return InputError(
        f"model_type {model_type!r} is not understood: {why}, so nothing is guessed",
        where=source,
        remedy=f"{near}a model of another type needs a builder in simulator/model_config (see CONTRIBUTING.md)",
    )


def _architecture(config: Mapping[str, Any], family: str) -> str:
    listed = config.get("architectures")
    return str(listed[0]) if isinstance(listed, list) and listed else family
