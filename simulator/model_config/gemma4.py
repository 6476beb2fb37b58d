"""Gemma 4: global layers with KV heads and a head size of their own, shared KV, per-layer embeddings, experts."""

from __future__ import annotations

from simulator.model_config.attention import Heads, mlp, projections, read_heads
from simulator.model_config.blueprint import Blueprint, Layer, Linear
from simulator.model_config.experts import Moe
from simulator.model_config.fields import Fields
from simulator.model_config.windows import layer_windows
from simulator.specs import AttentionLayers

_GLOBAL_HEAD_DIM = 512  # Hugging Face Gemma4TextConfig: global_head_dim


def build_gemma4(fields: Fields) -> Blueprint:
    """A blueprint of Gemma 4's language model (facts from Hugging Face Transformers' code)."""
    hidden = fields.integer("hidden_size")
    num_layers = fields.integer("num_hidden_layers")
    length = fields.integer("max_position_embeddings")
    sliding = read_heads(fields, hidden)
    full = _global_heads(fields, sliding)
    shared_from = num_layers - fields.integer("num_kv_shared_layers", default=0, least=0)
    moe = _experts(fields)
    layers = []
    for index, (kind, window) in enumerate(layer_windows(fields, num_layers, length, "pattern")):
        local = kind == "sliding" or (kind == "full" and _is_local(fields, index))
        heads = sliding if local else full
        shares = index >= shared_from
        shape = AttentionLayers(1, "none", 0, 0, 0, 0) if shares else heads.cache(kind, window)
        linears, vectors = _attention(fields, heads, hidden, shares=shares, one_projection=not local)
        more, other = _feed_forward(fields, hidden, shares=shares, moe=moe)
        layers.append(Layer(shape, (*linears, *more), vectors + other))
    vocab = fields.integer("vocab_size")
    per_layer = fields.integer("hidden_size_per_layer_input", default=0, least=0)
    rows = fields.integer("vocab_size_per_layer_input", default=vocab) if per_layer else 0
    return Blueprint(
        tuple(layers),
        hidden,
        vocab,
        length,
        tied=fields.flag("tie_word_embeddings", default=True),
        embedding=vocab * hidden + rows * num_layers * per_layer,
        other=hidden + per_layer,
        projections=(Linear("per_layer_model_projection", hidden, num_layers * per_layer),) if per_layer else (),
        experts=moe.count if moe else 0,
        experts_per_token=moe.per_token if moe else 0,
    )


def _is_local(fields: Fields, index: int) -> bool:
    """A sliding layer whose window reaches the whole context still has the heads of a sliding one."""
    listed = fields.items("layer_types")
    return bool(listed) and listed is not None and listed[index] == "sliding_attention"


def _global_heads(fields: Fields, sliding: Heads) -> Heads:
    dim = fields.integer("global_head_dim", default=_GLOBAL_HEAD_DIM)
    kv = sliding.kv
    if fields.flag("attention_k_eq_v", default=False):
        kv = fields.integer("num_global_key_value_heads", default=sliding.kv)
    return Heads(sliding.query, kv, dim, dim)


def _attention(
    fields: Fields, heads: Heads, hidden: int, *, shares: bool, one_projection: bool
) -> tuple[list[Linear], int]:
    """(linears, norms). Layers that share KV have no K and V; global ones may use K's projection for V."""
    bias = fields.flag("attention_bias", default=False)
    linears = projections(heads, hidden, qkv_bias=bias, output_bias=bias)
    same = one_projection and fields.flag("attention_k_eq_v", default=False)
    dropped = ("k_proj", "v_proj") if shares else ("v_proj",) if same else ()
    kept = [linear for linear in linears if not linear.name.endswith(dropped)] if dropped else linears
    return kept, heads.dim_k * (1 if shares else 2)


def _feed_forward(fields: Fields, hidden: int, *, shares: bool, moe: Moe | None) -> tuple[list[Linear], int]:
    """(linears, norms and gates) of a layer behind its attention, its four norms included."""
    width = fields.integer("intermediate_size")
    if shares and fields.flag("use_double_wide_mlp", default=False):
        width *= 2
    linears = mlp(hidden, width)
    other = 4 * hidden
    per_layer = fields.integer("hidden_size_per_layer_input", default=0, least=0)
    if per_layer:
        linears += [
            Linear("per_layer_input_gate", hidden, per_layer, split="replicated"),
            Linear("per_layer_projection", per_layer, hidden, split="replicated"),
        ]
        other += hidden
    if moe:
        linears += moe.linears(hidden, "")
        other += 3 * hidden + hidden + moe.count  # three norms, the router's scale and one scale an expert
    return linears, other


def _experts(fields: Fields) -> Moe | None:
    if not fields.flag("enable_moe_block", default=False):
        return None
    return Moe(fields.integer("num_experts"), fields.integer("top_k_experts"), fields.integer("moe_intermediate_size"))
