"""Admitted requests by block size, against the contiguous reservations, from ``by_block_size`` of ``result.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reports.numbers import whole
from reports.run_data import RunData
from reports.style import INK, WIDTH_INCHES, line
from simulator.admission import LABEL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "admitted_by_block_size"
TITLE = "Requests that fit in one KV pool, by block size"
CAPTION = f"Every request counts at its final length; no clock runs: {LABEL}."
BASELINES = {
    "oracle": "exact length known",
    "pow2": "output rounded up to a power of two",
    "max": "whole context reserved",
}
Comparison = dict[str, Any]


def comparisons(runs: list[RunData]) -> dict[str, Comparison]:
    """The different pools among the runs, by the names of the runs that have them."""
    found: list[tuple[list[str], Comparison]] = []
    for run in runs:
        compared = run.result.get("by_block_size")
        if compared is None:
            continue
        names = next((names for names, known in found if known == compared), None)
        if names is None:
            found.append(([run.name], compared))
        else:
            names.append(run.name)
    return {", ".join(names): compared for names, compared in found}


def size(runs: list[RunData]) -> tuple[float, float]:
    """Inches."""
    return WIDTH_INCHES, 4.2 + 0.2 * len(_labels(comparisons(runs)))


def alt_text(runs: list[RunData]) -> str:
    """Every count in words."""
    found = comparisons(runs)
    parts = []
    for names, compared in found.items():
        paged = ", ".join(f"{whole(p['admitted'])} at {p['block_size']}" for p in _paged(compared))
        old = ", ".join(
            f"{whole(p['admitted'])} with the {p['reservation']} reservation" for p in _contiguous(compared)
        )
        pool = f"{names}: " if len(found) > 1 else ""
        parts.append(f"{pool}paged, by block size in tokens: {paged}; contiguous: {old}")
    return f"Requests admitted. {'. '.join(parts)}. This is {LABEL}."


def draw(figure: Figure, runs: list[RunData]) -> None:
    """A curve of the paged layout per pool, level lines for the contiguous ones."""
    found = comparisons(runs)
    axes = figure.subplots()
    labels = _labels(found)
    level = max(p["admitted"] for compared in found.values() for p in compared["points"])
    for index, (names, compared) in enumerate(found.items()):
        _curve(axes, compared, labels[names], index)
    for number, (names, point) in enumerate(_baselines(found)):
        label = labels[f"{names}/{point['reservation']}"]
        axes.axhline(point["admitted"], label=label, **line(len(found) + number))
    axes.set_xscale("log", base=2)
    ticks = sorted({p["block_size"] for compared in found.values() for p in _paged(compared)})
    axes.set_xticks(ticks, labels=[whole(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(0, 1.15 * max(level, 1))
    axes.set_xlabel("block size (tokens)")
    axes.set_ylabel("requests admitted")
    axes.set_title(LABEL)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center")


def _curve(axes: Axes, compared: Comparison, label: str, index: int) -> None:
    paged = _paged(compared)
    sizes, counts = [p["block_size"] for p in paged], [p["admitted"] for p in paged]
    axes.plot(sizes, counts, marker="o", label=label, **line(index))
    for block_size, count in zip(sizes, counts, strict=True):
        place = (block_size, count)
        axes.annotate(whole(count), place, (0, 7), textcoords="offset points", ha="center", fontsize=9, color=INK)


def _labels(found: dict[str, Comparison]) -> dict[str, str]:
    """Words of the legend, by the names of the runs, and of their reservation behind a slash."""
    several = len(found) > 1
    labels = {names: f"paged ({names})" if several else "paged" for names in found}
    for names, point in _baselines(found):
        words = f"contiguous, {BASELINES[point['reservation']]}: {whole(point['admitted'])}"
        labels[f"{names}/{point['reservation']}"] = f"{words} ({names})" if several else words
    return labels


def _baselines(found: dict[str, Comparison]) -> list[tuple[str, dict[str, Any]]]:
    """All reservations of the only pool; of several pools the plain one alone, or the drawing is a thicket."""
    return [
        (names, point)
        for names, compared in found.items()
        for point in _contiguous(compared)
        if len(found) == 1 or point["reservation"] == "max"
    ]


def _paged(compared: Comparison) -> list[dict[str, Any]]:
    return [point for point in compared["points"] if point["layout"] == "paged"]


def _contiguous(compared: Comparison) -> list[dict[str, Any]]:
    return [point for point in compared["points"] if point["layout"] == "contiguous"]
