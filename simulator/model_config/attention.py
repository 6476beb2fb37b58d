"""The attention part of a layer: its KV shape and its projections, in the spellings of Llama's descendants."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.errors import InputError
from simulator.model_config.blueprint import Linear
from simulator.model_config.fields import Fields
from simulator.model_config.windows import LayerType
from simulator.specs import AttentionLayers


@dataclass(frozen=True)
class Heads:
    """Query heads, KV heads and the sizes of one head's K and V."""

    query: int
    kv: int
    dim_k: int
    dim_v: int

    def cache(self, kind: LayerType, window_tokens: int | None) -> AttentionLayers:
        """What one such layer keeps."""
        if kind == "linear":
            raise ValueError("recurrent layers have no heads of this kind")
        return AttentionLayers(1, kind, self.query, self.kv, self.dim_k, self.dim_v, window_tokens)


def read_heads(fields: Fields, hidden_size: int, *, kv_defaults_to_query: bool = False) -> Heads:
    """Heads from num_attention_heads, num_key_value_heads and head_dim (default hidden_size / heads)."""
    query = fields.integer("num_attention_heads", "n_head", "n_heads")
    kv_names = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
    kv = fields.integer(*kv_names, default=query if kv_defaults_to_query else None)
    dim = read_head_dim(fields, hidden_size, query)
    if query % kv:
        raise InputError(
            f"num_attention_heads ({query}) is not a multiple of num_key_value_heads ({kv})",
            where=fields.where,
            remedy="check both against the model's own config.json",
        )
    return Heads(query, kv, dim, fields.integer("v_head_dim", default=dim))


def read_head_dim(fields: Fields, hidden_size: int, query_heads: int) -> int:
    if fields.raw("head_dim", "attention_head_dim") is not None:
        return fields.integer("head_dim", "attention_head_dim")
    if hidden_size % query_heads:
        raise InputError(
            f"hidden_size ({hidden_size}) is not a multiple of num_attention_heads ({query_heads})",
            where=fields.where,
            remedy="add head_dim",
        )
    return hidden_size // query_heads


def projections(
    heads: Heads,
    hidden_size: int,
    *,
    qkv_bias: bool,
    output_bias: bool,
    prefix: str = "self_attn.",
    gated_query: bool = False,
) -> list[Linear]:
    """q, k, v and o. ``gated_query``: q_proj also yields an output gate (Qwen3-Next)."""
    query_out = heads.query * heads.dim_k * (2 if gated_query else 1)
    return [
        Linear(f"{prefix}q_proj", hidden_size, query_out, qkv_bias),
        Linear(f"{prefix}k_proj", hidden_size, heads.kv * heads.dim_k, qkv_bias, split="kv"),
        Linear(f"{prefix}v_proj", hidden_size, heads.kv * heads.dim_v, qkv_bias, split="kv"),
        Linear(f"{prefix}o_proj", heads.query * heads.dim_v, hidden_size, output_bias),
    ]


def mlp(hidden_size: int, width: int, *, gated: bool = True, bias: bool = False, prefix: str = "mlp.") -> list[Linear]:
    """A feed-forward block: gate, up and down, or up and down alone."""
    gate = [Linear(f"{prefix}gate_proj", hidden_size, width, bias)] if gated else []
    return [
        *gate,
        Linear(f"{prefix}up_proj", hidden_size, width, bias),
        Linear(f"{prefix}down_proj", width, hidden_size, bias),
    ]
