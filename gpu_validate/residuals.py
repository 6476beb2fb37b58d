"""How far a fit lies from what was measured, point by point and in sum."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Residual:
    """One point. ``error`` is predicted over measured, less one."""

    kind: str
    label: str
    measured_us: float
    predicted_us: float
    held_out: bool

    @property
    def error(self) -> float:
        return self.predicted_us / self.measured_us - 1.0


@dataclass(frozen=True)
class Summary:
    """Of the points of one kind, fitted or held out. Errors are sizes, as shares."""

    kind: str
    held_out: bool
    points: int
    median_error: float
    worst_error: float
    worst_label: str


def summaries(residuals: Iterable[Residual]) -> tuple[Summary, ...]:
    """Kinds in the order of their first point; fitted points before those held out."""
    rows = list(residuals)
    found = []
    for kind in dict.fromkeys(row.kind for row in rows):
        for held_out in (False, True):
            some = [row for row in rows if row.kind == kind and row.held_out == held_out]
            if some:
                worst = max(some, key=lambda row: abs(row.error))
                median = float(np.median([abs(row.error) for row in some]))
                found.append(Summary(kind, held_out, len(some), median, abs(worst.error), worst.label))
    return tuple(found)


def text(residuals: Iterable[Residual]) -> str:
    """A table of the summaries."""
    lines = [f"{'points':<28}{'count':>6}{'median':>9}{'worst':>9}  where"]
    for row in summaries(residuals):
        name = f"{row.kind} ({'held out' if row.held_out else 'fitted'})"
        error = f"{row.median_error:>9.1%}{row.worst_error:>9.1%}"
        lines.append(f"{name:<28}{row.points:>6}{error}  {row.worst_label}")
    return "\n".join(lines)


def document(residuals: Iterable[Residual]) -> dict[str, Any]:
    """As plain values, for JSON."""
    rows = list(residuals)
    points = [{**asdict(row), "error": row.error} for row in rows]
    return {"summary": [asdict(row) for row in summaries(rows)], "points": points}
