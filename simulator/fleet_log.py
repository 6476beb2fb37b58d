"""What happened to the replicas of a fleet, beside what they served."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class FleetLog:
    """Counts, and how many replicas there were when.

    Attributes:
        failures: of replicas that were up.
        rerouted: requests that a failed replica had and that went on elsewhere, each time they did.
        interrupted: of these, those that ran; each counts as a preemption of the request too.
        lost_kv_tokens: tokens whose KV was lost (of swapped requests too), which are computed again, or found in
            another replica's cache.
        held: requests that waited at the router because no replica was up, each once.
        starts: (from, until) ps of start-ups that an autoscaler asked for, which are paid for.
        scaling: (time ps, replicas up, replicas starting, replicas that serve what they have and take no more), an
            entry a change; up are those that take requests.
    """

    failures: int = 0
    rerouted: int = 0
    interrupted: int = 0
    lost_kv_tokens: int = 0
    held: int = 0
    starts: list[tuple[int, int]] = field(default_factory=list)
    scaling: list[tuple[int, int, int, int]] = field(default_factory=list)
