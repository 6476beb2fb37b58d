"""Measures of a sweep against one numeric setting: a panel each, a line for every value of the other settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reports.numbers import plain
from reports.style import INK, WIDTH_INCHES, line
from reports.sweep_data import Axis
from reports.sweep_measures import Measure
from reports.sweep_points import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_SERIES = 8
MOST_MARKERS = 24
"""A line with more points has no markers."""

MOST_TICKS = 12
WIDE_RANGE = 30.0
"""From this ratio on between largest and smallest value the axis is logarithmic."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
BAND = 0.18
LEGEND_KEY, LEGEND_CHARACTERS = 8, 76
"""A line of the legend has room for so many characters; so many of them are a key's."""

PANEL_INCHES = 1.95


@dataclass(frozen=True)
class Series:
    """A line: its name and its points along the axis; ``level`` where one point stands for every value."""

    name: str
    points: tuple[Point, ...]
    level: bool


@dataclass(frozen=True)
class Lines:
    """A drawing.

    Attributes:
        axis: along x.
        series, measures: lines and panels.
        marked: the best points, ringed.
    """

    name: str
    title: str
    caption: str
    axis: Axis
    series: tuple[Series, ...]
    measures: tuple[Measure, ...]
    marked: tuple[Point, ...] = ()

    def size(self) -> tuple[float, float]:
        """Inches."""
        rows = -(-len(self.series) // self._legend_columns()) if len(self.series) > 1 else 0
        return WIDTH_INCHES, 0.6 + 0.25 * rows + PANEL_INCHES * len(self.measures)

    def _legend_columns(self) -> int:
        widest = max(len(one.name) for one in self.series) + LEGEND_KEY
        return max(1, min(len(self.series), LEGEND_CHARACTERS // widest))

    def alt_text(self) -> str:
        """The ends of each line and its extremes."""
        parts = []
        for measure in self.measures:
            words = [text for series in self.series if (text := self._said(series, measure))]
            parts.append(f"{measure.title}: {'; '.join(words)}")
        return f"Lines over {self.axis.path}, one panel a measure. {'. '.join(parts)}."

    def _said(self, series: Series, measure: Measure) -> str:
        found = [(point.place[self.axis.path], v) for point in series.points if (v := measure.value(point)) is not None]
        name = f"{series.name} " if series.name else ""
        if not found:
            return ""
        if series.level or len(found) == 1:
            return (
                f"{name}{measure.write(found[0][1])} throughout" if series.level else f"{name}{_at(found[0], measure)}"
            )
        chosen = [found[0], found[-1]]
        least, most = min(found, key=lambda pair: pair[1]), max(found, key=lambda pair: pair[1])
        if least[1] == most[1]:
            return f"{name}{measure.write(least[1])} throughout"
        inner = [
            f"{word} {_at(pair, measure)}" for word, pair in (("least", least), ("most", most)) if pair not in chosen
        ]
        return f"{name}{', '.join([f'from {_at(found[0], measure)} to {_at(found[-1], measure)}', *inner])}"

    def draw(self, figure: Figure) -> None:
        """Fills the figure."""
        panels = figure.subplots(len(self.measures), 1, squeeze=False, sharex=True)[:, 0]
        places = _places(self.axis)
        for axes, measure in zip(panels, self.measures, strict=True):
            seen = [value for series in self.series for value in self._line(axes, series, measure, places)]
            self._ring(axes, measure, places)
            axes.set_title(measure.label)
            _scale(axes, seen, even=not measure.less_is_better)
        bottom = panels[-1]
        ticks = sorted(places.items(), key=lambda pair: pair[1])
        ticks = ticks[:: -(-len(ticks) // MOST_TICKS)]
        if self.axis.is_log:
            bottom.set_xscale("log", base=2)
        bottom.set_xticks([place for _, place in ticks], [plain(value) for value, _ in ticks])
        bottom.minorticks_off()
        bottom.set_xlabel(self.axis.label)
        self._failures(panels, places)
        if len(self.series) > 1:
            handles, labels = panels[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside upper center", ncols=self._legend_columns())

    def _line(self, axes: Axes, series: Series, measure: Measure, places: dict[Any, float]) -> list[float]:
        index = self.series.index(series)
        look = line(index)
        if series.level:
            return self._level(axes, series, measure, look)
        found = [(p, v) for p in series.points if (v := measure.value(p)) is not None]
        x = [places[point.place[self.axis.path]] for point, _ in found]
        y = [measure.factor * value for _, value in found]
        marker = MARKERS[index % len(MARKERS)] if len(places) <= MOST_MARKERS else None
        axes.plot(x, y, label=series.name, marker=marker, markersize=4.5, **look)
        half = [measure.factor * (measure.half_width(point) or 0.0) for point, _ in found]
        high = [value + wide for value, wide in zip(y, half, strict=True)]
        if any(half):
            low = [max(value - wide, 0.0) for value, wide in zip(y, half, strict=True)]
            axes.fill_between(x, low, high, color=look["color"], alpha=BAND, linewidth=0)
        return y + high

    def _level(self, axes: Axes, series: Series, measure: Measure, look: dict[str, Any]) -> list[float]:
        point = series.points[0]
        value = measure.value(point)
        if value is None:
            axes.plot([], [], label=series.name, **look)
            return []
        level, half = measure.factor * value, measure.factor * (measure.half_width(point) or 0.0)
        axes.axhline(level, label=series.name, **look)
        if half:
            axes.axhspan(max(level - half, 0.0), level + half, color=look["color"], alpha=BAND, linewidth=0)
        return [level, level + half]

    def _ring(self, axes: Axes, measure: Measure, places: dict[Any, float]) -> None:
        for point in self.marked:
            value, place = measure.value(point), point.place[self.axis.path]
            if value is not None and place is not None and len(self.marked) == 1:
                spot = ([places[place]], [measure.factor * value])
                axes.plot(*spot, marker="o", markersize=11, markerfacecolor="none", color=INK, linestyle="none")

    def _failures(self, panels: Any, places: dict[Any, float]) -> None:
        """A cross at the foot where a point failed."""
        failed = sorted(
            {
                places[point.place[self.axis.path]]
                for series in self.series
                for point in series.points
                if point.error and not point.ran and point.place[self.axis.path] is not None
            }
        )
        for axes in panels if failed else ():
            axes.plot(
                *(failed, [0.03] * len(failed)), marker="x", color=INK, linestyle="none", clip_on=False,
                transform=axes.get_xaxis_transform(),
            )  # fmt: skip


def series_of(points: list[Point], axis: Axis, name: Any) -> list[Series]:
    """Points that differ along the axis alone, in the order of its values; ``name(place)`` says what they share."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(name(point.place), []).append(point)
    out = []
    for words, group in groups.items():
        level = all(point.place[axis.path] is None for point in group)
        if not level:
            group.sort(key=lambda point: point.place[axis.path])
        out.append(Series(words, tuple(group), level))
    return out


def _places(axis: Axis) -> dict[Any, float]:
    return {value: float(value) for value in axis.values}


def _at(pair: tuple[Any, float], measure: Measure) -> str:
    return f"{measure.write(pair[1])} at {plain(pair[0])}"


def _scale(axes: Axes, seen: list[float], *, even: bool) -> None:
    positive = [value for value in seen if value > 0]
    if not even and positive and len(positive) == len(seen) and max(seen) / min(seen) > WIDE_RANGE:
        axes.set_yscale("log")
        axes.minorticks_off()
    else:
        axes.set_ylim(0, 1.12 * max([1e-9, *seen]) if any(seen) else 1)
    axes.yaxis.set_major_formatter(lambda value, _: plain(value))
