"""Measured and predicted latencies, point beside point: mean and percentiles of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reports.measured_rows import error_words
from reports.numbers import milliseconds, plain
from reports.run_data import RunData
from reports.style import INK, LINES, WIDTH_INCHES
from workloads.measured import LATENCIES, STATISTICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "measured_and_predicted"
TITLE = "Measured and predicted latency"
CAPTION = (
    "The mean and the percentiles that were measured on a real server (hollow circles) and those that the simulation "
    "predicts. The simulation does not read what was measured."
)
WORDS = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "inter-token latency",
    "e2el": "end to end",
}
MARKERS = "DsP^vX"


def compared(runs: list[RunData]) -> list[str]:
    """The latencies that were measured and predicted, of any run."""
    return [name for name in LATENCIES if any(_points(run.result, name) for run in runs)]


def _points(result: dict[str, Any], name: str) -> list[tuple[str, float, float]]:
    """(statistic, measured, predicted) of one latency, ms."""
    block = result.get("measured") or {}
    found = []
    for statistic in STATISTICS:
        row = block.get(f"{statistic}_{name}_ms")
        if row and row["predicted"] is not None:
            found.append((statistic, row["measured"], row["predicted"]))
    return found


def size(runs: list[RunData]) -> tuple[float, float]:
    """Inches."""
    return WIDTH_INCHES, 0.9 + 1.75 * len(compared(runs))


def alt_text(runs: list[RunData]) -> str:
    """Every pair in words."""
    parts = []
    for run in runs:
        for name in compared(runs):
            pairs = [
                f"{statistic} {milliseconds(value)} and {milliseconds(found)} ({error_words(found / value - 1)})"
                for statistic, value, found in _points(run.result, name)
            ]
            if pairs:
                parts.append(f"{run.name}, {WORDS[name]}, measured and predicted: {', '.join(pairs)}")
    return "Points of measured and predicted latency. " + "; ".join(parts) + "."


def draw(figure: Figure, runs: list[RunData]) -> None:
    """A panel a latency; a level a statistic, with the measured point and one of each run."""
    names = compared(runs)
    panels = figure.subplots(len(names), 1, squeeze=False)[:, 0]
    for axes, name in zip(panels, names, strict=True):
        _panel(axes, name, runs)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=min(len(runs) + 1, 4))


def _panel(axes: Axes, name: str, runs: list[RunData]) -> None:
    levels = list(STATISTICS)
    highest = 0.0
    measured: dict[str, float] = {}
    for index, run in enumerate(runs):
        points = _points(run.result, name)
        measured |= {statistic: value for statistic, value, _ in points}
        highest = max([highest, *(max(pair) for _, *pair in points)])
        for statistic, value, predicted in points:
            level = levels.index(statistic)
            axes.plot([value, predicted], [level, level], color=INK, linewidth=0.8, alpha=0.5)
        axes.plot(
            [predicted for *_, predicted in points],
            [levels.index(statistic) for statistic, *_ in points],
            linestyle="none",
            marker=MARKERS[index % len(MARKERS)],
            color=LINES[index % len(LINES)][0],
            label="predicted" if len(runs) == 1 else f"predicted: {run.name}",
        )
    axes.plot(
        list(measured.values()),
        [levels.index(statistic) for statistic in measured],
        linestyle="none",
        marker="o",
        markersize=9,
        markerfacecolor="none",
        markeredgecolor=INK,
        markeredgewidth=1.4,
        label="measured",
    )
    axes.set_yticks(range(len(levels)), labels=levels)
    axes.set_ylim(len(levels) - 0.5, -0.5)
    axes.set_xlim(0, 1.1 * max(highest, 1e-3))
    axes.xaxis.set_major_formatter(lambda value, _: plain(value))
    axes.set_title(f"{WORDS[name]} (ms)")
