"""Puts short labels beside points so that they overlap neither each other nor a point."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Box = tuple[float, float, float, float]
FONT_POINTS = 10.0
CHARACTER, HEIGHT = 0.64, 1.05
"""Width and height of a character, in font sizes."""

DIRECTIONS = tuple(math.radians(degrees) for degrees in (45, 135, 315, 225, 90, 270, 0, 180))
DISTANCES = (5.0, 9.0, 14.0, 20.0, 28.0, 38.0)
LEADER_FROM = 10.0
"""Points; a label that is farther from its point is tied to it by a line."""

SAME_SPOT = 1.5
"""Points; markers that are nearer cover each other and share one label."""


def place_labels(
    axes: Axes, labels: list[tuple[float, float, str, bool]], points: list[tuple[float, float, float]]
) -> None:
    """Writes each label (x, y, text, bold) near its data point, the first ones first, off the ``points``' markers.

    A point is its x and y in data, and the radius of its marker in points on paper.

    Needs a figure whose layout is done, for what overlaps is known in points on paper alone. Labels of markers that
    cover each other are joined: ``3, 4``.
    """
    scale = 72.0 / axes.figure.dpi
    taken: list[Box] = []
    for *spot, radius in points:
        x, y = (scale * float(part) for part in axes.transData.transform(spot))
        taken.append((x - radius, y - radius, x + radius, y + radius))
    frame = axes.get_window_extent()
    inside = (scale * frame.x0, scale * frame.y0, scale * frame.x1 + 8, scale * frame.y1 + 8)
    for (x, y), text, bold in _joined(axes, labels, scale):
        offset, box = _free_spot((x, y), text, taken, inside)
        taken.append(box)
        at = axes.transData.inverted().transform((x / scale, y / scale))
        far = math.hypot(*offset) > LEADER_FROM
        note = axes.annotate(
            text, tuple(at), offset, textcoords="offset points", fontsize=FONT_POINTS, ha="center", va="center",
            fontweight="bold" if bold else "normal", zorder=3,
            arrowprops={"arrowstyle": "-", "linewidth": 0.5, "alpha": 0.6, "shrinkA": 4, "shrinkB": 2} if far else None,
        )  # fmt: skip
        note.set_in_layout(False)


def _joined(
    axes: Axes, labels: list[tuple[float, float, str, bool]], scale: float
) -> list[tuple[tuple[float, float], str, bool]]:
    spots: list[tuple[tuple[float, float], list[str], bool]] = []
    for x, y, text, bold in labels:
        left, low = axes.transData.transform((x, y))
        spot = (scale * float(left), scale * float(low))
        same = next((one for one in spots if math.dist(one[0], spot) < SAME_SPOT), None)
        if same is None:
            spots.append((spot, [text], bold))
        else:
            same[1].append(text)
    return [(spot, ", ".join(texts), bold) for spot, texts, bold in spots]


def _free_spot(point: tuple[float, float], text: str, taken: list[Box], inside: Box) -> tuple[tuple[float, float], Box]:
    """(offset of the label's middle in points, its box): the nearest that is free, or the one with least overlap."""
    wide, high = CHARACTER * FONT_POINTS * len(text), HEIGHT * FONT_POINTS
    best: tuple[float, tuple[float, float], Box] | None = None
    for distance in DISTANCES:
        for angle in DIRECTIONS:
            right, up = math.cos(angle), math.sin(angle)
            offset = (right * (distance + wide / 2), up * (distance + high / 2))
            x, y = point[0] + offset[0], point[1] + offset[1]
            box = (x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)
            if not (inside[0] <= box[0] and inside[1] <= box[1] and box[2] <= inside[2] and box[3] <= inside[3]):
                continue
            covered = sum(_overlap(box, other) for other in taken)
            if covered == 0:
                return offset, box
            if best is None or covered < best[0]:
                best = covered, offset, box
    if best is None:
        return (0.0, high), (point[0] - wide / 2, point[1], point[0] + wide / 2, point[1] + high)
    return best[1], best[2]


def _overlap(one: Box, other: Box) -> float:
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    return wide * high if wide > 0 and high > 0 else 0.0
