"""Measures of a sweep over settings without a scale: a bar for each point, the best on top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reports.numbers import plain
from reports.style import INK, LINES, WIDTH_INCHES
from reports.sweep_measures import Measure
from reports.sweep_points import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_BARS = 30


@dataclass(frozen=True)
class Bars:
    """A drawing: the points by name, the best first, and a panel of bars for each measure."""

    name: str
    title: str
    caption: str
    points: tuple[tuple[str, Point], ...]
    measures: tuple[Measure, ...]
    marked: tuple[Point, ...] = ()

    def size(self) -> tuple[float, float]:
        """Inches."""
        return WIDTH_INCHES, len(self.measures) * (0.7 + 0.3 * len(self.points))

    def alt_text(self) -> str:
        """Every bar."""
        parts = [
            f"{measure.label}: " + ", ".join(f"{name} {measure.text(point)}" for name, point in self.points)
            for measure in self.measures
        ]
        return f"Bars. {'. '.join(parts)}."

    def draw(self, figure: Figure) -> None:
        """Fills the figure."""
        panels = figure.subplots(len(self.measures), 1, squeeze=False)[:, 0]
        names = [name for name, _ in self.points]
        for axes, measure in zip(panels, self.measures, strict=True):
            values = [measure.factor * (measure.value(point) or 0.0) for _, point in self.points]
            half = [measure.factor * (measure.half_width(point) or 0.0) for _, point in self.points]
            bars = axes.barh(range(len(names)), values, height=0.66, color=LINES[5][0])
            for bar, (_, point) in zip(bars, self.points, strict=True):
                if point in self.marked:
                    bar.set(facecolor=LINES[0][0], hatch="//")
            if any(half):
                axes.errorbar(values, range(len(names)), xerr=half, fmt="none", ecolor=INK, capsize=3, linewidth=1.2)
            room = max([*(v + h for v, h in zip(values, half, strict=True)), 1e-9])
            for row, (value, wide, (_, point)) in enumerate(zip(values, half, self.points, strict=True)):
                words = measure.text(point) if point.ran else "failed"
                axes.annotate(words, (value + wide, row), (4, 0), textcoords="offset points", va="center", fontsize=9)
            axes.set_xlim(0, 1.22 * room)
            axes.set_yticks(range(len(names)), names)
            axes.xaxis.set_major_formatter(lambda value, _: plain(value))
            axes.grid(axis="y", visible=False)
            axes.invert_yaxis()
            axes.set_title(measure.label)
