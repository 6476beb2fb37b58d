"""Decoders built on Mamba, short convolutions or lightning attention, with or without attention layers between."""

from __future__ import annotations

from simulator.errors import InputError
from simulator.model_config.attention import mlp, projections, read_heads
from simulator.model_config.blueprint import Blueprint, Layer, Linear
from simulator.model_config.experts import Moe, read_experts
from simulator.model_config.fields import Fields
from simulator.model_config.hybrid import CONV_STATE_BYTES, finish, recurrent, state_value_bytes
from simulator.specs import AttentionLayers

Mixer = tuple[list[Linear], int, int]  # linears, other parameters, state bytes


def mamba1(fields: Fields, hidden: int, *, norms: bool, prefix: str = "mamba.") -> Mixer:
    """Mamba-1, its fields in Jamba's spelling or Mamba's own; ``norms``: Jamba norms dt, B and C."""
    inner = fields.integer("mamba_expand", "expand") * hidden
    state = fields.integer("mamba_d_state", "state_size")
    kernel = fields.integer("mamba_d_conv", "conv_kernel")
    rank = fields.raw("mamba_dt_rank", "time_step_rank", default="auto")
    rank = -(-hidden // 16) if rank == "auto" else fields.integer("mamba_dt_rank", "time_step_rank")
    bias = fields.flag("mamba_proj_bias", "use_bias", default=False)
    linears = [
        Linear(f"{prefix}in_proj", hidden, 2 * inner, bias),
        Linear(f"{prefix}x_proj", inner, rank + 2 * state),
        Linear(f"{prefix}dt_proj", rank, inner, True),
        Linear(f"{prefix}out_proj", inner, hidden, bias),
    ]
    other = inner * (kernel + fields.flag("mamba_conv_bias", "use_conv_bias", default=True)) + inner * state + inner
    size = inner * (kernel - 1) * CONV_STATE_BYTES + inner * state * state_value_bytes(fields)
    return linears, other + (rank + 2 * state if norms else 0), size


def mamba2(fields: Fields, hidden: int, prefix: str = "mamba.") -> Mixer:
    """Mamba-2 in Bamba's and Granite's spelling, or Mamba-2's own."""
    heads = fields.integer("mamba_n_heads", "num_heads")
    inner = fields.integer("mamba_expand", "expand") * hidden
    if inner % heads:
        raise InputError(f"{inner} channels do not divide into {heads} Mamba heads", where=fields.where)
    state = fields.integer("mamba_d_state", "state_size")
    kernel = fields.integer("mamba_d_conv", "conv_kernel")
    channels = inner + 2 * fields.integer("mamba_n_groups", "n_groups") * state
    bias = fields.flag("mamba_proj_bias", "use_bias", default=False)
    linears = [
        Linear(f"{prefix}in_proj", hidden, inner + channels + heads, bias),
        Linear(f"{prefix}out_proj", inner, hidden, bias),
    ]
    conv = channels * (kernel + fields.flag("mamba_conv_bias", "use_conv_bias", default=True))
    size = channels * (kernel - 1) * CONV_STATE_BYTES + inner * state * state_value_bytes(fields)
    return linears, conv + 3 * heads + inner, size


def build_mamba(fields: Fields) -> Blueprint:
    """Mamba, Falcon-Mamba and Mamba-2: no attention at all. Their context is unbounded; engines take it as given."""
    hidden = fields.integer("hidden_size")
    second = fields.raw("model_type") == "mamba2"
    linears, other, state = mamba2(fields, hidden) if second else mamba1(fields, hidden, norms=False)
    layers = [Layer(recurrent(state), tuple(linears), hidden + other)] * fields.integer("num_hidden_layers", "n_layer")
    length = fields.integer("max_position_embeddings", "max_sequence_length", default=_UNBOUNDED)
    tied = fields.flag("tie_word_embeddings", default=not second)
    return finish(fields, layers, hidden, length, tied=tied, prefix="backbone.layers.")


_UNBOUNDED = 1 << 20


def build_jamba(fields: Fields) -> Blueprint:
    """Jamba: attention in every attn_layer_period-th layer, experts in every expert_layer_period-th."""
    hidden = fields.integer("hidden_size")
    num_layers = fields.integer("num_hidden_layers")
    heads = read_heads(fields, hidden)
    width = fields.integer("intermediate_size")
    experts = fields.integer("num_experts", default=1)
    moe = Moe(*read_experts(fields), width) if experts > 1 else None
    mixer, vectors, state = mamba1(fields, hidden, norms=True)
    layers = []
    for index in range(num_layers):
        attends = _is_nth(fields, index, "attn_layer_period", "attn_layer_offset")
        sparse = moe is not None and _is_nth(fields, index, "expert_layer_period", "expert_layer_offset")
        tail = moe.linears(hidden, "feed_forward.") if moe and sparse else mlp(hidden, width, prefix="feed_forward.")
        if attends:
            head = projections(heads, hidden, qkv_bias=False, output_bias=False)
            layers.append(Layer(heads.cache("full", None), (*head, *tail), 2 * hidden))
        else:
            layers.append(Layer(recurrent(state), (*mixer, *tail), 2 * hidden + vectors))
    return finish(fields, layers, hidden, fields.integer("max_position_embeddings"), moe=moe)


def _is_nth(fields: Fields, index: int, period: str, offset: str) -> bool:
    return index % fields.integer(period) == fields.integer(offset, least=0)


def build_bamba(fields: Fields) -> Blueprint:
    """Bamba: Mamba-2 except in attn_layer_indices."""
    hidden = fields.integer("hidden_size")
    heads = read_heads(fields, hidden)
    listed = fields.items("attn_layer_indices")
    kinds = fields.items("layer_types", length=fields.integer("num_hidden_layers"))
    if listed is None and kinds is None:
        raise fields.missing("attn_layer_indices")
    attends = set(listed or []) or {i for i, kind in enumerate(kinds or []) if kind == "full_attention"}
    bias = fields.flag("attention_bias", default=False)
    head = projections(heads, hidden, qkv_bias=bias, output_bias=bias)
    tail = mlp(hidden, fields.integer("intermediate_size"), bias=fields.flag("mlp_bias", default=False))
    mixer, vectors, state = mamba2(fields, hidden)
    layers = [
        Layer(heads.cache("full", None), (*head, *tail), 2 * hidden)
        if index in attends
        else Layer(recurrent(state), (*mixer, *tail), 2 * hidden + vectors)
        for index in range(fields.integer("num_hidden_layers"))
    ]
    return finish(fields, layers, hidden, fields.integer("max_position_embeddings"))


_GRANITE_KINDS = {
    "attention": "attention",
    "full_attention": "attention",
    "mamba": "mamba",
    "linear_attention": "mamba",
}


def build_granite_hybrid(fields: Fields) -> Blueprint:
    """Granite 4: Mamba-2 or attention by layer_types, a shared MLP and, where there are any, experts."""
    hidden = fields.integer("hidden_size")
    num_layers = fields.integer("num_hidden_layers")
    heads = read_heads(fields, hidden)
    kinds = fields.items("layer_types", "layers_block_type", length=num_layers)
    if kinds is None:
        raise fields.missing("layer_types")
    unknown = set(kinds) - set(_GRANITE_KINDS)
    if unknown:
        raise InputError(f"layer_types has {sorted(unknown)}, not understood", where=fields.where)
    moe = None
    if fields.raw("num_local_experts", default=0):
        moe = Moe(*read_experts(fields), fields.integer("intermediate_size"))
    tail = mlp(hidden, fields.integer("shared_intermediate_size"), prefix="shared_mlp.")
    tail += moe.linears(hidden, "block_sparse_moe.") if moe else []
    bias = fields.flag("attention_bias", default=False)
    head = projections(heads, hidden, qkv_bias=bias, output_bias=bias)
    mixer, vectors, state = mamba2(fields, hidden)
    layers = [
        Layer(heads.cache("full", None), (*head, *tail), 2 * hidden)
        if _GRANITE_KINDS[kind] == "attention"
        else Layer(recurrent(state), (*mixer, *tail), 2 * hidden + vectors)
        for kind in kinds
    ]
    return finish(fields, layers, hidden, fields.integer("max_position_embeddings"), moe=moe)


def build_minimax(fields: Fields) -> Blueprint:
    """MiniMax-Text-01 and M1: lightning attention (a float32 matrix a head) except in every n-th layer, and MoE."""
    hidden = fields.integer("hidden_size")
    num_layers = fields.integer("num_hidden_layers")
    heads = read_heads(fields, hidden)
    moe = Moe(*read_experts(fields), fields.integer("intermediate_size"))
    inner = heads.query * heads.dim_k
    lightning = [
        Linear("self_attn.qkv_proj", hidden, 3 * inner),
        Linear("self_attn.output_gate", hidden, inner),
        Linear("self_attn.out_proj", inner, hidden),
    ]
    full = projections(heads, hidden, qkv_bias=False, output_bias=False)
    tail = moe.linears(hidden, "block_sparse_moe.")
    layers = [
        Layer(heads.cache("full", None), (*full, *tail), 2 * hidden)
        if attends
        else Layer(recurrent(inner * heads.dim_k * 4), (*lightning, *tail), 2 * hidden + inner)
        for attends in _minimax_full(fields, num_layers)
    ]
    return finish(fields, layers, hidden, fields.integer("max_position_embeddings"), moe=moe)


def _minimax_full(fields: Fields, num_layers: int) -> list[bool]:
    flags = fields.items("attn_type_list", length=num_layers)
    if flags is not None:
        return [flag == 1 for flag in flags]
    kinds = fields.items("layer_types", length=num_layers)
    if kinds is None:
        raise fields.missing("attn_type_list", "layer_types")
    return [kind == "full_attention" for kind in kinds]


def build_lfm2(fields: Fields) -> Blueprint:
    """LFM2: short convolutions with full attention between; the MLP's width is adjusted as its code does."""
    hidden = fields.integer("hidden_size", "block_dim")
    num_layers = fields.integer("num_hidden_layers")
    heads = read_heads(fields, hidden)
    width = fields.integer("intermediate_size", "block_ff_dim")
    if fields.flag("block_auto_adjust_ff_dim", default=True):
        scale = fields.raw("block_ffn_dim_multiplier", default=1.0)
        multiple = fields.integer("block_multiple_of", default=256)
        width = -(-int(float(scale) * int(2 * width / 3)) // multiple) * multiple
    kernel = fields.integer("conv_L_cache")
    bias = fields.flag("conv_bias", default=False)
    conv = [
        Linear("conv.in_proj", hidden, 3 * hidden, bias),
        Linear("conv.out_proj", hidden, hidden, bias),
    ]
    kinds = fields.items("layer_types", length=num_layers)
    listed = fields.items("full_attn_idxs")
    if kinds is None and listed is None:
        raise fields.missing("layer_types", "full_attn_idxs")
    attends = {i for i, kind in enumerate(kinds) if kind == "full_attention"} if kinds else set(listed or [])
    head = projections(heads, hidden, qkv_bias=False, output_bias=False)
    tail = mlp(hidden, width, prefix="feed_forward.")
    state: AttentionLayers = recurrent(hidden * (kernel - 1) * CONV_STATE_BYTES)
    layers = [
        Layer(heads.cache("full", None), (*head, *tail), 2 * hidden + 2 * heads.dim_k)
        if index in attends
        else Layer(state, (*conv, *tail), 2 * hidden + hidden * (kernel + bias))
        for index in range(num_layers)
    ]
    tied = fields.flag("tie_word_embeddings", "tie_embedding", default=True)
    return finish(fields, layers, hidden, fields.integer("max_position_embeddings"), tied=tied)
