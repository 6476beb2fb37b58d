"""How the KV pool was divided over time: tokens, reserved, wasted inside, unusable outside, free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reports.numbers import at, percent
from reports.run_data import RunData
from reports.style import EXTERNAL, FREE, INTERNAL, RESERVED, TOKENS, WIDTH_INCHES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "memory_split"
TITLE = "KV memory over time"
CAPTION = (
    "Share of the pool. Reserved: held for tokens that are still to come. Internal waste: held, but no token will ever "
    "stand there. External waste: free, but the next request does not fit."
)
PARTS = (
    ("stored_tokens", "token_share", "tokens", TOKENS, ""),
    ("reserved_slots", "reserved_share", "reserved for tokens to come", RESERVED, "//"),
    ("internal_slots", "internal_fragmentation_share", "internal waste", INTERNAL, "xx"),
    ("external_slots", "external_fragmentation_share", "external waste", EXTERNAL, ".."),
    ("free_slots", "free_share", "free", FREE, None),
)


ALIKE = 2.0
MOST_POINTS = 500
"""More are finer than the drawing, and ten paths of them make the page large."""
LEGEND_COLUMNS = 3


def size(runs: list[RunData]) -> tuple[float, float]:
    """Inches."""
    return WIDTH_INCHES, 1.1 + 2.2 * len(runs)


def alt_text(runs: list[RunData]) -> str:
    """The shares, averaged over time."""
    words = [
        f"{run.name}: " + ", ".join(f"{label} {percent(at(run.result, f'kv.{key}'))}" for _, key, label, _, _ in PARTS)
        for run in runs
    ]
    return "Shares of the KV pool over time, as stacked areas. Averages: " + "; ".join(words) + "."


def draw(figure: Figure, runs: list[RunData]) -> None:
    """One panel per run, on the same scale."""
    ends = [float(run.timeline["time_s"][-1]) for run in runs]
    alike = max(ends) <= ALIKE * min(ends)  # runs that last about as long are compared on one axis
    panels = figure.subplots(len(runs), 1, squeeze=False, sharex=alike)[:, 0]
    for axes, run in zip(panels, runs, strict=True):
        every = -(-len(run.timeline["time_s"]) // MOST_POINTS)
        at = {name: column[::every] for name, column in run.timeline.items()}
        time = at["time_s"]
        slots = [at[column] for column, *_ in PARTS]
        tokens = np.minimum(slots[0], at["used_slots"])
        total = np.maximum(tokens + sum(slots[1:]), 1)
        base = np.zeros_like(time)
        for values, (_, _, label, colour, hatch) in zip([tokens, *slots[1:]], PARTS, strict=True):
            top = base + 100 * values / total
            alpha = 0.25 if hatch is None else 0.9
            axes.fill_between(time, base, top, label=label, facecolor=colour, hatch=hatch, alpha=alpha, linewidth=0)
            base = top
        axes.set_ylim(0, 100)
        axes.set_xlim(time[0], max(max(ends) if alike else time[-1], time[0] + 1e-9))
        axes.set_ylabel("% of the pool")
        axes.set_title(run.name)
    panels[-1].set_xlabel("time (s)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=LEGEND_COLUMNS)
