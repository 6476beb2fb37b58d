"""Classes of requests that share a server: chat beside batch, each with its own lengths, SLO and priority."""

from __future__ import annotations

from dataclasses import dataclass, field

from workloads.arrivals import Arrivals
from workloads.lengths import Lengths, Pairs
from workloads.prefixes import SharedPrefix
from workloads.sessions import Sessions

_BY_KIND = {"discriminator": "kind"}


@dataclass(frozen=True)
class ClassConfig:
    """One class. What it leaves out it takes from the workload around it.

    Attributes:
        weight: its share of the workload's common arrivals, against the other classes' weights (default 1).
        arrivals: a process of its own beside the common one; then it has no weight.
        num_requests: of its own arrivals at most this many (default: as many as the workload has room for).
        slo: metric key such as ``ttft_ms`` to {"p99": limit}.
        priority: lower is more important (vLLM).
    """

    name: str
    weight: float | None = None
    slo: dict[str, dict[str, float]] = field(default_factory=dict)
    priority: int = 0
    num_requests: int | None = None
    arrivals: Arrivals | None = field(default=None, metadata=_BY_KIND)
    prompt_tokens: Lengths | None = field(default=None, metadata=_BY_KIND)
    output_tokens: Lengths | None = field(default=None, metadata=_BY_KIND)
    lengths: Pairs | None = None
    prefix: SharedPrefix | None = None
    session: Sessions | None = None
