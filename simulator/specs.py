"""What a GPU and a model are, as numbers: bytes, parameters and FLOPs. Pure arithmetic, standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

# Bits a value takes in memory, scales not counted. 4-bit formats add scales: see model_config/quantization.py.
DTYPE_BITS: dict[str, int] = {
    "float32": 32,
    "fp32": 32,
    "bfloat16": 16,
    "bf16": 16,
    "float16": 16,
    "fp16": 16,
    "half": 16,
    "fp8": 8,
    "fp8_e4m3": 8,
    "fp8_e5m2": 8,
    "int8": 8,
    "int4": 4,
    "fp4": 4,
    "nvfp4": 4,
    "mxfp4": 4,
}

AttentionKind = Literal["full", "sliding", "chunked", "mla", "linear", "none", "cross"]
Split = Literal["sharded", "kv", "experts", "replicated"]


@dataclass(frozen=True)
class GpuSpec:
    """One GPU. Rates are peaks of the data sheet, dense, in one direction.

    Attributes:
        memory_bytes: total as the driver reports it (nvidia-smi), not the marketing figure.
        visible_bytes: total as CUDA reports it to a process, what engines multiply by their fraction; None = unknown.
        flop_per_s: dense peak by compute dtype ("bf16", "fp16", "fp8", "int8", "fp32"); absent = not supported.
        link_bytes_per_s: GPU to GPU, one direction, per GPU; None = through PCIe.
        sources: field -> where the number was found, with a date.
    """

    name: str
    memory_bytes: int
    bandwidth_bytes_per_s: float
    flop_per_s: dict[str, float]
    link_bytes_per_s: float | None
    pcie_bytes_per_s: float
    usd_per_hour: float | None
    sources: dict[str, str] = field(default_factory=dict)
    visible_bytes: int | None = None


@dataclass(frozen=True)
class AttentionLayers:
    """A group of layers that keep the same amount of KV cache.

    Attributes:
        count: layers in the group.
        kind: full | sliding | chunked | mla keep KV per token; linear keeps a fixed state per sequence; cross keeps
            KV per image and not per text token; none keeps nothing.
        kv_heads, head_dim_k, head_dim_v: a token stores kv_heads · (head_dim_k + head_dim_v) values a layer. MLA:
            one head of kv_lora_rank + rope values, head_dim_v = 0.
        window_tokens: of sliding and chunked layers.
        state_bytes: of linear layers: bytes a sequence and layer, whatever the length.
        latent_rank: of MLA: kv_lora_rank, the part of the latent that doubles as V.
        indexer_bytes: of sparse MLA (DeepSeek-V3.2): bytes a token and layer of the indexer's own K cache.
        prefill_head_dim_qk, prefill_head_dim_v: of MLA: prompts attend as ordinary heads of these sizes, to K and V
            projected up from the latent; None = in the form that the cache keeps (all others, sparse MLA).
    """

    count: int
    kind: AttentionKind
    query_heads: int
    kv_heads: int
    head_dim_k: int
    head_dim_v: int
    window_tokens: int | None = None
    state_bytes: int = 0
    latent_rank: int = 0
    indexer_bytes: int = 0
    prefill_head_dim_qk: int | None = None
    prefill_head_dim_v: int | None = None

    @property
    def values_per_token(self) -> int:
        """Values a token stores in one layer of the group (0 where nothing is kept per token)."""
        if self.kind in ("linear", "none", "cross"):
            return 0
        return self.kv_heads * (self.head_dim_k + self.head_dim_v)

    def flops_per_context_token(self) -> int:
        """FLOPs of QK^T and PV in one layer, for one query token against one token of context."""
        if self.kind in ("linear", "none", "cross"):
            return 0
        head_dim_v = self.latent_rank if self.kind == "mla" else self.head_dim_v
        return 2 * self.query_heads * (self.head_dim_k + head_dim_v)

    @property
    def expanded_values_per_token(self) -> int:
        """Values of K and V of one token that prompts attend to in one layer, where they are projected up (else 0)."""
        return self.query_heads * ((self.prefill_head_dim_qk or 0) + (self.prefill_head_dim_v or 0))

    def flops_per_prefill_pair(self) -> int:
        """FLOPs of QK^T and PV in one layer, for one query token of a prompt against one token of context."""
        return 2 * self.expanded_values_per_token or self.flops_per_context_token()

    def up_projection_flops(self) -> int:
        """FLOPs in one layer that make K (but for its rotary part) and V of one cached token from its latent."""
        if self.prefill_head_dim_qk is None:
            return 0
        rope = self.head_dim_k - self.latent_rank
        made = self.prefill_head_dim_qk - rope + (self.prefill_head_dim_v or 0)
        return 2 * self.latent_rank * self.query_heads * made


@dataclass(frozen=True)
class WeightGroup:
    """Weights of one layer that tensor parallelism treats alike.

    ``sharded`` is divided by tp; ``kv`` (K and V projections) by min(tp, KV heads); ``experts`` like sharded;
    ``replicated`` stands whole on every rank. ``compute`` is the type that its matrix products run in on a GPU that has
    it ("fp8", "int8", "fp4", "fp32"); "" = the model's 16-bit type, to which weights of fewer bits are widened.
    """

    split: Split
    parameters: int
    bytes: int
    quantizable: bool
    compute: str = ""

    def ways(self, tensor_parallel_size: int, kv_heads: int) -> int:
        """Into how many parts tensor parallelism divides it, in a layer with so many KV heads."""
        if self.split == "replicated":
            return 1
        return min(tensor_parallel_size, max(1, kv_heads)) if self.split == "kv" else tensor_parallel_size


@dataclass(frozen=True)
class LayerSpec:
    """One layer: what it keeps per token and what it weighs. The unit that pipeline parallelism moves."""

    attention: AttentionLayers
    weights: tuple[WeightGroup, ...]


@dataclass(frozen=True)
class ModelSpec:
    """A decoder's shape. Parameters are those of the language model (a vision tower is named in ``notes``).

    Attributes:
        parameters, active_parameters: total, and those that one token passes (MoE); the LM head is counted once where
            it is tied to the embedding.
        dense_linear_parameters: linear layers that every token passes: attention, dense MLPs, shared experts, routers.
        weight_bytes: as an engine holds them: quantised where the config says so, float32 checkpoints in 16 bit.
        linear_weight_bytes_per_parameter: of the linear layers, scales included.
        layers: every layer in order; ``attention`` is the same, grouped.
        intermediate_size: the widest MLP activation a token has (for activation memory).
        lm_head_compute: as ``WeightGroup.compute``.
        other_bytes: of what stands outside the layers: final norm, projections beside the embedding.
        kv_cache_dtype: what the checkpoint asks the KV cache to be kept in; None = nothing.
        parameters_exact: False where the KV shapes are sure but some weights are estimated (see ``notes``).
        encoder_parameters: of vision and audio encoders, estimated and in no other count; engines load them too.
        notes: what was defaulted, or left out, and why.
    """

    name: str
    source: str
    architecture: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    max_model_len: int
    attention: tuple[AttentionLayers, ...]
    parameters: int
    active_parameters: int
    embedding_parameters: int
    lm_head_parameters: int
    tied_embeddings: bool
    dense_linear_parameters: int
    num_experts: int
    experts_per_token: int
    parameters_per_expert: int
    num_moe_layers: int
    weight_bytes: int
    linear_weight_bytes_per_parameter: float
    expert_weight_bytes_per_parameter: float
    dtype: str
    layers: tuple[LayerSpec, ...] = field(default=(), repr=False)
    intermediate_size: int = 0
    embedding_bytes: int = 0
    lm_head_bytes: int = 0
    lm_head_compute: str = ""
    other_bytes: int = 0
    kv_cache_dtype: str | None = None
    parameters_exact: bool = True
    encoder_parameters: int = 0
    notes: tuple[str, ...] = ()

    def kv_bytes_per_token(self, kv_dtype_bytes: float = 2.0) -> int:
        """KV bytes of a token that every attention layer still holds (indexer caches of sparse MLA apart)."""
        return _bytes(sum(g.count * g.values_per_token for g in self.attention), kv_dtype_bytes)

    def kv_bytes_per_token_full_layers(self, kv_dtype_bytes: float = 2.0) -> int:
        """KV bytes of a token in the layers without a window: the growth of a long sequence per token."""
        full = (g for g in self.attention if g.kind in ("full", "mla"))
        return _bytes(sum(g.count * g.values_per_token for g in full), kv_dtype_bytes)

    def sliding_cap_bytes(self, kv_dtype_bytes: float = 2.0) -> int:
        """The most that all sliding and chunked layers together keep of one sequence: sum of window · bytes."""
        values = sum(g.count * g.values_per_token * (g.window_tokens or 0) for g in self.attention)
        return _bytes(values, kv_dtype_bytes)

    def indexer_bytes_per_token(self) -> int:
        """Bytes a token adds to the indexer caches of sparse MLA layers."""
        return sum(g.count * g.indexer_bytes for g in self.attention)

    def state_bytes_per_sequence(self) -> int:
        """Fixed bytes a sequence holds in recurrent layers."""
        return sum(g.count * g.state_bytes for g in self.attention)

    def attention_flops_per_context_token(self) -> float:
        """QK^T and PV FLOPs for one query token against one context token, over all layers without a window."""
        return float(sum(g.count * g.flops_per_context_token() for g in self.attention if g.kind in ("full", "mla")))

    def linear_flops_per_token(self) -> float:
        """FLOPs of the linear layers one token passes, LM head apart: 2 · parameters."""
        experts = self.num_moe_layers * self.experts_per_token * self.parameters_per_expert
        return 2.0 * (self.dense_linear_parameters + experts)


@dataclass(frozen=True)
class Parallelism:
    """GPUs of one replica are tensor_parallel_size · pipeline_parallel_size.

    With ``enable_expert_parallel`` the tensor-parallel ranks hold whole experts instead of a slice of each (MoE).
    """

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    replicas: int = 1
    enable_expert_parallel: bool = False

    @property
    def gpus(self) -> int:
        return self.gpus_per_replica * self.replicas

    @property
    def gpus_per_replica(self) -> int:
        return self.tensor_parallel_size * self.pipeline_parallel_size


def _bytes(values: int, bytes_per_value: float) -> int:
    """Exact for the byte sizes in use (0.5, 1, 2, 4): no float rounding on large products."""
    return int(values * Fraction(bytes_per_value))


def model_from_config(config: Mapping[str, Any], *, name: str, source: str) -> ModelSpec:
    """A ModelSpec from the content of a Hugging Face ``config.json``.

    Raises:
        InputError: the model type is unknown, or a field that its arithmetic needs is missing or impossible.
    """
    from simulator.model_config.build import build_model  # builds on this module's dataclasses

    return build_model(config, name=name, source=source)
