"""How plots look, and how they become SVG: readable in light and dark, without colour, by screen readers; same bytes.

Colours are Okabe and Ito's, told apart with every common colour blindness; lines differ in dash and areas in hatch
as well. Ink (text, axes) is drawn in a marker colour that becomes ``currentColor``, the colour of the page's text.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

INK = "#010203"
"""Stands for the text colour of the page until the SVG is written."""

WIDTH_INCHES = 6.0
"""Narrow, so that text stays readable where a phone shrinks the drawing."""

NARROW_INCHES = 5.0
"""For drawings with many labels: on a phone their text shrinks hardly at all."""

LINES = (
    ("#0072B2", "solid"),
    ("#D55E00", (0, (6, 2))),
    ("#009E73", (0, (2, 1.5))),
    ("#CC79A7", (0, (6, 2, 1.5, 2))),
    ("#E69F00", (0, (1, 1))),
    ("#56B4E9", (0, (9, 3))),
)
TOKENS, RESERVED, INTERNAL, EXTERNAL, FREE = "#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#9A9A9A"
RC: dict[Any, Any] = {
    "svg.hashsalt": "kvplan",  # ids in the file must not be random
    "svg.fonttype": "none",  # text stays text: searchable, readable aloud
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so that every machine lays out alike
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.18,
    "grid.linewidth": 0.8,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "grid.color"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), INK),
}


def svg(draw: Callable[[Figure], None], size: tuple[float, float], name: str, title: str, alt_text: str) -> str:
    """Draws a figure of ``size`` inches as SVG text; ids begin with ``name``, so that drawings share a page."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(RC):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _finished(text.getvalue(), name, title, alt_text)


def line(index: int) -> dict[str, Any]:
    """Colour and dash of the n-th line of a plot; after the first six the colours come again with other dashes."""
    colour, _ = LINES[index % len(LINES)]
    _, dash = LINES[(index + index // len(LINES)) % len(LINES)]
    return {"color": colour, "linestyle": dash, "linewidth": 1.8}


def log_scale(scale: Callable[..., Any], axis: Axis) -> None:
    """Makes an axis logarithmic (``scale``: its ``set_xscale`` or ``set_yscale``), with ticks at 1, 2 and 5."""
    from matplotlib.ticker import LogLocator, NullLocator

    scale("log")
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())


def _finished(text: str, name: str, title: str, alt_text: str) -> str:
    body = text[text.index("<svg") :].replace(INK, "currentColor")
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", body)
    body = re.sub(r'xlink:href="#([^"]+)"', rf'xlink:href="#{name}-\1"', body)
    body = body.replace("font: ", "font-family: sans-serif; font: ")
    body = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), body)  # 1/100 point is enough
    words = f'<title id="{name}-title">{escape(title)}</title>\n <desc id="{name}-desc">{escape(alt_text)}</desc>'
    label = f'role="img" aria-labelledby="{name}-title {name}-desc"'
    return re.sub(r"<svg ([^>]*)>", lambda m: f"<svg {label} {m[1]}>\n {words}", body, count=1)
