"""A decoder written out: its layers, their linear maps by checkpoint name, and their other parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simulator.specs import AttentionLayers, Split


@dataclass(frozen=True)
class Linear:
    """A linear map of a layer.

    Attributes:
        name: within its layer, as checkpoints spell it ("self_attn.q_proj"); quantisation rules match on it.
        copies, active: experts have many copies, of which a token passes ``active``.
        quantizable: routers and gates are kept in 16 bit by every engine.
    """

    name: str
    inputs: int
    outputs: int
    bias: bool = False
    split: Split = "sharded"
    copies: int = 1
    active: int = 1
    quantizable: bool = True

    @property
    def matrix(self) -> int:
        """Entries of one copy's matrix."""
        return self.inputs * self.outputs

    @property
    def bias_values(self) -> int:
        return self.outputs if self.bias else 0


@dataclass(frozen=True)
class Layer:
    """One decoder layer: ``other`` counts norms and other vectors, which stand whole on every rank."""

    attention: AttentionLayers
    linears: tuple[Linear, ...]
    other: int


@dataclass(frozen=True)
class Blueprint:
    """A whole decoder. ``embedding`` counts token (and learned position) embeddings; ``other`` the final norm."""

    layers: tuple[Layer, ...]
    hidden_size: int
    vocab_size: int
    max_model_len: int
    tied: bool
    embedding: int
    other: int
    lm_head_bias: bool = False
    projections: tuple[Linear, ...] = ()  # outside the layers, e.g. OPT-350m's project_in
    prefix: str = "model.layers."
    experts: int = 0
    experts_per_token: int = 0
    notes: tuple[str, ...] = ()
    encoder: int = 0  # parameters of vision and audio encoders, estimated
    parameters_exact: bool = True  # False: KV shapes are sure, some weights of the layers are not

    def linears(self) -> Iterator[tuple[str, Linear]]:
        """(checkpoint name, linear) of every layer, in order."""
        for index, layer in enumerate(self.layers):
            for linear in layer.linears:
                yield f"{self.prefix}{index}.{linear.name}", linear
