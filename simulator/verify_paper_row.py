"""A row of the comparison: what was asked, ours, the paper's, and whether that is near enough."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.verify_paper_predict import Prediction
from simulator.verify_paper_questions import BatchQuestion, NotAsked, Question, ShareQuestion
from simulator.verify_paper_targets import Asked, Target

SHARE_POINTS = 5.0
BATCH_SHARE = 0.15


@dataclass(frozen=True)
class Row:
    """A row of the table: asked, ours, the paper's.

    ``within``: None where no tolerance is stated or a number is missing. ``band``: ours with narrower and with wider
    lengths. ``explained``: ours under other assumptions (``EXPLANATIONS``), by their names.
    """

    asked: Asked
    question: Question | NotAsked
    ours: Prediction
    target: Target
    band: tuple[float, float] | None = None
    explained: dict[str, float] = field(default_factory=dict)

    @property
    def tolerance(self) -> str | None:
        """What is asked of the row, in words."""
        if isinstance(self.question, ShareQuestion):
            return f"{SHARE_POINTS:g} points"
        if isinstance(self.question, BatchQuestion):
            return f"{BATCH_SHARE:.0%}"
        return None

    @property
    def within(self) -> bool | None:
        """Whether ours is within the tolerance."""
        return self.meets(self.ours.value)

    def meets(self, value: float | None) -> bool | None:
        """Whether a number would be within the tolerance of the row."""
        paper = self.target.low
        if value is None or paper is None or self.tolerance is None:
            return None
        if isinstance(self.question, ShareQuestion):
            return abs(value - paper) <= SHARE_POINTS
        return abs(value - paper) <= BATCH_SHARE * paper
