"""Requests that wait and requests that run, over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.numbers import plain, short
from reports.run_data import RunData
from reports.style import WIDTH_INCHES, line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "queue_and_batch"
TITLE = "Queue and batch over time"
CAPTION = "A queue that grows as long as requests arrive means more load than the server delivers."
PANELS = (("waiting", "waiting requests", "mean_waiting"), ("running", "running requests", "mean_running"))


def size(runs: list[RunData]) -> tuple[float, float]:
    """Inches."""
    return WIDTH_INCHES, 4.8


def alt_text(runs: list[RunData]) -> str:
    """Mean and highest sampled number of each line."""
    parts = []
    for column, words, mean in PANELS:
        values = [
            f"{run.name} {short(run.result[mean])} on average, at most {run.timeline[column].max():,.0f}"
            for run in runs
        ]
        parts.append(f"{words}: {'; '.join(values)}")
    return "Lines over time. " + ". ".join(parts) + "."


def draw(figure: Figure, runs: list[RunData]) -> None:
    """Queue above, batch below, a line per run."""
    from matplotlib.ticker import MaxNLocator

    panels = figure.subplots(len(PANELS), 1, squeeze=False, sharex=True)[:, 0]
    for axes, (column, words, _) in zip(panels, PANELS, strict=True):
        for index, run in enumerate(runs):
            axes.plot(
                run.timeline["time_s"], run.timeline[column], label=run.name, drawstyle="steps-post", **line(index)
            )
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_formatter(lambda value, _: plain(value))
        axes.set_title(words)
        axes.set_ylabel("requests")
    panels[-1].set_xlabel("time (s)")
    if len(runs) > 1:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=min(len(runs), 4))
