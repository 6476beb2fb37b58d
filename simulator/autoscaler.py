"""How many replicas an autoscaler wants, and when it may stop looking."""

from __future__ import annotations

import math
from collections.abc import Sequence

from simulator.fleet_events import Autoscaler
from simulator.fleet_replica import FleetReplica

PATIENCE_LOOKS = 8
"""Looks at a fleet in which nothing has moved, beyond one a replica, after which nothing ever will."""


def metric_of(scaler: Autoscaler, up: Sequence[FleetReplica], starting: int, held: int) -> float:
    """The mean of the metric over the replicas that are up or starting, at least one.

    Those that are starting have no load yet, and so are not asked for twice. ``held`` requests wait at the router.
    """
    if scaler.metric == "kv_utilization":
        total = sum(replica.used_share() for replica in up)
    else:
        total = held + sum(replica.waiting() for replica in up)
    return total / (len(up) + starting)


def wanted_replicas(scaler: Autoscaler, metric: float, current: int) -> int:
    """⌈current · metric / target⌉ within the limits."""
    wanted = math.ceil(current * metric / scaler.target)
    return min(max(wanted, scaler.min_replicas), scaler.max_replicas)


class Stillness:
    """Counts looks at a fleet in which nothing can move but the fleet itself: it must not be looked at for ever.

    Such a fleet is in a dead-lock, or all that it has ended; an autoscaler might still start and stop replicas in turn.
    """

    def __init__(self, scaler: Autoscaler) -> None:
        self._limit = scaler.max_replicas + PATIENCE_LOOKS
        self._moved = -1
        self._looks = 0

    def lasts(self, moved: int, *, resting: bool, nothing_comes: bool) -> bool:
        """Whether it is time to give up.

        Args:
            moved: arrivals and ends so far.
            resting: no replica computes.
            nothing_comes: the clock knows of nothing that will happen.
        """
        if moved != self._moved or not resting:
            self._moved, self._looks = moved, 0
        self._looks += nothing_comes
        return self._looks > self._limit
