"""Step time as a line in tokens and context: the clock of the recorded vLLM schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.step_time.base import UNBOUNDED_STEPS, Batch, Segment

PS_PER_MS = 1_000_000_000
PS_PER_US = 1_000_000
PS_PER_NS = 1_000


@dataclass(frozen=True)
class LinearStepTime:
    """duration = base + per_token · tokens + per_context_token · context (see ``Batch``)."""

    base_ps: int
    per_token_ps: int
    per_context_token_ps: int
    kind: Literal["linear"] = "linear"

    @classmethod
    def from_units(cls, base_ms: float, per_token_us: float, per_context_token_ns: float) -> LinearStepTime:
        """From the units of a scenario, each coefficient rounded once to picoseconds."""
        return cls(
            base_ps=round(base_ms * PS_PER_MS),
            per_token_ps=round(per_token_us * PS_PER_US),
            per_context_token_ps=round(per_context_token_ns * PS_PER_NS),
        )

    @property
    def windows(self) -> tuple[int, ...]:
        return ()

    def segment(self, batch: Batch) -> Segment:
        duration = self.base_ps + self.per_token_ps * batch.tokens + self.per_context_token_ps * batch.context
        # Straight to the tuple: a named tuple's own constructor is a Python function, and this is asked every leap.
        return tuple.__new__(Segment, (duration, self.per_context_token_ps * batch.decodes, UNBOUNDED_STEPS))
