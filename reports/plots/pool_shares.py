"""Where the KV pool goes on average, one bar per variant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.numbers import at, percent
from reports.plots.memory_split import LEGEND_COLUMNS, PARTS
from reports.run_data import RunData
from reports.style import INK, WIDTH_INCHES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "pool_shares"
TITLE = "Where the KV memory goes"
CAPTION = "Shares of the pool, averaged over the time from the first arrival to the end."
LABELLED_FROM = 0.06
"""Shares below this are too narrow for a number."""


def size(runs: list[RunData]) -> tuple[float, float]:
    """Inches."""
    return WIDTH_INCHES, 1.6 + 0.55 * len(runs)


def alt_text(runs: list[RunData]) -> str:
    """Every share in words."""
    words = [
        f"{run.name}: " + ", ".join(f"{label} {percent(at(run.result, f'kv.{key}'))}" for _, key, label, _, _ in PARTS)
        for run in runs
    ]
    return "Bars of the average shares of the KV pool. " + "; ".join(words) + "."


def draw(figure: Figure, runs: list[RunData]) -> None:
    """A stacked bar per run, the first on top."""
    axes = figure.subplots()
    names = [run.name for run in runs]
    left = [0.0] * len(runs)
    for _, key, label, colour, hatch in PARTS:
        shares = [at(run.result, f"kv.{key}") or 0.0 for run in runs]
        widths = [100 * share for share in shares]
        alpha = 0.25 if hatch is None else 0.9
        axes.barh(names, widths, left=left, height=0.62, label=label, color=colour, hatch=hatch, alpha=alpha)
        for row, (share, begin) in enumerate(zip(shares, left, strict=True)):
            if share >= LABELLED_FROM:
                box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.2}
                ink = {"color": INK} if hatch is None else {"color": "black", "bbox": box}
                axes.text(begin + 50 * share, row, percent(share, 0), ha="center", va="center", fontsize=9, **ink)
        left = [begin + width for begin, width in zip(left, widths, strict=True)]
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of the pool")
    axes.grid(axis="y", visible=False)
    axes.invert_yaxis()
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=LEGEND_COLUMNS)
