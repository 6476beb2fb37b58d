"""Kimi Linear and K3: delta attention with a fixed state a sequence, and MLA in every few layers."""

from __future__ import annotations

from simulator.errors import InputError
from simulator.model_config.attention import mlp
from simulator.model_config.blueprint import Blueprint, Layer, Linear
from simulator.model_config.experts import Moe, dense_first, read_experts
from simulator.model_config.fields import Fields
from simulator.model_config.hybrid import CONV_STATE_BYTES, finish, recurrent
from simulator.model_config.mla import latent_attention, latent_linears

_K3_ONLY = ("mla_use_output_gate", "routed_expert_hidden_size", "attn_res_block_size")


def build_kimi_linear(fields: Fields) -> Blueprint:
    """Kimi Linear and K3: MLA in the layers listed (from 1) in full_attn_layers, delta attention in kda_layers."""
    hidden = fields.integer("hidden_size")
    num_layers = fields.integer("num_hidden_layers")
    linear = fields.section("linear_attn_config")
    full = set(linear.items("full_attn_layers") or [])
    delta = set(linear.items("kda_layers") or [])
    if full | delta != set(range(1, num_layers + 1)) or full & delta:
        raise InputError(
            "full_attn_layers and kda_layers must name every layer from 1 once",
            where=linear.where,
            remedy="check linear_attn_config against the model's own config.json",
        )
    moe, sparse = _kimi_moe(fields, num_layers)
    attention, vectors = latent_linears(fields, hidden)
    parts, delta_vectors, state = _kimi_delta(linear, hidden)
    layers = []
    for index in range(num_layers):
        block = moe if moe is not None and sparse[index] else None
        tail = block.linears(hidden) if block else mlp(hidden, fields.integer("intermediate_size"))
        other = 2 * hidden + (block.other() if block else 0)
        if index + 1 in full:
            layers.append(Layer(latent_attention(fields), (*attention, *tail), other + vectors))
        else:
            layers.append(Layer(recurrent(state), (*parts, *tail), other + delta_vectors))
    length = fields.integer("max_position_embeddings", "model_max_length")
    newer = [name for name in _K3_ONLY if fields.raw(name, default=False)]
    newer += [] if not linear.flag("use_full_rank_gate", default=False) else ["use_full_rank_gate"]
    note = f"weights are estimated: {', '.join(newer)} add gates whose shape is not published"
    return finish(fields, layers, hidden, length, moe=moe, notes=(note,) if newer else (), exact=not newer)


def _kimi_moe(fields: Fields, num_layers: int) -> tuple[Moe | None, list[bool]]:
    if fields.raw("num_experts") is None:
        return None, []
    count, per_token = read_experts(fields)
    width = fields.integer("moe_intermediate_size")
    shared = fields.integer("num_shared_experts", default=0, least=0) * width
    latent = fields.integer("routed_expert_hidden_size", default=0, least=0)
    return Moe(count, per_token, width, shared, True, latent_size=latent), dense_first(fields, num_layers)


def _kimi_delta(linear: Fields, hidden: int) -> tuple[list[Linear], int, int]:
    heads = linear.integer("num_heads")
    dim = linear.integer("head_dim")
    kernel = linear.integer("short_conv_kernel_size")
    inner = heads * dim
    full_gate = linear.flag("use_full_rank_gate", default=False)
    gate = (
        [Linear("self_attn.g_proj", hidden, inner)]
        if full_gate
        else [Linear("self_attn.g_a_proj", hidden, dim, split="replicated"), Linear("self_attn.g_b_proj", dim, inner)]
    )
    linears = [
        *(Linear(f"self_attn.{name}_proj", hidden, inner) for name in "qkv"),
        Linear("self_attn.f_a_proj", hidden, dim, split="replicated"),
        Linear("self_attn.f_b_proj", dim, inner),
        Linear("self_attn.b_proj", hidden, heads),
        *gate,
        Linear("self_attn.o_proj", inner, hidden),
    ]
    vectors = 3 * inner * kernel + heads + inner + dim
    state = 3 * inner * (kernel - 1) * CONV_STATE_BYTES + heads * dim * dim * 4
    return linears, vectors, state
