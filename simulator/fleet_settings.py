"""The ``fleet`` section of a scenario: groups of replicas that differ, what happens to replicas, an autoscaler."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, MinLen

Seconds = Annotated[float, Ge(0), Le(10_000_000)]  # the clock of 64-bit picoseconds ends after 106 days


@dataclass(frozen=True)
class GroupSettings:
    """Replicas of one kind. What a group does not say is the scenario's own.

    Attributes:
        gpu: a catalogue name, or inline numbers as in the scenario's ``gpu``.
        parallelism, engine: keys that differ from the scenario's sections of that name.
    """

    name: str
    replicas: Annotated[int, Ge(1), Le(10_000)] = 1
    gpu: str | dict[str, Any] | None = None
    parallelism: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FailEvent:
    """The replica is gone at once with all KV; its requests go on elsewhere. It is back, empty, later or never."""

    at_s: Seconds
    replica: Annotated[int, Ge(0)]
    restart_after_s: Annotated[float, Gt(0), Le(10_000_000)] | None = None
    kind: Literal["fail"] = "fail"


@dataclass(frozen=True)
class StartEvent:
    """The replica takes requests from now on; before its first start it is absent."""

    at_s: Seconds
    replica: Annotated[int, Ge(0)]
    kind: Literal["start"] = "start"


@dataclass(frozen=True)
class StopEvent:
    """The replica takes no more requests, and is gone when those that it has have ended."""

    at_s: Seconds
    replica: Annotated[int, Ge(0)]
    kind: Literal["stop"] = "stop"


@dataclass(frozen=True)
class AutoscalerSettings:
    """Every ``interval_s``, ceil(replicas * metric / target) replicas are wanted, within the limits.

    Attributes:
        metric: ``queue``: waiting requests per replica; ``kv_utilization``: the mean share of KV slots held.
        target: waiting requests, or a share of 1.
    """

    target: Annotated[float, Gt(0)]
    max_replicas: Annotated[int, Ge(1), Le(10_000)]
    metric: Literal["queue", "kv_utilization"] = "queue"
    min_replicas: Annotated[int, Ge(1), Le(10_000)] = 1
    interval_s: Annotated[float, Ge(0.001), Le(1_000_000)] = 15.0


@dataclass(frozen=True)
class FleetSettings:
    """Replicas are numbered from 0, group after group.

    Attributes:
        startup_s: from the autoscaler's decision to the first request that a new replica takes.
    """

    groups: Annotated[tuple[GroupSettings, ...], MinLen(1)] | None = None
    startup_s: Seconds = 0.0
    events: tuple[FailEvent | StartEvent | StopEvent, ...] = ()
    autoscaler: AutoscalerSettings | None = None
