"""Decoders whose layers alternate in ways of their own: Llama 4, MiMo-V2-Flash, Llama-3.2-Vision, Gemma 4."""

from __future__ import annotations

from dataclasses import replace

from simulator.errors import InputError
from simulator.model_config.attention import Heads, mlp, projections, read_heads
from simulator.model_config.blueprint import Blueprint, Layer
from simulator.model_config.experts import Moe, dense_first, read_experts
from simulator.model_config.fields import Fields

_LLAMA4_NOPE_INTERVAL = 4  # Hugging Face Llama4TextConfig: every fourth layer has no rotary positions


def build_llama4(fields: Fields) -> Blueprint:
    """Llama 4: chunked attention except in layers without rotary positions; MoE in every n-th layer."""
    hidden = fields.integer("hidden_size")
    num_layers = fields.integer("num_hidden_layers")
    length = fields.integer("max_position_embeddings")
    heads = read_heads(fields, hidden)
    chunk = fields.integer("attention_chunk_size", default=0, least=0)
    count, per_token = read_experts(fields)
    width = fields.integer("intermediate_size")
    moe = Moe(count, per_token, width, shared_width=width)
    step = fields.integer("interleave_moe_layer_step", default=1)
    listed = fields.items("moe_layers")
    sparse = set(listed) if listed is not None else set(range(step - 1, num_layers, step))
    bias = fields.flag("attention_bias", default=False)
    layers = []
    for index, rotary in enumerate(_rotary(fields, num_layers)):
        chunked = rotary and 0 < chunk < length
        shape = heads.cache("chunked", chunk) if chunked else heads.cache("full", None)
        linears = projections(heads, hidden, qkv_bias=bias, output_bias=bias)
        if index in sparse:
            linears += moe.linears(hidden, "feed_forward.")
        else:
            linears += mlp(hidden, fields.integer("intermediate_size_mlp"), prefix="feed_forward.")
        layers.append(Layer(shape, tuple(linears), 2 * hidden))
    return _finish(fields, layers, hidden, length, moe=moe if sparse else None)


def _rotary(fields: Fields, num_layers: int) -> list[bool]:
    """For each layer whether it has rotary positions: ``no_rope_layers`` holds 1 for those that do."""
    listed = fields.items("no_rope_layers")
    if listed:
        if len(listed) != num_layers:
            raise InputError(f"no_rope_layers has {len(listed)} entries for {num_layers} layers", where=fields.where)
        return [bool(flag) for flag in listed]
    every = fields.integer("no_rope_layer_interval", "nope_layer_interval", default=_LLAMA4_NOPE_INTERVAL)
    return [(i + 1) % every != 0 for i in range(num_layers)]


def build_mimo_v2(fields: Fields) -> Blueprint:
    """MiMo-V2-Flash: full and sliding layers have heads of their own, and K is wider than V."""
    hidden = fields.integer("hidden_size")
    num_layers = fields.integer("num_hidden_layers")
    length = fields.integer("max_position_embeddings")
    window = fields.integer("sliding_window", "sliding_window_size")
    full = read_heads(fields, hidden)
    sliding = Heads(
        fields.integer("swa_num_attention_heads"),
        fields.integer("swa_num_key_value_heads"),
        fields.integer("swa_head_dim"),
        fields.integer("swa_v_head_dim"),
    )
    pattern = fields.items("hybrid_layer_pattern", length=num_layers)
    if pattern is None:
        raise fields.missing("hybrid_layer_pattern")
    count, per_token = read_experts(fields)
    shared = fields.integer("n_shared_experts", default=0, least=0)
    width = fields.integer("moe_intermediate_size")
    correction = fields.text("topk_method", default="none") == "noaux_tc"
    moe = Moe(count, per_token, width, shared * width, correction)
    sparse = dense_first(fields, num_layers)
    bias = fields.flag("attention_bias", default=False)
    layers = []
    for index, slides in enumerate(pattern):
        heads = sliding if slides else full
        shape = heads.cache("sliding", window) if slides and window < length else heads.cache("full", None)
        sink_field = "add_swa_attention_sink_bias" if slides else "add_full_attention_sink_bias"
        other = 2 * hidden + (heads.query if fields.flag(sink_field, default=False) else 0)
        linears = projections(heads, hidden, qkv_bias=bias, output_bias=False)
        if sparse[index]:
            linears += moe.linears(hidden)
            other += moe.other()
        else:
            linears += mlp(hidden, fields.integer("intermediate_size"))
        layers.append(Layer(shape, tuple(linears), other))
    return _finish(fields, layers, hidden, length, moe=moe)


MLLAMA_DEFAULTS = {"vocab_size": 128256, "num_key_value_heads": 8}
_MLLAMA_EXTRA_EMBEDDINGS = 8  # Hugging Face MllamaTextModel: vocab_size + 8 rows


def build_mllama(fields: Fields) -> Blueprint:
    """Llama-3.2-Vision: cross-attention layers keep the KV of image tokens, none of text tokens."""
    hidden = fields.integer("hidden_size")
    num_layers = fields.integer("num_hidden_layers")
    heads = read_heads(fields, hidden)
    listed = fields.items("cross_attention_layers")
    if listed is None:
        raise fields.missing("cross_attention_layers")
    cross = set(listed)
    width = fields.integer("intermediate_size")
    plain = tuple(projections(heads, hidden, qkv_bias=False, output_bias=False))
    image = tuple(projections(heads, hidden, qkv_bias=False, output_bias=False, prefix="cross_attn."))
    own = heads.cache("full", None)
    layers = []
    for index in range(num_layers):
        if index in cross:
            vectors = 2 * hidden + 2 * heads.dim_k + 2  # q and k norms, two gates
            layers.append(Layer(replace(own, kind="cross"), (*image, *mlp(hidden, width)), vectors))
        else:
            layers.append(Layer(own, (*plain, *mlp(hidden, width)), 2 * hidden))
    blueprint = _finish(fields, layers, hidden, fields.integer("max_position_embeddings"))
    note = f"{len(cross)} cross-attention layers hold the KV of images, which is not counted per text token"
    return replace(
        blueprint,
        embedding=blueprint.embedding + _MLLAMA_EXTRA_EMBEDDINGS * hidden,
        notes=(*blueprint.notes, note),
    )


def _finish(
    fields: Fields,
    layers: list[Layer],
    hidden: int,
    length: int,
    *,
    tied: bool = False,
    moe: Moe | None = None,
) -> Blueprint:
    vocab = fields.integer("vocab_size")
    return Blueprint(
        tuple(layers),
        hidden,
        vocab,
        length,
        tied=fields.flag("tie_word_embeddings", default=tied),
        embedding=vocab * hidden,
        other=hidden,
        experts=moe.count if moe else 0,
        experts_per_token=moe.per_token if moe else 0,
    )
