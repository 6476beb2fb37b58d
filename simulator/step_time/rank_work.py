"""What one rank of a tensor-parallel group holds and computes: bytes and FLOPs, no rates.

With expert parallelism each rank holds whole experts instead of a slice of every one. The step waits for the busiest
rank, so what counts is the expected maximum over the ranks (see ``RankWork.busiest``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, erf, sqrt

from simulator.errors import InputError
from simulator.specs import AttentionLayers, LayerSpec, ModelSpec, WeightGroup

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
        layers, expert_layers: of the pipeline stage that the rank belongs to.
        expert_ranks: ranks that share the experts out, each whole; 1 = every rank has its slice of each.
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
    expert_ranks: int = 1

    def distinct_experts(self, tokens: int) -> float:
        """Expected number of different experts that a layer's router picks for ``tokens`` tokens.

        E · (1 - (1 - k/E)^tokens): exact where each token picks k different experts of E uniformly and independently
        of the others. Real routers are less even, so they hit fewer.
        """
        miss = 1.0 - self.experts_per_token / self.experts
        return float(self.experts * (1.0 - miss**tokens))

    def experts_read(self, tokens: int) -> float:
        """Expected number of different experts that a layer reads on the rank that reads the most."""
        hit = self.distinct_experts(tokens)
        if self.expert_ranks == 1:
            return hit
        local = ceil(self.experts / self.expert_ranks)
        # Of ``hit`` experts, all alike, those of one rank are a hypergeometric sample.
        return min(self.busiest(hit, hit * (self.experts - hit) / max(1, self.experts - 1)), hit, local)

    def expert_tokens(self, tokens: int) -> float:
        """Expected (token, expert) pairs that a layer computes on the rank that has the most."""
        pairs = float(tokens * self.experts_per_token)
        if self.expert_ranks == 1:
            return pairs
        # Each token's experts are such a sample too, and tokens are independent: variances add up.
        spread = pairs * (self.experts - self.experts_per_token) / max(1, self.experts - 1)
        local = ceil(self.experts / self.expert_ranks)
        return min(self.busiest(pairs, spread), float(tokens * min(local, self.experts_per_token)))

    def busiest(self, total: float, spread: float) -> float:
        """Expected maximum over the ranks of what they have of ``total``.

        A rank with the share q has q · total in the mean, with the variance q (1 - q) · ``spread``; the ranks' sum is
        fixed. Normal shares with such a sum exceed their mean by σ · √(n / (n - 1)) · (mean of the largest of n
        standard normals).
        """
        ranks = self.expert_ranks
        share = ceil(self.experts / ranks) / self.experts
        deviation = sqrt(max(0.0, share * (1.0 - share) * spread))
        return share * total + deviation * sqrt(ranks / (ranks - 1)) * largest_of_normals(ranks)

    def weight_bytes(self, tokens: int, sampled: int) -> float:
        """Weights that a step has to read at least once: linear layers, experts hit, LM head where it runs."""
        experts = self.expert_layers * self.experts_read(tokens) * self.expert_bytes if self.experts else 0.0
        return self.dense_bytes + experts + (self.head_bytes if sampled else 0.0)


@cache
def largest_of_normals(n: int) -> float:
    """Mean of the largest of n independent standard normals: ∫ x d(Φ(x)ⁿ) = ∫₀ (1 - Φ(x)ⁿ - Φ(-x)ⁿ) dx."""
    steps, upper = 2000, 8.0
    width = upper / steps

    def tail(x: float) -> float:
        below = 0.5 * (1.0 + erf(x / sqrt(2.0)))
        return 1.0 - below**n - (1.0 - below) ** n

    inner = sum(tail(i * width) for i in range(1, steps))
    return float(width * (inner + 0.5 * (tail(0.0) + tail(upper))))


def rank_work(
    model: ModelSpec,
    tensor_parallel_size: int,
    kv_dtype_bytes: float,
    *,
    stage: range | None = None,
    samples: bool = True,
    expert_parallel: bool = False,
) -> RankWork:
    """The rank's share of a model: the largest one, where heads or experts do not divide evenly.

    Args:
        stage: the layers of a pipeline stage; None = all.
        samples: whether the stage has the LM head.
        expert_parallel: ranks hold whole experts.

    Raises:
        InputError: the model's layers are not given: its weights would take no time.
    """
    if not model.layers:
        raise InputError(
            f"{model.name} has no layers to weigh", where="model", remedy="build it with specs.model_from_config"
        )
    tp = tensor_parallel_size
    layers = model.layers if stage is None else model.layers[stage.start : stage.stop]
    groups = [(group, group.ways(tp, layer.attention.kv_heads)) for layer in layers for group in layer.weights]
    dense = [(group, ways) for group, ways in groups if group.split != "experts"]
    experts = [(group, 1 if expert_parallel else ways) for group, ways in groups if group.split == "experts"]
    expert_layers = model.num_moe_layers if stage is None else _moe_layers(layers)
    copies = max(1, model.num_experts * expert_layers)
    return RankWork(
        tensor_parallel_size=tp,
        layers=model.num_layers if stage is None else len(layers),
        hidden_size=model.hidden_size,
        vocab_size=model.vocab_size,
        dense_bytes=sum(group.bytes / ways for group, ways in dense),
        dense_parameters=sum(group.parameters / ways for group, ways in dense),
        dense_computes=_computes(dense),
        expert_layers=expert_layers,
        experts=model.num_experts if expert_layers else 0,
        experts_per_token=model.experts_per_token,
        expert_bytes=sum(group.bytes / ways for group, ways in experts) / copies,
        expert_parameters=sum(group.parameters / ways for group, ways in experts) / copies,
        expert_computes=_computes(experts),
        head_bytes=model.lm_head_bytes / tp if samples else 0.0,
        head_parameters=model.lm_head_parameters / tp if samples else 0.0,
        head_compute=model.lm_head_compute,
        attention=tuple(
            _rank_attention(group, tp, kv_dtype_bytes)
            for group in (model.attention if stage is None else _grouped(layers))
        ),
        expert_ranks=tp if expert_parallel and expert_layers else 1,
    )


def _moe_layers(layers: Sequence[LayerSpec]) -> int:
    return sum(any(group.split == "experts" for group in layer.weights) for layer in layers)


def _grouped(layers: Sequence[LayerSpec]) -> list[AttentionLayers]:
    """Alike layers together, in the order of their first appearance."""
    counts: dict[AttentionLayers, int] = {}
    for layer in layers:
        counts[layer.attention] = counts.get(layer.attention, 0) + layer.attention.count
    return [replace(shape, count=count) for shape, count in counts.items()]


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
