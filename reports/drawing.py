"""A drawing of a report: what it must offer, its SVG with title, caption and description, and old files removed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from reports.style import svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Drawable(Protocol):
    """What fills a figure. ``name`` is the file's and the anchor's; ``caption`` may be empty."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def caption(self) -> str: ...

    def size(self) -> tuple[float, float]:
        """Inches."""

    def alt_text(self) -> str:
        """What the drawing says, in words."""

    def draw(self, figure: Figure) -> None:
        """Fills the figure."""


def drawn(picture: Drawable) -> dict[str, str]:
    """``name``, ``title``, ``caption``, ``alt`` and ``svg``."""
    alt = picture.alt_text()
    text = svg(picture.draw, picture.size(), picture.name, picture.title, alt)
    return {"name": picture.name, "title": picture.title, "caption": picture.caption, "alt": alt, "svg": text}


def remove_old(plots: Path, pattern: str, kept: set[str]) -> None:
    """An earlier result in the folder may have had other drawings."""
    for path in plots.glob(pattern):
        if path.name not in kept:
            path.unlink()
