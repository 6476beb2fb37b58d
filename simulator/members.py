"""One replica of a fleet before it runs: its engine's settings, its KV pool and its step-time model."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.allocators.pools import PoolConfig
from simulator.schedulers.config import EngineConfig
from simulator.step_time.base import StepTimeModel


@dataclass(frozen=True)
class Member:
    """What one replica is made of. Members of a fleet may differ in all of it.

    Attributes:
        group: the name under which replicas of a kind are reported; empty where all are of one kind.
        gpus: of this replica, for the hours and the dollars of the fleet.
    """

    engine: EngineConfig
    pool: PoolConfig
    step_time: StepTimeModel
    group: str = ""
    gpus: int = 1
