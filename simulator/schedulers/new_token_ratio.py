"""How much of their output limit SGLang believes that running requests will use."""

from __future__ import annotations

from collections.abc import Sequence

INITIAL = 0.7
FLOOR_SHARE = 0.14
DECAY_STEPS = 600
RETRACT_STEPS = 20
"""Decode steps that the remaining requests should last for after a retraction."""


class NewTokenRatio:
    """The estimate and its life (SGLang 0.5.23, ``NewTokenRatioTracker``).

    It falls a little with every decode step, rises at a retraction, and starts anew when the server is idle. It is a
    float, moved by one subtraction a step as the server does it, so that k steps at once and k single steps give the
    same bits; below the floor nothing moves any more.
    """

    __slots__ = ("current", "decay", "floor", "initial")

    def __init__(self, conservativeness: float) -> None:
        self.initial = min(INITIAL * conservativeness, 1.0)
        self.floor = min(self.initial * FLOOR_SHARE, 1.0)
        self.decay = (self.initial - self.floor) / DECAY_STEPS
        self.current = self.initial

    def reset(self) -> None:
        """The server is idle."""
        self.current = self.initial

    def decoded(self, steps: int) -> None:
        """So many decode steps ran without a retraction."""
        current, decay, floor = self.current, self.decay, self.floor
        for _ in range(steps):
            if current == floor:
                break
            current = max(current - decay, floor)
        self.current = current

    def retracted(self, generated: Sequence[int], limits: Sequence[int]) -> None:
        """After a retraction: what the requests that remain have generated, and may generate at most."""
        wanted = sum(generated) + RETRACT_STEPS * len(generated)
        self.current = min(1.0, wanted / (sum(limits) + 1))
