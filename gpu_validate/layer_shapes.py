"""A model's matrix products and attention, as one tensor-parallel rank runs them in a decode step."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.errors import InputError
from simulator.specs import AttentionLayers, LayerSpec, ModelSpec


@dataclass(frozen=True)
class Gemm:
    """[rows, inputs] times [inputs, outputs]: 16-bit weights of inputs · outputs numbers, read once."""

    name: str
    inputs: int
    outputs: int

    @property
    def parameters(self) -> int:
        return self.inputs * self.outputs

    def flops(self, rows: int) -> float:
        return 2.0 * self.parameters * rows

    def moved_bytes(self, rows: int, weight_bytes: float = 2.0) -> float:
        """Weights, inputs and outputs once."""
        return weight_bytes * self.parameters + 2.0 * rows * (self.inputs + self.outputs)


@dataclass(frozen=True)
class LayerShapes:
    """One rank's decoder layer.

    Attributes:
        mlp_inputs: of the down projection on this rank: what the activation function leaves.
        gated: the MLP has two projections up, one of which passes the activation function.
        window: tokens that a query sees; None for all.
    """

    hidden_size: int
    query_heads: int
    kv_heads: int
    head_dim: int
    mlp_inputs: int
    gated: bool
    window: int | None

    @property
    def gemms(self) -> tuple[Gemm, ...]:
        """In the order of a step."""
        heads = self.query_heads * self.head_dim
        return (
            Gemm("qkv", self.hidden_size, heads + 2 * self.kv_heads * self.head_dim),
            Gemm("output", heads, self.hidden_size),
            Gemm("up", self.hidden_size, (2 if self.gated else 1) * self.mlp_inputs),
            Gemm("down", self.mlp_inputs, self.hidden_size),
        )

    @property
    def group(self) -> int:
        """Query heads a KV head."""
        return self.query_heads // self.kv_heads


@dataclass(frozen=True)
class ModelShapes:
    """One rank of a model: its layers in order, and the LM head."""

    name: str
    tensor_parallel_size: int
    layers: tuple[LayerShapes, ...]
    head: Gemm

    @property
    def distinct_gemms(self) -> tuple[Gemm, ...]:
        """Each shape once, LM head last."""
        found = {(g.inputs, g.outputs): g for layer in self.layers for g in layer.gemms}
        return (*found.values(), self.head)


def model_shapes(model: ModelSpec, tensor_parallel_size: int = 1) -> ModelShapes:
    """Raises InputError for layers that are no plain attention and MLP, or heads that do not divide."""
    if model.num_experts:
        raise _not_timed(model, "its experts' products depend on what the router picks")
    vocabulary = -(-model.vocab_size // tensor_parallel_size)
    return ModelShapes(
        model.name,
        tensor_parallel_size,
        tuple(_layer(model, layer, tensor_parallel_size) for layer in model.layers),
        Gemm("head", model.hidden_size, vocabulary),
    )


def _layer(model: ModelSpec, layer: LayerSpec, tp: int) -> LayerShapes:
    attention = layer.attention
    if attention.kind not in ("full", "sliding") or attention.head_dim_k != attention.head_dim_v:
        raise _not_timed(model, f"it has layers of kind {attention.kind}")
    kv_heads = max(attention.kv_heads, tp) // tp  # with more ranks than KV heads each rank has a copy of one
    if attention.query_heads % tp or (attention.kv_heads % tp and tp % attention.kv_heads):
        raise InputError(
            f"{attention.query_heads} query and {attention.kv_heads} KV heads do not divide among {tp} ranks",
            where="tensor_parallel_size",
            remedy="take a divisor of the KV heads",
        )
    width, gated = _mlp(model, layer, attention)
    return LayerShapes(
        model.hidden_size,
        attention.query_heads // tp,
        kv_heads,
        attention.head_dim_k,
        -(-width // tp),
        gated,
        attention.window_tokens,
    )


def _mlp(model: ModelSpec, layer: LayerSpec, attention: AttentionLayers) -> tuple[int, bool]:
    """(width, gated), from what its weights leave beside those of attention; biases are below half a percent."""
    sharded = sum(group.parameters for group in layer.weights if group.split == "sharded")
    rest = sharded - 2 * model.hidden_size * attention.query_heads * attention.head_dim_k
    for gated in (True, False):
        # ``intermediate_size`` is the widest activation: both projections up of a gated MLP.
        width = model.intermediate_size // 2 if gated else model.intermediate_size
        parameters = (3 if gated else 2) * model.hidden_size * width
        if abs(rest - parameters) <= 0.005 * parameters:
            return width, gated
    raise _not_timed(model, "its MLP is neither gated nor plain")


def _not_timed(model: ModelSpec, why: str) -> InputError:
    return InputError(
        f"{model.name} cannot be timed layer by layer: {why}",
        where="--model",
        remedy="take a dense model such as llama-3.1-8b; the numbers of its card serve other models too",
    )
