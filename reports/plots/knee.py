"""Each limited latency against the rate, with its limit: where the best candidates stop serving in time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reports.numbers import milliseconds, plain, short
from reports.style import INK, NARROW_INCHES, line, log_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]
PURPOSES = ("knee", "confirm", "headroom")
MOST_CURVES = 5
MOST_LOOKED_AT = 40
ENOUGH = 3
"""A deployment that was probed at fewer rates is drawn by its replica."""

MOST_PANELS = 4
PANEL_INCHES = 2.3
WIDE_RANGE = 20.0
LEGEND_CHARACTERS = 68
OVERLOAD = 1.3
"""Rates beyond this many knees say nothing about the knee, and would squeeze the rest."""

FAR = 1.8
"""An asked rate beyond so many times the highest probed is told in words."""

TOP = 12.0
"""Latencies are drawn up to this many limits."""


@dataclass(frozen=True)
class Curve:
    """A candidate's probes, by rate.

    Attributes:
        points: (rate of the whole deployment in requests/s, probe).
        knee_rps: of the whole deployment; None where no rate passed.
        scaled: whether one replica was probed for all: its rates times their number.
    """

    name: str
    points: tuple[tuple[float, Row], ...]
    knee_rps: float | None
    scaled: bool


@dataclass(frozen=True)
class Panel:
    """A latency's column, its short name and its limit in ms."""

    column: str
    label: str
    limit_ms: float


