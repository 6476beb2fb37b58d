"""Admitted requests by block size, against the contiguous reservations: one SVG, the same bytes every time."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from simulator.admission import LABEL, AdmissionPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Requests that fit in one KV pool, by block size"
# Okabe and Ito's palette: told apart with every common colour blindness; line styles differ as well.
PAGED_COLOUR = "#0072B2"
BASELINES = {
    "oracle": ("exact length known", "#009E73", "dotted"),
    "pow2": ("output rounded up to a power of two", "#E69F00", "dashdot"),
    "max": ("whole context reserved", "#D55E00", "dashed"),
}
RC: dict[Any, Any] = {
    "svg.hashsalt": "kvplan",  # ids in the file must not be random
    "svg.fonttype": "none",  # text stays text: searchable, readable aloud
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def admission_alt_text(points: Sequence[AdmissionPoint]) -> str:
    """What the plot shows, in words and numbers, for those who do not see it."""
    paged = ", ".join(f"{p.result.admitted:,} at {p.block_size}" for p in points if p.layout == "paged")
    old = ", ".join(
        f"{p.result.admitted:,} with the {p.reservation} reservation" for p in points if p.layout == "contiguous"
    )
    return f"Requests admitted. Paged, by block size in tokens: {paged}. Contiguous: {old}. This is {LABEL}."


def admission_svg(points: Sequence[AdmissionPoint]) -> str:
    """The plot as SVG text with a title and a description. Raises ValueError when no point is paged."""
    if not any(p.layout == "paged" for p in points):
        raise ValueError("no paged layout to draw: give admission_by_block_size at least one block size")
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(RC):
        figure = Figure(figsize=(7.2, 4.8), layout="constrained")
        axes = figure.add_subplot()
        _draw(axes, points)
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return _with_words(text.getvalue(), TITLE, admission_alt_text(points))


def _draw(axes: Axes, points: Sequence[AdmissionPoint]) -> None:
    paged = [p for p in points if p.layout == "paged"]
    sizes = [p.block_size or 0 for p in paged]
    counts = [p.result.admitted for p in paged]
    for point in points:
        if point.reservation is not None:
            words, colour, style = BASELINES[point.reservation]
            admitted = point.result.admitted
            axes.axhline(
                admitted,
                color=colour,
                linestyle=style,
                linewidth=1.8,
                label=f"contiguous, {words}: {admitted:,}",
            )
    axes.plot(sizes, counts, color=PAGED_COLOUR, marker="o", linewidth=1.8, label="paged")
    for size, count in zip(sizes, counts, strict=True):
        axes.annotate(f"{count:,}", (size, count), (0, 7), textcoords="offset points", ha="center", color=PAGED_COLOUR)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, labels=[f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.set_ylim(0, 1.12 * max([p.result.admitted for p in points] + [1]))
    axes.set_xlabel("block size (tokens)")
    axes.set_ylabel("requests admitted")
    axes.set_title(f"{TITLE}\n({LABEL})", fontsize=11)


def _with_words(svg: str, title: str, description: str) -> str:
    """Puts ``<title>`` and ``<desc>`` first in the drawing, so that browsers and screen readers find them."""
    words = f"<title>{escape(title)}</title>\n <desc>{escape(description)}</desc>"
    return re.sub(r"<svg ([^>]*)>", lambda m: f'<svg role="img" {m[1]}>\n {words}', svg, count=1)
