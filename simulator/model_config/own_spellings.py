"""Decoders with a spelling of their own: ChatGLM, DBRX, Phi-3-small, Qwen (first), and Nemotron's pruned blocks."""

from __future__ import annotations

from simulator.errors import InputError
from simulator.model_config.attention import Heads, mlp, projections, read_head_dim
from simulator.model_config.blueprint import Blueprint, Layer, Linear
from simulator.model_config.experts import Moe
from simulator.model_config.fields import Fields
from simulator.specs import AttentionLayers


def build_chatglm(fields: Fields) -> Blueprint:
    """ChatGLM2, ChatGLM3 and GLM-4-9B: multi_query_group_num KV heads of kv_channels."""
    hidden = fields.integer("hidden_size")
    query = fields.integer("num_attention_heads")
    grouped = fields.flag("multi_query_attention", default=False)
    kv = fields.integer("multi_query_group_num") if grouped else query
    dim = fields.integer("kv_channels")
    bias = fields.flag("add_bias_linear", default=False)
    linears = [
        *projections(
            Heads(query, kv, dim, dim),
            hidden,
            qkv_bias=bias or fields.flag("add_qkv_bias", default=False),
            output_bias=bias,
        ),
        *mlp(hidden, fields.integer("ffn_hidden_size"), bias=bias),
    ]
    norm = hidden if fields.flag("rmsnorm", default=True) else 2 * hidden
    layer = Layer(Heads(query, kv, dim, dim).cache("full", None), tuple(linears), 2 * norm)
    vocab = fields.integer("padded_vocab_size", "vocab_size")
    return Blueprint(
        (layer,) * fields.integer("num_layers", "num_hidden_layers"),
        hidden,
        vocab,
        fields.integer("seq_length", "max_position_embeddings"),
        tied=fields.flag("tie_word_embeddings", default=False),
        embedding=vocab * hidden,
        other=norm if fields.flag("post_layer_norm", default=True) else 0,
        prefix="transformer.encoder.layers.",
    )


def build_dbrx(fields: Fields) -> Blueprint:
    """DBRX: heads in attn_config, experts in ffn_config, LayerNorms without bias."""
    hidden = fields.integer("d_model")
    query = fields.integer("n_heads")
    dim = read_head_dim(fields, hidden, query)
    heads = Heads(query, fields.section("attn_config").integer("kv_n_heads"), dim, dim)
    ffn = fields.section("ffn_config")
    moe = Moe(ffn.integer("moe_num_experts"), ffn.integer("moe_top_k"), ffn.integer("ffn_hidden_size"))
    linears = (*projections(heads, hidden, qkv_bias=False, output_bias=False), *moe.linears(hidden, "ffn."))
    layer = Layer(heads.cache("full", None), linears, 2 * hidden)
    vocab = fields.integer("vocab_size")
    return Blueprint(
        (layer,) * fields.integer("n_layers"),
        hidden,
        vocab,
        fields.integer("max_seq_len"),
        tied=fields.flag("tie_word_embeddings", default=False),
        embedding=vocab * hidden,
        other=hidden,
        prefix="transformer.blocks.",
        experts=moe.count,
        experts_per_token=moe.per_token,
    )


def build_phi3small(fields: Fields) -> Blueprint:
    """Phi-3-small: biases everywhere, LayerNorms. Its block-sparse layers keep the KV of every token."""
    hidden = fields.integer("hidden_size")
    query = fields.integer("num_attention_heads")
    dim = read_head_dim(fields, hidden, query)
    heads = Heads(query, fields.integer("num_key_value_heads"), dim, dim)
    linears = (
        *projections(heads, hidden, qkv_bias=True, output_bias=True),
        *mlp(hidden, fields.integer("ff_intermediate_size"), bias=True),
    )
    layer = Layer(heads.cache("full", None), linears, 4 * hidden)
    vocab = fields.integer("vocab_size")
    return Blueprint(
        (layer,) * fields.integer("num_hidden_layers"),
        hidden,
        vocab,
        fields.integer("max_position_embeddings"),
        tied=fields.flag("tie_word_embeddings", default=True),
        embedding=vocab * hidden,
        other=2 * hidden,
        notes=("block-sparse layers are counted as full: every engine caches all of their tokens",),
    )


