"""Latency of requests by percentile: time to first token, per output token, end to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reports.numbers import milliseconds, plain
from reports.run_data import RunData
from reports.style import INK, WIDTH_INCHES, line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "latency_percentiles"
TITLE = "Latency by percentile"
CAPTION = "How many percent of the requests were at least this fast. A dashed level line is a limit of the SLO."
PANELS = (("ttft_ms", "time to first token"), ("tpot_ms", "time per output token"), ("e2el_ms", "end to end"))
PERCENTS = np.concatenate((np.linspace(0, 98, 99), np.linspace(99, 100, 11)))
WIDE_RANGE = 30.0
"""From this ratio on between largest and smallest value the axis is logarithmic."""

HEADROOM = 1.25
HEADROOM_LOG = 3.0
"""Above the highest line, for the words that stand on it."""


def size(runs: list[RunData]) -> tuple[float, float]:
    """Inches."""
    return WIDTH_INCHES, 7.4


def alt_text(runs: list[RunData]) -> str:
    """Median and p99 of each curve."""
    parts = []
    for key, words in PANELS:
        values = [
            f"{run.name} {milliseconds(run.result[f'median_{key}'])} and {milliseconds(run.result[f'p99_{key}'])}"
            for run in runs
        ]
        parts.append(f"{words}, median and p99: {', '.join(values)}")
    return "Curves of latency over percentile. " + "; ".join(parts) + "."


def draw(figure: Figure, runs: list[RunData]) -> None:
    """A panel per metric, a line per run."""
    panels = figure.subplots(len(PANELS), 1, squeeze=False, sharex=True)[:, 0]
    for axes, (key, words) in zip(panels, PANELS, strict=True):
        seen = []
        for index, run in enumerate(runs):
            values = run.latencies[key]
            values = values[~np.isnan(values)]
            if len(values):
                curve = np.percentile(values, PERCENTS)
                seen += [curve[0], curve[-1]]
                axes.plot(PERCENTS, curve, label=run.name, **line(index))
        limits = _limits(runs, key)
        for stat, limit in limits:
            axes.axhline(limit, color=INK, linestyle=(0, (4, 4)), linewidth=1)
            axes.annotate(f"SLO {stat}: {plain(limit)} ms", (1, limit), (0, 3), textcoords="offset points", fontsize=9)
        if seen and min(seen) > 0 and max(seen) / min(seen) > WIDE_RANGE:
            axes.set_yscale("log")
            axes.set_ylim(top=HEADROOM_LOG * max(seen + [limit for _, limit in limits]))
            axes.minorticks_off()
        else:
            axes.set_ylim(0, HEADROOM * max([1e-3, *seen, *(limit for _, limit in limits)]))
        axes.yaxis.set_major_formatter(lambda value, _: plain(value))
        axes.set_ylabel("ms")
        axes.set_title(words)
    panels[-1].set_xlim(0, 100)
    panels[-1].set_xlabel("percentile of requests")
    if len(runs) > 1:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=min(len(runs), 4))


def _limits(runs: list[RunData], key: str) -> list[tuple[str, float]]:
    found = {
        (limit["stat"], limit["limit"])
        for run in runs
        if run.result.get("slo")
        for limit in run.result["slo"]["limits"]
        if limit["metric"] == key
    }
    return sorted(found)
