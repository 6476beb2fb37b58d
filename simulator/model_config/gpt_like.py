"""Decoders older than Llama: GPT-2 and what followed it. Layers of q, k, v, o and up, down, with LayerNorms."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.errors import InputError
from simulator.model_config.attention import Heads, mlp, projections, read_heads
from simulator.model_config.blueprint import Blueprint, Layer, Linear
from simulator.model_config.fields import Fields


@dataclass(frozen=True)
class Shape:
    """What these decoders have in common; ``norms`` counts LayerNorms a layer, ``positions`` learned positions."""

    hidden: int
    num_layers: int
    heads: Heads
    width: int
    max_model_len: int
    tied: bool
    bias: bool = True
    qkv_bias: bool | None = None
    output_bias: bool | None = None
    norms: int = 2
    norm_bias: bool = True
    final_norm: bool = True
    positions: int = 0
    embedding_norm: bool = False
    lm_head_bias: bool = False
    prefix: str = "transformer.h."
    embedding_dim: int | None = None
    extra_per_layer: int = 0


def decoder(fields: Fields, shape: Shape) -> Blueprint:
    """The blueprint of a decoder whose layers are all alike."""
    hidden = shape.hidden
    qkv_bias = shape.bias if shape.qkv_bias is None else shape.qkv_bias
    output_bias = shape.bias if shape.output_bias is None else shape.output_bias
    linears = [
        *projections(shape.heads, hidden, qkv_bias=qkv_bias, output_bias=output_bias),
        *mlp(hidden, shape.width, gated=False, bias=shape.bias),
    ]
    norm = hidden * (2 if shape.norm_bias else 1)
    layer = Layer(shape.heads.cache("full", None), tuple(linears), shape.norms * norm + shape.extra_per_layer)
    vocab = fields.integer("vocab_size")
    embedding_dim = shape.embedding_dim or hidden
    resized = embedding_dim != hidden
    return Blueprint(
        (layer,) * shape.num_layers,
        embedding_dim,
        vocab,
        shape.max_model_len,
        tied=fields.flag("tie_word_embeddings", default=shape.tied),
        embedding=vocab * embedding_dim + shape.positions * hidden,
        other=norm * (shape.final_norm + shape.embedding_norm),
        lm_head_bias=shape.lm_head_bias,
        projections=(
            Linear("project_in", embedding_dim, hidden),
            Linear("project_out", hidden, embedding_dim),
        )
        if resized
        else (),
        prefix=shape.prefix,
    )


def build_gpt2(fields: Fields) -> Blueprint:
    hidden = fields.integer("n_embd", "hidden_size")
    positions = fields.integer("n_positions", "max_position_embeddings")
    return decoder(
        fields,
        Shape(
            hidden,
            fields.integer("n_layer", "num_hidden_layers"),
            read_heads(fields, hidden, kv_defaults_to_query=True),
            fields.integer("n_inner", default=4 * hidden),
            positions,
            tied=True,
            positions=positions,
        ),
    )


def build_gpt_bigcode(fields: Fields) -> Blueprint:
    """StarCoder and SantaCoder: GPT-2 with one KV head where multi_query."""
    hidden = fields.integer("n_embd", "hidden_size")
    positions = fields.integer("n_positions", "max_position_embeddings")
    query = fields.integer("n_head", "num_attention_heads")
    dim = _even(fields, hidden, query)
    kv = 1 if fields.flag("multi_query", default=True) else query
    return decoder(
        fields,
        Shape(
            hidden,
            fields.integer("n_layer", "num_hidden_layers"),
            Heads(query, kv, dim, dim),
            fields.integer("n_inner", default=4 * hidden),
            positions,
            tied=True,
            positions=positions,
        ),
    )


def build_gptj(fields: Fields) -> Blueprint:
    """GPT-J and CodeGen: one LayerNorm a layer, no attention bias, rotary positions."""
    hidden = fields.integer("n_embd", "hidden_size")
    return decoder(
        fields,
        Shape(
            hidden,
            fields.integer("n_layer", "num_hidden_layers"),
            read_heads(fields, hidden, kv_defaults_to_query=True),
            fields.integer("n_inner", default=4 * hidden),
            fields.integer("n_positions", "max_position_embeddings"),
            tied=False,
            qkv_bias=False,
            output_bias=False,
            norms=1,
            lm_head_bias=True,
        ),
    )


def build_gpt_neox(fields: Fields) -> Blueprint:
    hidden = fields.integer("hidden_size")
    attention_bias = fields.flag("attention_bias", default=True)
    return decoder(
        fields,
        Shape(
            hidden,
            fields.integer("num_hidden_layers"),
            read_heads(fields, hidden, kv_defaults_to_query=True),
            fields.integer("intermediate_size"),
            fields.integer("max_position_embeddings"),
            tied=False,
            qkv_bias=attention_bias,
            output_bias=attention_bias,
            prefix="gpt_neox.layers.",
        ),
    )


def build_opt(fields: Fields) -> Blueprint:
    """OPT: learned positions with an offset of 2; the 350M model embeds in fewer dimensions and norms afterwards."""
    hidden = fields.integer("hidden_size")
    positions = fields.integer("max_position_embeddings")
    norm_first = fields.flag("do_layer_norm_before", default=True)
    removed = fields.flag("_remove_final_layer_norm", default=False)
    return decoder(
        fields,
        Shape(
            hidden,
            fields.integer("num_hidden_layers"),
            read_heads(fields, hidden, kv_defaults_to_query=True),
            fields.integer("ffn_dim"),
            positions,
            tied=True,
            bias=fields.flag("enable_bias", default=True),
            final_norm=norm_first and not removed,
            positions=positions + 2,
            prefix="model.decoder.layers.",
            embedding_dim=fields.integer("word_embed_proj_dim", default=hidden),
        ),
    )


def build_bloom(fields: Fields) -> Blueprint:
    """BLOOM: ALiBi, a norm behind the embedding; context as trained (seq_length)."""
    hidden = fields.integer("hidden_size", "n_embed")
    return decoder(
        fields,
        Shape(
            hidden,
            fields.integer("n_layer", "num_hidden_layers"),
            read_heads(fields, hidden, kv_defaults_to_query=True),
            4 * hidden,
            fields.integer("seq_length", "max_position_embeddings", default=2048),
            tied=True,
            embedding_norm=True,
        ),
    )


def build_mpt(fields: Fields) -> Blueprint:
    """MPT: no biases, ALiBi or learned positions; attn_config.kv_n_heads for grouped queries."""
    hidden = fields.integer("d_model")
    query = fields.integer("n_heads")
    attention = fields.section("attn_config")
    multi_query = attention.text("attn_type", default="multihead_attention") == "multiquery_attention"
    kv = attention.integer("kv_n_heads", default=1 if multi_query else query)
    dim = _even(fields, hidden, query)
    bias = not fields.flag("no_bias", default=True)
    length = fields.integer("max_seq_len")
    learned = fields.flag("learned_pos_emb", default=True) and not attention.flag("alibi", default=False)
    return decoder(
        fields,
        Shape(
            hidden,
            fields.integer("n_layers"),
            Heads(query, kv, dim, dim),
            fields.integer("expansion_ratio", default=4) * hidden,
            length,
            tied=True,
            bias=bias,
            norm_bias=bias,
            positions=length if learned else 0,
            prefix="transformer.blocks.",
        ),
    )


def build_falcon(fields: Fields) -> Blueprint:
    """Falcon, old (one KV head, or all) and new (num_kv_heads) decoder architecture."""
    hidden = fields.integer("hidden_size")
    query = fields.integer("num_attention_heads", "n_head")
    new = fields.flag("new_decoder_architecture", default=False)
    if new:
        kv = fields.integer("num_kv_heads", "n_head_kv", default=query)
    else:
        kv = 1 if fields.flag("multi_query", default=True) else query
    dim = _even(fields, hidden, query)
    two_norms = not fields.flag("parallel_attn", default=True)
    if new:
        two_norms = fields.integer("num_ln_in_parallel_attn", default=2) == 2
    return decoder(
        fields,
        Shape(
            hidden,
            fields.integer("num_hidden_layers", "n_layer"),
            Heads(query, kv, dim, dim),
            fields.integer("ffn_hidden_size", default=4 * hidden),
            fields.integer("max_position_embeddings", default=2048),
            tied=True,
            bias=fields.flag("bias", default=False),
            norms=2 if two_norms else 1,
        ),
    )


def build_phi(fields: Fields) -> Blueprint:
    """Phi-1, Phi-1.5 and Phi-2."""
    hidden = fields.integer("hidden_size")
    heads = read_heads(fields, hidden, kv_defaults_to_query=True)
    qk_norm = fields.flag("qk_layernorm", default=False)
    return decoder(
        fields,
        Shape(
            hidden,
            fields.integer("num_hidden_layers"),
            heads,
            fields.integer("intermediate_size"),
            fields.integer("max_position_embeddings"),
            tied=False,
            norms=1,
            lm_head_bias=True,
            prefix="model.layers.",
            extra_per_layer=4 * heads.dim_k if qk_norm else 0,
        ),
    )


def _even(fields: Fields, hidden: int, heads: int) -> int:
    if hidden % heads:
        raise InputError(
            f"the hidden size ({hidden}) is not a multiple of the attention heads ({heads})",
            where=fields.where,
            remedy="check both against the model's own config.json",
        )
    return hidden // heads