def build_qwen(fields: Fields) -> Blueprint:
    """Qwen-7B of 2023: intermediate_size counts gate and up together."""
    hidden = fields.integer("hidden_size")
    query = fields.integer("num_attention_heads")
    dim = fields.integer("kv_channels", default=read_head_dim(fields, hidden, query))
    heads = Heads(query, query, dim, dim)
    bias = not fields.flag("no_bias", default=True)
    linears = (
        *projections(heads, hidden, qkv_bias=True, output_bias=bias),
        *mlp(hidden, fields.integer("intermediate_size") // 2, bias=bias),
    )
    layer = Layer(heads.cache("full", None), linears, 2 * hidden)
    vocab = fields.integer("vocab_size")
    return Blueprint(
        (layer,) * fields.integer("num_hidden_layers"),
        hidden,
        vocab,
        fields.integer("seq_length", "max_position_embeddings"),
        tied=fields.flag("tie_word_embeddings", default=False),
        embedding=vocab * hidden,
        other=hidden,
        prefix="transformer.h.",
    )


def build_nemotron_nas(fields: Fields) -> Blueprint:
    """Llama pruned block by block (NVIDIA Puzzle): block_configs says per layer what is left."""
    hidden = fields.integer("hidden_size")
    num_layers = fields.integer("num_hidden_layers")
    query = fields.integer("num_attention_heads")
    dim = read_head_dim(fields, hidden, query)
    blocks = fields.items("block_configs", length=num_layers)
    if blocks is None:
        raise fields.missing("block_configs")
    layers = []
    for index, block in enumerate(blocks):
        where = f"{fields.where}: block_configs[{index}]"
        if not isinstance(block, dict):
            raise InputError(f"a block must be an object, got {block!r}", where=where)
        both = Fields(block, where)
        shape, linears = _nas_attention(both.section("attention"), query, dim, hidden)
        ffn = _nas_ffn(both.section("ffn"), hidden)
        norms = hidden * (bool(linears) + bool(ffn))
        layers.append(Layer(shape, (*linears, *ffn), norms))
    vocab = fields.integer("vocab_size")
    return Blueprint(
        tuple(layers),
        hidden,
        vocab,
        fields.integer("max_position_embeddings"),
        tied=fields.flag("tie_word_embeddings", default=False),
        embedding=vocab * hidden,
        other=hidden,
    )


def _nas_attention(part: Fields, query: int, dim: int, hidden: int) -> tuple[AttentionLayers, tuple[Linear, ...]]:
    if part.flag("no_op", default=False):
        return AttentionLayers(1, "none", 0, 0, 0, 0), ()
    if part.flag("replace_with_linear", default=False):
        return AttentionLayers(1, "none", 0, 0, 0, 0), (Linear("self_attn.linear_attn", hidden, hidden),)
    heads = Heads(query, query // part.integer("n_heads_in_group"), dim, dim)
    window = part.integer("window_length", default=0, least=0)
    shape = heads.cache("sliding", window) if window else heads.cache("full", None)
    return shape, tuple(projections(heads, hidden, qkv_bias=False, output_bias=False))


def _nas_ffn(part: Fields, hidden: int) -> tuple[Linear, ...]:
    if part.flag("no_op", default=False):
        return ()
    if part.flag("replace_with_linear", default=False):
        return (Linear("mlp.linear_mlp", hidden, hidden),)
    multiple = part.raw("ffn_mult")
    if part.has("intermediate_size"):
        width = part.integer("intermediate_size")
    elif isinstance(multiple, (int, float)) and not isinstance(multiple, bool) and multiple > 0:
        width = _round_up(int(2 * multiple * hidden / 3), 256)  # DeciLM's rule
    else:
        raise part.missing("ffn_mult")
    return tuple(mlp(hidden, width))


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
