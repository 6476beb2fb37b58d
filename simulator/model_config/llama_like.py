"""Llama and its descendants: pre-norm layers of q, k, v, o and an MLP or experts. One recipe a model type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from simulator.model_config.attention import Heads, mlp, projections, read_heads
from simulator.model_config.blueprint import Blueprint, Layer, Linear
from simulator.model_config.experts import Moe, dense_first, interval_layers, read_experts, sparse_step
from simulator.model_config.fields import Fields
from simulator.model_config.windows import WindowRule, layer_windows

MoeStyle = Literal["none", "every", "qwen2", "qwen3", "deepseek", "shared", "ernie"]


@dataclass(frozen=True)
class Recipe:
    """How one model type differs from Llama.

    Attributes:
        tied: Hugging Face default of tie_word_embeddings.
        qkv_bias, output_bias, mlp_bias: a constant, or the name of the field that says so (absent = False).
        norms: vectors of hidden_size a layer; ``norm_bias``: each has a bias too (LayerNorm).
        qk_norm: extra norms on q and k: of one head's size, or of all heads' ("width"); a field may switch it.
        parallel_switch: a field by which attention and MLP share one norm.
        window: which layers slide where layer_types is absent.
        defaults: Hugging Face class defaults that configs leave out.
    """

    tied: bool = False
    qkv_bias: bool | str = False
    output_bias: bool | str = False
    mlp_bias: bool | str = False
    norms: int = 2
    final_norm: bool = True
    norm_bias: bool = False
    parallel_switch: str | None = None
    qk_norm: Literal["none", "head", "width"] = "none"
    qk_norm_switch: str | None = None
    gated: bool = True
    window: WindowRule = "never"
    moe: MoeStyle = "none"
    moe_width: str = "moe_intermediate_size"
    correction: bool = False
    sinks: bool = False
    kv_defaults_to_query: bool = False
    lm_head_bias: str | None = None
    extra_per_layer: int = 0
    defaults: Mapping[str, Any] = field(default_factory=dict)


def switched(fields: Fields, rule: bool | str, default: bool = False) -> bool:
    return fields.flag(rule, default=default) if isinstance(rule, str) else rule


def build(fields: Fields, recipe: Recipe) -> Blueprint:
    """The blueprint of a Llama-like decoder."""
    hidden = fields.integer("hidden_size")
    num_layers = fields.integer("num_hidden_layers", "num_layers")
    max_model_len = fields.integer("max_position_embeddings", "model_max_length", "seq_length")
    heads = read_heads(fields, hidden, kv_defaults_to_query=recipe.kv_defaults_to_query)
    windows = layer_windows(fields, num_layers, max_model_len, recipe.window)
    moe, sparse = read_moe(fields, recipe, num_layers)
    layers = []
    for index, (kind, window) in enumerate(windows):
        block = moe if moe is not None and sparse[index] else None
        linears = attention_linears(fields, recipe, heads, hidden)
        linears += block.linears(hidden) if block else dense_mlp(fields, recipe, hidden)
        other = layer_vectors(fields, recipe, heads, hidden) + (block.other() if block else 0)
        layers.append(Layer(heads.cache(kind, window), tuple(linears), other))
    vocab = fields.integer("vocab_size", "padded_vocab_size")
    norm = hidden * (2 if recipe.norm_bias else 1) if recipe.final_norm else 0
    return Blueprint(
        tuple(layers),
        hidden,
        vocab,
        max_model_len,
        tied=fields.flag("tie_word_embeddings", default=recipe.tied),
        embedding=vocab * hidden,
        other=norm,
        lm_head_bias=switched(fields, recipe.lm_head_bias) if recipe.lm_head_bias else False,
        experts=moe.count if moe else 0,
        experts_per_token=moe.per_token if moe else 0,
    )


def attention_linears(fields: Fields, recipe: Recipe, heads: Heads, hidden: int) -> list[Linear]:
    return projections(
        heads,
        hidden,
        qkv_bias=switched(fields, recipe.qkv_bias),
        output_bias=switched(fields, recipe.output_bias),
    )


def dense_mlp(fields: Fields, recipe: Recipe, hidden: int) -> list[Linear]:
    width = fields.integer("intermediate_size_mlp", "intermediate_size", "ffn_hidden_size")
    return mlp(hidden, width, gated=recipe.gated, bias=switched(fields, recipe.mlp_bias))


def layer_vectors(fields: Fields, recipe: Recipe, heads: Heads, hidden: int) -> int:
    """Norms, attention sinks and other vectors of a layer."""
    parallel = recipe.parallel_switch is not None and switched(fields, recipe.parallel_switch)
    norms = 1 if parallel else recipe.norms
    total = norms * hidden * (2 if recipe.norm_bias else 1) + recipe.extra_per_layer
    if recipe.qk_norm != "none" and switched(fields, recipe.qk_norm_switch or True):
        per_head = recipe.qk_norm == "head"
        total += heads.dim_k * (2 if per_head else heads.query + heads.kv)
    return total + (heads.query if recipe.sinks else 0)


def read_moe(fields: Fields, recipe: Recipe, num_layers: int) -> tuple[Moe | None, list[bool]]:
    """The MoE block of the model, and for each layer whether it has one."""
    if recipe.moe == "none":
        return None, []
    count, per_token = read_experts(fields)
    width = fields.integer(recipe.moe_width)
    if recipe.moe in ("every", "shared"):
        shared = fields.integer("shared_intermediate_size", default=0, least=0) if recipe.moe == "shared" else 0
        correction = switched(fields, "use_routing_bias") if recipe.correction else False
        block = Moe(count, per_token, width, shared, correction, bias=recipe.sinks, router_bias=recipe.sinks)
        return block, [True] * num_layers
    if recipe.moe == "deepseek":
        shared = fields.integer("n_shared_experts", "num_shared_experts", default=0, least=0) * width
        correction = fields.text("topk_method", default="noaux_tc" if recipe.correction else "none") == "noaux_tc"
        return Moe(count, per_token, width, shared, correction), dense_first(fields, num_layers)
    if recipe.moe == "ernie":
        shared = fields.integer("moe_num_shared_experts", default=0, least=0) * width
        return Moe(count, per_token, width, shared, recipe.correction), interval_layers(fields, num_layers)
    shared_gate = recipe.moe == "qwen2"
    shared = fields.integer("shared_expert_intermediate_size") if shared_gate else 0
    return Moe(count, per_token, width, shared, shared_gate=shared_gate), sparse_step(fields, num_layers)
