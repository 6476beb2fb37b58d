"""Prompt tokens that a prefix cache serves, by its size: kinds of cache, and block sizes, beside each other.

From the dict of ``workloads.prefix_curves``. Lines carry their names at their ends, so that no legend is needed.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from reports.numbers import plain
from reports.style import INK, WIDTH_INCHES, line, svg
from workloads.prefix_curves_text import answer, number, percent, tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "prefix_cache"
TITLE = "Prompt tokens served from the prefix cache, by its size"
_LEAST_GAP = 0.055
"""Between two names at the ends of lines, as a share of the axis."""


def drawing(facts: dict[str, Any]) -> str:
    """The SVG text."""

    def draw(figure: Figure) -> None:
        _draw(figure, facts)

    return svg(draw, (WIDTH_INCHES, 6.4), NAME, TITLE, alt_text(facts))


def alt_text(facts: dict[str, Any]) -> str:
    """The answer, and both ends of each line."""
    parts = []
    for curve in facts["curves"]:
        first, last = curve["points"][0], curve["points"][-1]
        parts.append(
            f"{_name(curve)}: {percent(first['token_hit_rate'])} at {tokens(first['cache_tokens'])} tokens,"
            f" {percent(last['token_hit_rate'])} at {tokens(last['cache_tokens'])},"
            f" infinite {percent(curve['ideal_token_hit_rate'])}"
        )
    return f"Lines of hit rate over cache size. {' '.join(answer(facts))} {'; '.join(parts)}."


def _draw(figure: Figure, facts: dict[str, Any]) -> None:
    """Above the kinds of cache at one block size, below the block sizes of one kind."""
    curves, main = facts["curves"], facts["block_size_tokens"]
    upper, lower = figure.subplots(2, 1, sharex=True, sharey=True)
    kinds = [c for c in curves if c["cache"] == "radix" or c["block_size_tokens"] == main]
    _panel(upper, kinds, "by kind of cache", [_name(curve) for curve in kinds])
    chains = sorted((c for c in curves if c["cache"] == "hash_chain"), key=lambda c: int(c["block_size_tokens"]))
    _panel(lower, chains, "hash chain, by block size", [f"blocks of {c['block_size_tokens']:,}" for c in chains])
    ideal = facts["ideal_token_hit_rate"]
    upper.axhline(100 * ideal, color=INK, linewidth=1, linestyle=(0, (1, 2)))
    upper.annotate(
        f"infinite cache: {percent(ideal)}", (0, 100 * ideal), (4, 4), fontsize=9, color=INK,
        xycoords=("axes fraction", "data"), textcoords="offset points",
    )  # fmt: skip
    near = facts["near_ideal_cache_tokens"]
    if near > facts["smallest_cache_tokens"]:
        for axes in (upper, lower):
            axes.axvline(near, color=INK, linewidth=1, linestyle=(0, (1, 2)))
        upper.annotate(
            near_label(facts), (near, 0), (-4, 5), fontsize=9, color=INK, ha="right",
            xycoords=("data", "axes fraction"), textcoords="offset points",
        )  # fmt: skip
    highest = max(curve["ideal_token_hit_rate"] for curve in curves)
    upper.set_ylim(0, 112 * highest if highest else 1)
    lower.set_xlabel("cache size (tokens)")
    if facts["kv_bytes_per_token"] is not None:
        _gib_axis(upper, facts)


def near_label(facts: dict[str, Any]) -> str:
    """What comes near the infinite cache: 3,253 GiB: within 1 point."""
    gib = facts["near_ideal_cache_gib"]
    size = f"{tokens(facts['near_ideal_cache_tokens'])} tokens" if gib is None else f"{number(gib)} GiB"
    return f"{size}: within {100 * facts['within_share']:g} point"


def _panel(axes: Axes, curves: list[dict[str, Any]], title: str, names: list[str]) -> None:
    for index, curve in enumerate(curves):
        sizes = [point["cache_tokens"] for point in curve["points"]]
        rates = [100 * point["token_hit_rate"] for point in curve["points"]]
        axes.plot(sizes, rates, marker=".", **line(index))
    ends = [100 * curve["points"][-1]["token_hit_rate"] for curve in curves]
    top = 112 * max(max(c["ideal_token_hit_rate"] for c in curves), 1e-9)
    for index, (name, height) in enumerate(zip(names, _apart(ends, _LEAST_GAP * top), strict=True)):
        place = axes.get_yaxis_transform()  # x as a share of the axis: a piece of the line, then its name
        axes.plot([1.02, 1.09], [height, height], transform=place, clip_on=False, **line(index))
        axes.text(1.11, height, name, transform=place, fontsize=9, va="center", color=INK)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: _short(value))
    axes.yaxis.set_major_formatter(lambda value, _: f"{plain(value)}%")
    axes.set_title(title)
    axes.set_ylabel("prompt tokens served")


def _gib_axis(axes: Axes, facts: dict[str, Any]) -> None:
    """The same sizes in GiB of the model's KV, on top."""
    per_gib = (1 << 30) / facts["kv_bytes_per_token"]
    top = axes.secondary_xaxis("top", functions=(lambda x: x / per_gib, lambda x: x * per_gib))
    top.set_xlabel(f"cache size (GiB of {facts['model']})")
    top.xaxis.set_major_formatter(lambda value, _: plain(value))


def _apart(heights: list[float], gap: float) -> list[float]:
    """The heights moved apart to a least gap, in their order, around where they were."""
    order = sorted(range(len(heights)), key=lambda i: (heights[i], -i))
    placed = list(heights)
    for below, above in pairwise(order):
        placed[above] = max(placed[above], placed[below] + gap)
    middle = sum(p - h for p, h in zip(placed, heights, strict=True)) / len(heights)
    return [height - middle for height in placed]


def _name(curve: dict[str, Any]) -> str:
    size = curve["block_size_tokens"]
    return f"hash chain, blocks of {size:,}" if curve["cache"] == "hash_chain" else f"radix, pages of {size:,}"


def _short(value: float) -> str:
    """A tick: 10k, 1M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"
