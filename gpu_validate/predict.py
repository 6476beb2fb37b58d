"""Simulated decode steps beside measured ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gpu_validate.measurements import Point
from gpu_validate.residuals import Residual, document, summaries
from gpu_validate.step_prediction import step_seconds, without_host
from simulator.calibration import Calibration
from simulator.errors import InputError
from simulator.specs import GpuSpec, ModelSpec

GOAL = 0.05
"""Whole steps that the fit did not see are to be predicted within this share."""


@dataclass(frozen=True)
class Prediction:
    """One calibration's predictions of measured steps, less a server's host (see ``step_prediction``)."""

    calibration: str
    gpu: str
    rows: tuple[Residual, ...]

    @property
    def unseen(self) -> tuple[Residual, ...]:
        """Of steps that the fit did not see."""
        return tuple(row for row in self.rows if row.held_out)

    @property
    def met(self) -> bool:
        """Whether every step that the fit did not see lies within the goal."""
        return all(abs(row.error) <= GOAL for row in self.unseen)

    def text(self) -> str:
        """A line a step, then the worst."""
        lines = [f"{'step':<76}{'measured':>12}{'simulated':>12}{'error':>8}"]
        for row in self.rows:
            unseen = "*" if row.held_out else " "
            times = f"{row.measured_us / 1e3:>9.3f} ms{row.predicted_us / 1e3:>9.3f} ms"
            lines.append(f"{unseen} {row.label.removeprefix('step '):<74}{times}{row.error:>+8.1%}")
        for total in summaries(self.unseen):
            verdict = "within" if self.met else "beyond"
            lines.append(
                f"* not seen by the fit: {total.points} steps, median error {total.median_error:.1%}, worst "
                f"{total.worst_error:.1%}: {verdict} {GOAL:.0%}"
            )
        return "\n".join(lines)

    def as_document(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        head = {"schema": "kvplan-gpu-prediction", "schema_version": 1, "calibration": self.calibration}
        return {**head, "gpu": self.gpu, "goal": GOAL, "met": self.met, **document(self.rows)}


def predict(points: Iterable[Point], calibration: Calibration, model: ModelSpec, gpu: GpuSpec) -> Prediction:
    """Raises InputError where no step was measured."""
    bare, rows = without_host(calibration), []
    for point in points:
        if point.kind == "step":
            predicted = 1e6 * step_seconds(bare, model, gpu, point.shape)
            rows.append(Residual("step", point.label, 1e6 * point.seconds, predicted, point.held_out))
    if not rows:
        raise InputError("the table holds no whole step", remedy="measure with calibrate, without --no-steps")
    return Prediction(calibration.name, gpu.name, tuple(rows))
