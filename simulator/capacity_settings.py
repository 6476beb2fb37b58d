"""The ``capacity`` section of a scenario: what may be rented, and what it must reach; ``kvplan run`` ignores it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le

from simulator.engine_settings import Count

Positive = Annotated[float, Gt(0)]
Share = Annotated[float, Gt(0), Le(1)]


@dataclass(frozen=True)
class CapacitySettings:
    """Candidates are all combinations of the lists, and beside them each patch of ``candidates``.

    What is left out is the scenario's own; ``tensor_parallel_size`` left out is every power of two up to 8 that divides
    the heads, where neither the scenario nor a list states it.

    Attributes:
        rate_rps: what must be served; None = the workload's own rate.
        goodput_share: share of the requests that must be within every limit of the SLO (in addition to its statistics).
        max_rejected_share: requests that a deployment can never serve (longer than its context) may be so many.
        gpus: catalogue names; ``usd_per_gpu_hour``: their prices, in place of the catalogue's examples.
        replicas: ``auto`` finds the fewest that serve the rate; a list is of deployments of that size.
        over: further settings by dotted key, each with its values.
        candidates: further candidates, each a mapping of dotted keys to values.
        max_gpus: of a whole deployment.
        requests_per_probe: of each simulation; None = the workload's own number.
    """

    rate_rps: Positive | None = None
    budget_usd_per_hour: Positive | None = None
    goodput_share: Share | None = None
    max_rejected_share: Annotated[float, Ge(0), Le(1)] = 0.01
    gpus: tuple[str, ...] = ()
    usd_per_gpu_hour: dict[str, Annotated[float, Ge(0)]] = field(default_factory=dict)
    tensor_parallel_size: tuple[Count, ...] = ()
    pipeline_parallel_size: tuple[Count, ...] = ()
    replicas: Literal["auto"] | tuple[Annotated[int, Ge(1), Le(10_000)], ...] = "auto"
    weight_dtype: tuple[str, ...] = ()
    kv_cache_dtype: tuple[str, ...] = ()
    over: dict[str, list[Any]] = field(default_factory=dict)
    candidates: tuple[dict[str, Any], ...] = ()
    max_gpus: Annotated[int, Ge(1), Le(10_000)] = 1024
    requests_per_probe: Annotated[int, Ge(1), Le(1_000_000)] | None = None
