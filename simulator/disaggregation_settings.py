"""The ``disaggregation`` section of a scenario: two pools of replicas, and the link between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le


@dataclass(frozen=True)
class InlineLink:
    """A link that the catalogue lacks; one direction."""

    gb_per_s: Annotated[float, Gt(0)]
    latency_us: Annotated[float, Ge(0)] = 0.0


@dataclass(frozen=True)
class PoolSettings:
    """One pool. What it does not say is the scenario's own.

    Attributes:
        gpu: a catalogue name, or inline numbers as in the scenario's ``gpu``.
        parallelism, engine: keys that differ from the scenario's sections of that name.
        router: in front of this pool.
    """

    replicas: Annotated[int, Ge(1), Le(10_000)] = 1
    gpu: str | dict[str, Any] | None = None
    parallelism: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)
    router: str | None = None


@dataclass(frozen=True)
class DisaggregationSettings:
    """Prompts are computed by one pool, answers by the other.

    Attributes:
        link: the outgoing link of each prefill replica, all its GPUs together: a catalogue name, or inline numbers.
    """

    link: str | InlineLink
    prefill: PoolSettings = field(default_factory=PoolSettings)
    decode: PoolSettings = field(default_factory=PoolSettings)
