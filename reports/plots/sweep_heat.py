"""Measures of a sweep over two numeric settings: a map each, and one of what binds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reports.numbers import plain
from reports.style import INK, LINES, WIDTH_INCHES
from reports.sweep_data import Axis
from reports.sweep_measures import Measure
from reports.sweep_points import Point
from reports.tables import limit_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_COLUMNS_WITH_TEXT = 9
MOST_TICKS = 10
STEPS = 8
"""Colours of a map: few enough to read a value off the scale beside it."""

WIDE_RANGE = 30.0
HATCHES = ("", "//", "..", "xx", "--", "\\\\")
NO_RUN = "#9A9A9A"


@dataclass(frozen=True)
class Maps:
    """A drawing: one map for each measure, above each other, and at last the binding limits.

    Attributes:
        across, up: the two settings.
        points: of which no two share a place.
        marked: the best points, framed.
    """

    name: str
    title: str
    caption: str
    across: Axis
    up: Axis
    points: tuple[Point, ...]
    measures: tuple[Measure, ...]
    marked: tuple[Point, ...] = ()
    limits: bool = True

    def size(self) -> tuple[float, float]:
        """Inches."""
        rows = len(self.up.values)
        height = min(max(1.3 + 0.26 * rows, 2.1), 4.2)
        return WIDTH_INCHES, 0.5 + height * (len(self.measures) + self.limits)

    def alt_text(self) -> str:
        """Least and most of each map, and where."""
        parts = []
        for measure in self.measures:
            found = [(value, point) for point in self.points if (value := measure.value(point)) is not None]
            if found:
                least, most = min(found, key=lambda pair: pair[0]), max(found, key=lambda pair: pair[0])
                parts.append(f"{measure.label}: least {self._said(measure, *least)}, most {self._said(measure, *most)}")
        if self.limits:
            counts: dict[str, int] = {}
            for point in self.points:
                for limit in point.texts("binding_limit")[:1]:
                    counts[limit] = counts.get(limit, 0) + 1
            parts.append("binding limit: " + ", ".join(f"{limit_name(k)} at {v} points" for k, v in counts.items()))
        return f"Maps over {self.across.path} (across) and {self.up.path} (up). {'. '.join(parts)}."

    def _said(self, measure: Measure, value: float, point: Point) -> str:
        return (
            f"{measure.write(value)} at {self.across.label} {plain(point.place[self.across.path])} and "
            f"{self.up.label} {plain(point.place[self.up.path])}"
        )

    def draw(self, figure: Figure) -> None:
        """Fills the figure."""
        panels = figure.subplots(len(self.measures) + self.limits, 1, squeeze=False)[:, 0]
        for axes, measure in zip(panels, self.measures, strict=False):
            self._map(figure, axes, measure)
        if self.limits:
            self._limits(panels[-1])
            handles, labels = panels[-1].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=4, handlelength=1.4)
        for axes in panels:
            self._frame(axes)
        panels[-1].set_xlabel(self.across.label)

    def _cell(self, point: Point) -> tuple[int, int]:
        return self._columns.index(point.place[self.across.path]), self._rows.index(point.place[self.up.path])

    @property
    def _columns(self) -> list[Any]:
        return sorted(self.across.values)

    @property
    def _rows(self) -> list[Any]:
        return sorted(self.up.values)

    def _map(self, figure: Figure, axes: Axes, measure: Measure) -> None:
        import numpy as np
        from matplotlib import colormaps
        from matplotlib.colors import BoundaryNorm

        grid = np.full((len(self._rows), len(self._columns)), np.nan)
        for point in self.points:
            value = measure.value(point)
            if value is not None:
                column, row = self._cell(point)
                grid[row, column] = measure.factor * value
        axes.set_title(measure.label)
        self._failed(axes)
        if not np.isfinite(grid).any():
            return
        bounds = _bounds(float(np.nanmin(grid)), float(np.nanmax(grid)), even=not measure.less_is_better)
        colours = colormaps["cividis_r" if measure.less_is_better else "cividis"].resampled(len(bounds) - 1)
        norm = BoundaryNorm(bounds, len(bounds) - 1)
        mesh = axes.pcolormesh(np.ma.masked_invalid(grid), cmap=colours, norm=norm, edgecolors="none", zorder=1)
        figure.colorbar(mesh, ax=axes, format=lambda value, _: plain(float(f"{value:.3g}")), fraction=0.06, pad=0.02)
        if len(self._columns) <= MOST_COLUMNS_WITH_TEXT:
            for (row, column), value in np.ndenumerate(grid):
                if np.isfinite(value):
                    red, green, blue, _ = colours(norm(value))
                    dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
                    place = (column + 0.5, row + 0.5)
                    words = _brief(float(value))
                    colour = "white" if dark else "black"
                    axes.text(*place, words, ha="center", va="center", fontsize=8.5, color=colour)

    def _limits(self, axes: Axes) -> None:
        from matplotlib.patches import Rectangle

        known = list(dict.fromkeys(limit for point in self.points for limit in point.texts("binding_limit")[:1]))
        for index, limit in enumerate(known):
            colour, hatch = LINES[index % len(LINES)][0], HATCHES[index % len(HATCHES)]
            places = [self._cell(point) for point in self.points if point.texts("binding_limit")[:1] == [limit]]
            for number, place in enumerate(places):
                label = limit_name(limit) if number == 0 else None
                look = Rectangle(place, 1, 1, facecolor=colour, hatch=hatch, alpha=0.75, linewidth=0, label=label)
                axes.add_patch(look)
        self._failed(axes)
        axes.set_title("what binds")

    def _failed(self, axes: Axes) -> None:
        from matplotlib.patches import Rectangle

        for point in self.points:
            if not point.ran:
                axes.add_patch(
                    Rectangle(self._cell(point), 1, 1, facecolor="none", edgecolor=NO_RUN, hatch="xxx", linewidth=0)
                )

    def _frame(self, axes: Axes) -> None:
        from matplotlib.patches import Rectangle

        for point in self.marked:
            if None not in (point.place[self.across.path], point.place[self.up.path]) and point in self.points:
                column, row = self._cell(point)
                box = (column + 0.06, row + 0.06)
                axes.add_patch(Rectangle(box, 0.88, 0.88, facecolor="none", edgecolor="black", linewidth=3.2, zorder=4))
                axes.add_patch(Rectangle(box, 0.88, 0.88, facecolor="none", edgecolor="white", linewidth=1.4, zorder=5))
        for values, set_ticks in ((self._columns, axes.set_xticks), (self._rows, axes.set_yticks)):
            every = -(-len(values) // MOST_TICKS)
            shown = list(enumerate(values))[::every]
            set_ticks([index + 0.5 for index, _ in shown], [plain(value) for _, value in shown])
        axes.set_xlim(0, len(self._columns))
        axes.set_ylim(0, len(self._rows))
        axes.set_ylabel(self.up.label)
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.spines[:].set_color(INK)


def _bounds(low: float, high: float, *, even: bool) -> list[float]:
    """Edges of the colours: even steps, or else even ratios where the values span a wide range."""
    from matplotlib.ticker import MaxNLocator

    if not even and low > 0 and high / low > WIDE_RANGE:
        ratio = math.log(high / low)
        return [float(f"{low * math.exp(ratio * i / STEPS):.4g}") for i in range(STEPS + 1)]
    if high <= low:
        return [low - 0.5, low + 0.5] if low else [0.0, 1.0]
    edges = [float(edge) for edge in MaxNLocator(STEPS, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)]
    return edges if len(edges) > 2 else [low, (low + high) / 2, high]


def _brief(value: float) -> str:
    """A number of a cell: 4.53, 64.2, 784, 16.8k."""
    if abs(value) >= 9_999.5:
        return f"{value / 1000:,.0f}k" if abs(value) >= 99_950 else f"{value / 1000:.1f}k"
    return plain(float(f"{value:.3g}"))
