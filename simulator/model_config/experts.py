"""Mixture-of-experts blocks: how many experts, how wide, in which layers, and what all tokens share."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.errors import InputError
from simulator.model_config.attention import mlp
from simulator.model_config.blueprint import Linear
from simulator.model_config.fields import Fields


@dataclass(frozen=True)
class Moe:
    """One MoE block.

    Attributes:
        width, shared_width: intermediate size of an expert, and of the part every token passes (0 = none).
        correction: the router carries a bias of one value an expert (DeepSeek's e_score_correction_bias).
        shared_gate: the shared part is gated by a hidden_size -> 1 map (Qwen2-MoE).
        latent_size: experts work in this space, reached by a projection down and one back (0 = hidden_size).
    """

    count: int
    per_token: int
    width: int
    shared_width: int = 0
    correction: bool = False
    shared_gate: bool = False
    gated: bool = True
    bias: bool = False
    router_bias: bool = False
    latent_size: int = 0

    def linears(self, hidden_size: int, prefix: str = "mlp.") -> list[Linear]:
        inner = self.latent_size or hidden_size
        experts = [
            Linear(
                f"{prefix}experts.{part.name}",
                part.inputs,
                part.outputs,
                part.bias,
                split="experts",
                copies=self.count,
                active=self.per_token,
            )
            for part in mlp(inner, self.width, gated=self.gated, bias=self.bias, prefix="")
        ]
        router = Linear(
            f"{prefix}gate", hidden_size, self.count, self.router_bias, split="replicated", quantizable=False
        )
        return [router, *experts, *self._latent(hidden_size, prefix), *self._shared(hidden_size, prefix)]

    def other(self) -> int:
        """Parameters beside the linears."""
        return self.count if self.correction else 0

    def _latent(self, hidden_size: int, prefix: str) -> list[Linear]:
        if not self.latent_size:
            return []
        return [
            Linear(f"{prefix}fc1_latent_proj", hidden_size, self.latent_size, split="replicated"),
            Linear(f"{prefix}fc2_latent_proj", self.latent_size, hidden_size, split="replicated"),
        ]

    def _shared(self, hidden_size: int, prefix: str) -> list[Linear]:
        if not self.shared_width:
            return []
        name = "shared_expert." if self.shared_gate else "shared_experts."
        shared = mlp(hidden_size, self.shared_width, gated=self.gated, prefix=f"{prefix}{name}")
        if self.shared_gate:
            shared.append(Linear(f"{prefix}shared_expert_gate", hidden_size, 1, split="replicated", quantizable=False))
        return shared


def read_experts(fields: Fields) -> tuple[int, int]:
    """(experts, experts a token passes)."""
    count = fields.integer("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
    per_token = fields.integer("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_k")
    if per_token > count:
        raise InputError(
            f"num_experts_per_tok ({per_token}) exceeds the number of experts ({count})", where=fields.where
        )
    return count, per_token


def dense_first(fields: Fields, num_layers: int) -> list[bool]:
    """For each layer whether it is MoE: DeepSeek's first_k_dense_replace and moe_layer_freq."""
    listed = fields.raw("moe_layer_freq")
    if isinstance(listed, list):
        flags = fields.items("moe_layer_freq", length=num_layers) or []
        return [bool(flag) for flag in flags]
    kinds = fields.items("mlp_layer_types", length=num_layers)
    if kinds is not None:
        return [kind == "sparse" for kind in kinds]
    first = fields.integer("first_k_dense_replace", least=0)
    every = fields.integer("moe_layer_freq", default=1)
    return [i >= first and i % every == 0 for i in range(num_layers)]


def sparse_step(fields: Fields, num_layers: int) -> list[bool]:
    """For each layer whether it is MoE: Qwen's decoder_sparse_step and mlp_only_layers."""
    step = fields.integer("decoder_sparse_step", default=1)
    dense = set(fields.items("mlp_only_layers") or [])
    return [i not in dense and (i + 1) % step == 0 for i in range(num_layers)]


def interval_layers(fields: Fields, num_layers: int) -> list[bool]:
    """For each layer whether it is MoE: ERNIE's first and last MoE layer and the interval between them."""
    first = fields.integer("moe_layer_start_index", default=0, least=0)
    last = fields.integer("moe_layer_end_index", default=num_layers - 1, least=-1)
    last = num_layers - 1 if last < 0 else last
    every = fields.integer("moe_layer_interval", default=1)
    return [first <= i <= last and (i + 1) % every == 0 for i in range(num_layers)]