@dataclass(frozen=True)
class Knee:
    """The drawing.

    Attributes:
        curves: the best candidate first.
        asked_rps: the asked rate, or None.
    """

    curves: tuple[Curve, ...]
    panels: tuple[Panel, ...]
    asked_rps: float | None = None
    name: str = "capacity_knee"
    title: str = "Up to which rate the limits hold"

    @property
    def caption(self) -> str:
        """What the signs mean."""
        words = (
            "Dot: every limit holds; cross: a limit is missed; ring: the knee, the highest rate of the grid below "
            "which every rate passes. Where nothing follows the ring, more is above what the deployment sustains. "
            "Dashed: the limit."
        )
        if self.asked_rps is not None:
            far = f" The asked rate, {short(self.asked_rps)} requests/s, lies to the right."
            words += far if self._is_far else " Dotted: the asked rate."
        scaled = [curve.name for curve in self.curves if curve.scaled]
        if scaled:
            words += f" Probed as one replica, its rates times their number: {', '.join(scaled)}."
        return words

    def size(self) -> tuple[float, float]:
        """Inches."""
        return NARROW_INCHES, 0.6 + 0.25 * -(-len(self.curves) // self._columns()) + PANEL_INCHES * len(self.panels)

    def alt_text(self) -> str:
        """The knee of each candidate, and its latencies at the ends."""
        parts = []
        for curve in self.curves:
            knee = f"knee at {short(curve.knee_rps)} requests/s" if curve.knee_rps else "no rate passed"
            ends = []
            for panel in self.panels:
                seen = [probe for _, probe in curve.points if probe.get(panel.column) is not None]
                if seen:
                    low, high = milliseconds(seen[0][panel.column]), milliseconds(seen[-1][panel.column])
                    ends.append(f"{panel.label} from {low} to {high}")
            parts.append(f"{curve.name}: {', '.join([knee, *ends])}")
        limits = ", ".join(f"{panel.label} {milliseconds(panel.limit_ms)}" for panel in self.panels)
        return f"Latencies over the rate. Limits: {limits}. {'; '.join(parts)}."

    def draw(self, figure: Figure) -> None:
        """A panel for each limited latency."""
        panels = figure.subplots(len(self.panels), 1, squeeze=False, sharex=True)[:, 0]
        for axes, panel in zip(panels, self.panels, strict=True):
            seen = [value for place in range(len(self.curves)) for value in self._curve(axes, place, panel)]
            self._limit(axes, panel, seen)
            axes.set_title(f"{panel.label} (ms), limit {milliseconds(panel.limit_ms)}")
        panels[-1].set_xlim(left=0)
        panels[-1].set_xlabel("requests/s")
        panels[-1].xaxis.set_major_formatter(lambda value, _: plain(value))
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=self._columns(), columnspacing=1.4)

    def _curve(self, axes: Axes, place: int, panel: Panel) -> list[float]:
        curve, look = self.curves[place], line(place)
        found = [(rate, probe) for rate, probe in curve.points if probe.get(panel.column) is not None]
        axes.plot([rate for rate, _ in found], [probe[panel.column] for _, probe in found], label=curve.name, **look)
        for passed, marker in ((True, "o"), (False, "x")):
            spots = [(rate, probe[panel.column]) for rate, probe in found if bool(probe.get("passed")) is passed]
            if spots:
                axes.plot(*zip(*spots, strict=True), marker=marker, markersize=5, color=look["color"], linestyle="none")
        knee = curve.knee_rps
        passing = [(rate, probe) for rate, probe in found if probe.get("passed")]
        if knee is not None and passing:
            rate, probe = min(passing, key=lambda pair: abs(pair[0] - knee))
            axes.plot(rate, probe[panel.column], marker="o", markersize=11, color=look["color"],
                      markerfacecolor="none", markeredgewidth=1.6, linestyle="none", zorder=4)  # fmt: skip
        return [probe[panel.column] for _, probe in found]

    def _limit(self, axes: Axes, panel: Panel, seen: list[float]) -> None:
        axes.axhline(panel.limit_ms, color=INK, linewidth=1.2, linestyle=(0, (5, 3)), zorder=0)
        if self.asked_rps is not None and not self._is_far:
            axes.axvline(self.asked_rps, color=INK, linewidth=1, linestyle=":", zorder=0)
        values = [value for value in (*seen, panel.limit_ms) if value > 0]
        if max(values) / min(values) > WIDE_RANGE:
            log_scale(axes.set_yscale, axes.yaxis)
            axes.set_ylim(min(values) / 1.5, min(1.7 * max(values), TOP * panel.limit_ms))
        else:
            axes.set_ylim(0, min(1.25 * max(values), TOP * panel.limit_ms))
        axes.yaxis.set_major_formatter(lambda value, _: plain(value))

    @property
    def _is_far(self) -> bool:
        """Whether the asked rate would squeeze the curves."""
        most = max(rate for curve in self.curves for rate, _ in curve.points)
        return self.asked_rps is not None and self.asked_rps > FAR * most

    def _columns(self) -> int:
        longest = max(len(curve.name) + 8 for curve in self.curves)
        return max(1, min(len(self.curves), LEGEND_CHARACTERS // longest))


def knee(rows: list[Row], probes: list[Row], panels: list[Panel], asked_rps: float | None) -> Knee | None:
    """The drawing of the first candidates that were probed; None where none was, or nothing is limited.

    Args:
        rows: those to draw, the best first.
        asked_rps: the asked rate.
    """
    curves = [curve for row in rows[:MOST_LOOKED_AT] if (curve := _curve_of(row, probes)) is not None][:MOST_CURVES]
    shown = [p for p in panels if any(probe.get(p.column) is not None for c in curves for _, probe in c.points)]
    if not curves or not shown:
        return None
    return Knee(tuple(curves), tuple(shown[:MOST_PANELS]), asked_rps)


def _curve_of(row: Row, probes: list[Row]) -> Curve | None:
    """Of the whole deployment where it was probed at several rates, else of the replicas that were probed most."""
    own = [p for p in probes if p["candidate"] == row["candidate"] and p.get("purpose") in PURPOSES and p["rate_rps"]]
    counts = Counter(_replicas(probe) for probe in own)
    if not counts:
        return None
    whole = _replicas(row)
    probed = whole if counts[whole] >= ENOUGH else min(counts, key=lambda count: (-counts[count], count))
    points = [(probe["rate_rps"] * whole / probed, probe) for probe in own if _replicas(probe) == probed]
    known = row.get("knee_rps")
    knee_rps = float(known) if known else None
    if knee_rps is not None:
        points = [point for point in points if point[0] <= OVERLOAD * knee_rps] or points
    points.sort(key=lambda point: point[0])
    return Curve(str(row["candidate"]), tuple(points), knee_rps, probed != whole)


def _replicas(row: Row) -> int:
    return max(int(row.get("replicas") or 1), 1)
