"""What one rank of a tensor-parallel group holds and computes: bytes and FLOPs, no rates."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.errors import InputError
from simulator.specs import AttentionLayers, ModelSpec, WeightGroup

ACTIVATION_BYTES = 2  # activations and logits travel in 16 bit


@dataclass(frozen=True)
class RankAttention:
    """Attention layers that are alike, on one rank; bytes and FLOPs are of one layer.

    Attributes:
        window: a query attends to at most so many tokens, itself included; None = to all of them. Layers that attend in
            chunks (Llama 4) are given a window of one chunk, which is the most they read.
        kv_bytes: KV bytes per context token.
        flops: of QKᵀ and PV for one query token against one context token.
        state_bytes: recurrent state of a sequence.
        prefill_flops: as ``flops``, for a query token of a prompt.
        expanded_bytes, up_flops: K and V of one context token that prompts attend to where they are projected up from
            a latent (MLA), and the FLOPs of that; 0 = prompts read the cache as it is.
    """

    count: int
    window: int | None
    kv_bytes: float
    flops: float
    state_bytes: float
    prefill_flops: float
    expanded_bytes: float
    up_flops: float


@dataclass(frozen=True)
class RankWork:
    """The share of one rank. MoE: ``expert_*`` are of one expert in one layer.

    Attributes:
        dense_computes, expert_computes: (type of matrix products as ``WeightGroup.compute``, share of the parameters).
    """

    tensor_parallel_size: int
    layers: int
    hidden_size: int
    vocab_size: int
    dense_bytes: float
    dense_parameters: float
    dense_computes: tuple[tuple[str, float], ...]
    expert_layers: int
    experts: int
    experts_per_token: int
    expert_bytes: float
    expert_parameters: float
    expert_computes: tuple[tuple[str, float], ...]
    head_bytes: float
    head_parameters: float
    head_compute: str
    attention: tuple[RankAttention, ...]

    def distinct_experts(self, tokens: int) -> float:
        """Expected number of different experts that a layer's router picks for ``tokens`` tokens.

        E · (1 - (1 - k/E)^tokens): exact where each token picks k different experts of E uniformly and independently
        of the others. Real routers are less even, so they hit fewer.
        """
        miss = 1.0 - self.experts_per_token / self.experts
        return float(self.experts * (1.0 - miss**tokens))

    def weight_bytes(self, tokens: int, sampled: int) -> float:
        """Weights that a step has to read at least once: linear layers, experts hit, LM head where it runs."""
        experts = self.expert_layers * self.distinct_experts(tokens) * self.expert_bytes if self.experts else 0.0
        return self.dense_bytes + experts + (self.head_bytes if sampled else 0.0)


def rank_work(model: ModelSpec, tensor_parallel_size: int, kv_dtype_bytes: float) -> RankWork:
    """The rank's share of a model: the largest one, where heads do not divide evenly.

    Raises:
        InputError: the model's layers are not given: its weights would take no time.
    """
    if not model.layers:
        raise InputError(
            f"{model.name} has no layers to weigh", where="model", remedy="build it with specs.model_from_config"
        )
    tp = tensor_parallel_size
    groups = [(group, group.ways(tp, layer.attention.kv_heads)) for layer in model.layers for group in layer.weights]
    dense = [(group, ways) for group, ways in groups if group.split != "experts"]
    experts = [(group, ways) for group, ways in groups if group.split == "experts"]
    copies = max(1, model.num_experts * model.num_moe_layers)
    return RankWork(
        tensor_parallel_size=tp,
        layers=model.num_layers,
        hidden_size=model.hidden_size,
        vocab_size=model.vocab_size,
        dense_bytes=sum(group.bytes / ways for group, ways in dense),
        dense_parameters=sum(group.parameters / ways for group, ways in dense),
        dense_computes=_computes(dense),
        expert_layers=model.num_moe_layers,
        experts=model.num_experts,
        experts_per_token=model.experts_per_token,
        expert_bytes=sum(group.bytes / ways for group, ways in experts) / copies,
        expert_parameters=sum(group.parameters / ways for group, ways in experts) / copies,
        expert_computes=_computes(experts),
        head_bytes=model.lm_head_bytes / tp,
        head_parameters=model.lm_head_parameters / tp,
        head_compute=model.lm_head_compute,
        attention=tuple(_rank_attention(group, tp, kv_dtype_bytes) for group in model.attention),
    )


def _computes(groups: list[tuple[WeightGroup, int]]) -> tuple[tuple[str, float], ...]:
    """Which share of the rank's parameters computes in which type, the largest first."""
    counts: dict[str, float] = {}
    for group, ways in groups:
        counts[group.compute] = counts.get(group.compute, 0.0) + group.parameters / ways
    total = sum(counts.values())
    return tuple((compute, counts[compute] / total) for compute in sorted(counts, key=lambda key: -counts[key]))


def _rank_attention(group: AttentionLayers, tp: int, kv_dtype_bytes: float) -> RankAttention:
    """Query heads are divided; KV heads too, down to one a rank; a latent (MLA) stands whole on every rank."""
    query_share = -(-group.query_heads // tp) / max(1, group.query_heads)
    kv_share = 1.0 if group.kind == "mla" else -(-group.kv_heads // tp) / max(1, group.kv_heads)
    return RankAttention(
        count=group.count,
        window=group.window_tokens if group.kind in ("sliding", "chunked") else None,
        kv_bytes=group.values_per_token * kv_share * kv_dtype_bytes + group.indexer_bytes,
        flops=group.flops_per_context_token() * query_share,
        state_bytes=group.state_bytes / tp,
        prefill_flops=group.flops_per_prefill_pair() * query_share,
        expanded_bytes=group.expanded_values_per_token * query_share * ACTIVATION_BYTES,
        up_flops=group.up_projection_flops() * query_share,
    )
