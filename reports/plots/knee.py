"""Each limited latency against the rate, with its limit: where the best candidates stop serving in time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reports.numbers import milliseconds, plain, short
from reports.style import INK, NARROW_INCHES, line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]
PURPOSES = ("knee", "confirm", "headroom")
MOST_CURVES = 5
MOST_PANELS = 4
PANEL_INCHES = 2.3
WIDE_RANGE = 20.0
LEGEND_CHARACTERS = 68
OVERLOAD = 1.3
"""Rates beyond this many knees say nothing about the knee, and would squeeze the rest."""

TOP = 12.0
"""Latencies are drawn up to this many limits."""


@dataclass(frozen=True)
class Curve:
    """A candidate's probes, by rate; its knee is None where no rate passed. Rates are of one replica, requests/s."""

    name: str
    probes: tuple[Row, ...]
    knee_rps: float | None

    def rate(self, probe: Row) -> float:
        """Of one replica."""
        return float(probe["rate_rps"]) / max(int(probe.get("replicas") or 1), 1)


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
        several: whether some deployment has more than one replica, so that rates are of one of them.
        asked_rps: the asked rate for one replica of the first candidate, or None.
    """

    curves: tuple[Curve, ...]
    panels: tuple[Panel, ...]
    several: bool
    asked_rps: float | None = None
    name: str = "capacity_knee"
    title: str = "Up to which rate the limits hold"

    @property
    def caption(self) -> str:
        """What the signs mean."""
        words = (
            "Filled: every limit holds; cross: a limit is missed; ring: the knee, the highest rate of the grid below "
            "which every rate passes. Dashed: the limit."
        )
        if self.several:
            words += " Rates are those of one replica; open squares: all replicas behind their router."
        if self.asked_rps is not None:
            words += f" Dotted: the asked rate, for {self.curves[0].name}."
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
                seen = [probe for probe in curve.probes if probe.get(panel.column) is not None]
                if seen:
                    low, high = milliseconds(seen[0][panel.column]), milliseconds(seen[-1][panel.column])
                    ends.append(f"{panel.label} from {low} to {high}")
            parts.append(f"{curve.name}: {', '.join([knee, *ends])}")
        limits = ", ".join(f"{panel.label} {milliseconds(panel.limit_ms)}" for panel in self.panels)
        return f"Latencies over the rate{' of one replica' * self.several}. Limits: {limits}. {'; '.join(parts)}."

    def draw(self, figure: Figure) -> None:
        """A panel for each limited latency."""
        panels = figure.subplots(len(self.panels), 1, squeeze=False, sharex=True)[:, 0]
        for axes, panel in zip(panels, self.panels, strict=True):
            seen = [value for place in range(len(self.curves)) for value in self._curve(axes, place, panel)]
            self._limit(axes, panel, seen)
            axes.set_title(f"{panel.label} (ms), limit {milliseconds(panel.limit_ms)}")
        panels[-1].set_xlim(left=0)
        panels[-1].set_xlabel("requests/s of one replica" if self.several else "requests/s")
        panels[-1].xaxis.set_major_formatter(lambda value, _: plain(value))
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=self._columns(), columnspacing=1.4)

    def _curve(self, axes: Axes, place: int, panel: Panel) -> list[float]:
        curve, look = self.curves[place], line(place)
        found = [probe for probe in curve.probes if probe.get(panel.column) is not None]
        axes.plot([], [], label=curve.name, **look)
        counts = Counter(int(probe.get("replicas") or 1) for probe in found)
        usual = min(counts, key=lambda count: (-counts[count], count)) if counts else 1
        joined = [probe for probe in found if int(probe.get("replicas") or 1) == usual]
        axes.plot([curve.rate(p) for p in joined], [p[panel.column] for p in joined], **look)
        colour = look["color"]
        for probe in found:
            whole = int(probe.get("replicas") or 1) != usual
            marker = "x" if not probe.get("passed") else "s" if whole else "o"
            face = "none" if marker == "s" else colour
            axes.plot(curve.rate(probe), probe[panel.column], marker=marker, markersize=5, color=colour,
                      markerfacecolor=face, linestyle="none", zorder=3)  # fmt: skip
        self._ring(axes, curve, panel, joined, colour)
        return [probe[panel.column] for probe in found]

    def _ring(self, axes: Axes, curve: Curve, panel: Panel, joined: list[Row], colour: str) -> None:
        passed = [probe for probe in joined if probe.get("passed")]
        if curve.knee_rps is None or not passed:
            return
        knee = curve.knee_rps
        nearest = min(passed, key=lambda probe: abs(curve.rate(probe) - knee))
        axes.plot(curve.rate(nearest), nearest[panel.column], marker="o", markersize=11, color=colour,
                  markerfacecolor="none", markeredgewidth=1.6, linestyle="none", zorder=4)  # fmt: skip

    def _limit(self, axes: Axes, panel: Panel, seen: list[float]) -> None:
        axes.axhline(panel.limit_ms, color=INK, linewidth=1.2, linestyle=(0, (5, 3)), zorder=0)
        if self.asked_rps is not None:
            axes.axvline(self.asked_rps, color=INK, linewidth=1, linestyle=":", zorder=0)
        values = [value for value in (*seen, panel.limit_ms) if value > 0]
        if max(values) / min(values) > WIDE_RANGE:
            axes.set_yscale("log")
            axes.minorticks_off()
            axes.set_ylim(min(values) / 1.5, min(1.7 * max(values), TOP * panel.limit_ms))
        else:
            axes.set_ylim(0, min(1.25 * max(values), TOP * panel.limit_ms))
        axes.yaxis.set_major_formatter(lambda value, _: plain(value))

    def _columns(self) -> int:
        longest = max(len(curve.name) + 8 for curve in self.curves)
        return max(1, min(len(self.curves), LEGEND_CHARACTERS // longest))


def knee(rows: list[Row], probes: list[Row], panels: list[Panel], asked_rps: float | None) -> Knee | None:
    """The drawing of the first candidates that were probed; None where none was, or nothing is limited.

    Args:
        rows: those to draw, the best first.
        asked_rps: the asked rate of the whole deployment.
    """
    curves, drawn = [], []
    for row in rows:
        curve = _curve_of(row, probes)
        if curve.probes:
            curves.append(curve)
            drawn.append(row)
    del curves[MOST_CURVES:], drawn[MOST_CURVES:]
    shown = [p for p in panels if any(probe.get(p.column) is not None for c in curves for probe in c.probes)]
    if not curves or not shown:
        return None
    several = any(int(probe.get("replicas") or 1) > 1 for curve in curves for probe in curve.probes)
    several = several or any((row.get("replicas") or 1) > 1 for row in drawn)
    asked = asked_rps / (drawn[0].get("replicas") or 1) if asked_rps else None
    return Knee(tuple(curves), tuple(shown[:MOST_PANELS]), several, asked)


def _curve_of(row: Row, probes: list[Row]) -> Curve:
    own = [probe for probe in probes if probe["candidate"] == row["candidate"] and probe.get("rate_rps")]
    known = row.get("knee_rps_per_replica")
    curve = Curve(row["candidate"], (), float(known) if known else None)
    chosen = [probe for probe in own if probe.get("purpose") in PURPOSES] or own
    if curve.knee_rps is not None:
        near = [probe for probe in chosen if curve.rate(probe) <= OVERLOAD * curve.knee_rps]
        chosen = near or chosen
    chosen.sort(key=lambda probe: (curve.rate(probe), int(probe.get("replicas") or 1)))
    return Curve(curve.name, tuple(chosen), curve.knee_rps)
