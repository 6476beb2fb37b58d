"""What one user gets against what a GPU delivers and what a million tokens cost: a point a candidate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reports.numbers import plain, short
from reports.plots.labels import place_labels
from reports.style import INK, LINES, NARROW_INCHES, log_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Row = dict[str, Any]
USER = "tokens_per_s_per_user"
USER_LABEL = "output tokens/s per user"
PANELS = (
    ("tokens_per_s_per_gpu", "output tokens/s per GPU", False),
    ("usd_per_million_tokens", "USD per million tokens", True),
)
"""Column, axis label, and whether less is better."""

FRONT, OTHER, WINNER = LINES[0][0], LINES[5][0], LINES[1][0]
MOST_LABELS = 45
"""With more points than this only those whose names stand below have their number."""

MOST_NAMED = 12
WIDE_RANGE = 20.0
PANEL_INCHES = 2.9
KEY_CHARACTERS = 70


@dataclass(frozen=True)
class Pareto:
    """The drawing.

    Attributes:
        rows: candidates with a ``rank``, a ``candidate`` name, ``serves`` and the columns of the panels.
        winner: the name of the best candidate.
    """

    rows: tuple[Row, ...]
    winner: str | None
    name: str = "capacity_pareto"
    title: str = "What a user gets, what a GPU delivers, what tokens cost"

    @property
    def caption(self) -> str:
        """What the signs mean; every name on a front."""
        words = (
            "Numbers are ranks in the table. Line: the front, where nobody serves users faster without delivering "
            "less per GPU, or costing more per token. Tokens/s per user: 1000 / median time per output token in ms."
        )
        left = len(self._on_fronts()) - len(self._named())
        return f"{words} {left} more on a front are not named." if left > 0 else words

    def size(self) -> tuple[float, float]:
        """Inches."""
        rows = -(-len(self._named()) // self._columns())
        return NARROW_INCHES, 0.75 + 0.23 * rows + PANEL_INCHES * len(self._panels())

    def alt_text(self) -> str:
        """The points on each front."""
        parts = []
        for column, label, less in self._panels():
            found = [
                f"{row['rank']} {row['candidate']} at {short(row[USER])} and {short(row[column])}"
                for row in front(self._with(column), column, less=less)
            ]
            parts.append(f"{label}: the front holds {'; '.join(found)}")
        best = f" The best candidate is {self.winner}." if self.winner else ""
        return f"Points over {USER_LABEL}, one a candidate. {'. '.join(parts)}.{best}"

    def draw(self, figure: Figure) -> None:
        """A panel for each measure, then the names of the numbers."""
        shown = self._panels()
        panels = figure.subplots(len(shown), 1, squeeze=False, sharex=True)[:, 0]
        for axes, (column, label, less) in zip(panels, shown, strict=True):
            self._panel(axes, column, less=less)
            axes.set_ylabel(label)
        panels[-1].set_xlabel(USER_LABEL)
        self._keys(figure, panels[0])
        figure.draw_without_rendering()  # the layout is known from here on
        for axes, (column, _, less) in zip(panels, shown, strict=True):
            self._label(axes, column, less=less)

    def _panel(self, axes: Axes, column: str, *, less: bool) -> None:
        rows = self._with(column)
        on_front = front(rows, column, less=less)
        line = [(row[USER], row[column]) for row in on_front]
        axes.plot(*zip(*line, strict=True), color=FRONT, linewidth=1.4, alpha=0.7, zorder=1)
        best = [row for row in rows if row["candidate"] == self.winner]
        kinds = (
            ("others", [r for r in rows if r["serves"] and r not in on_front], "o", OTHER, 30),
            ("does not serve", [r for r in rows if not r["serves"]], "x", INK, 30),
            ("on the front", [r for r in on_front if r["serves"]], "o", FRONT, 42),
            ("best", best, "*", WINNER, 190),
        )
        for label, group, marker, colour, area in kinds:
            if group:
                x, y = [row[USER] for row in group], [row[column] for row in group]
                axes.scatter(x, y, s=area, marker=marker, color=colour, label=label, zorder=2)
        _scale(axes.set_xscale, axes.xaxis, axes.set_xlim, [row[USER] for row in rows])
        _scale(axes.set_yscale, axes.yaxis, axes.set_ylim, [row[column] for row in rows])
        for one in (axes.xaxis, axes.yaxis):
            one.set_major_formatter(lambda value, _: plain(value))

    def _label(self, axes: Axes, column: str, *, less: bool) -> None:
        rows = self._with(column)
        on_front = front(rows, column, less=less)
        named = {row["candidate"] for row in self._named()}
        labelled = [row for row in rows if len(rows) <= MOST_LABELS or row["candidate"] in named]
        first = sorted(labelled, key=lambda row: (row["candidate"] != self.winner, row not in on_front, row["rank"]))
        spots = [(row[USER], row[column], str(row["rank"]), row["candidate"] == self.winner) for row in first]
        points = [(row[USER], row[column], 7.5 if row["candidate"] == self.winner else 3.6) for row in rows]
        place_labels(axes, spots, points)

    def _keys(self, figure: Figure, axes: Axes) -> None:
        """Below the panels: what the signs and the numbers on a front mean."""
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=4, columnspacing=1.2, handletextpad=0.3)
        named = self._named()
        blank = [axes.plot([], [], linestyle="none")[0] for _ in named]
        names = [f"{row['rank']}  {row['candidate']}" for row in named]
        figure.legend(
            blank, names, loc="outside lower center", ncols=self._columns(), handlelength=0, handletextpad=0,
            columnspacing=2.0, labelspacing=0.35,
        )  # fmt: skip

    def _columns(self) -> int:
        longest = max((len(str(row["candidate"])) + 6 for row in self._named()), default=1)
        return max(1, min(3, KEY_CHARACTERS // longest))

    def _named(self) -> list[Row]:
        """The best, and of those on a front as many as have room, evenly chosen."""
        found = self._on_fronts()
        every = -(-len(found) // MOST_NAMED)
        return [row for place, row in enumerate(found) if place % every == 0 or row["candidate"] == self.winner]

    def _panels(self) -> list[tuple[str, str, bool]]:
        return [panel for panel in PANELS if self._with(panel[0])]

    def _with(self, column: str) -> list[Row]:
        return [row for row in self.rows if _positive(row.get(USER)) and _positive(row.get(column))]

    def _on_fronts(self) -> list[Row]:
        """Each candidate on a front, and the best, by rank."""
        found = [row for column, _, less in self._panels() for row in front(self._with(column), column, less=less)]
        found += [row for row in self.rows if row["candidate"] == self.winner]
        names = {row["candidate"]: row for row in found}
        return sorted(names.values(), key=lambda row: int(row["rank"]))


def pareto(rows: list[Row], winner: str | None, serves: Callable[[Row], bool]) -> Pareto | None:
    """The drawing of candidates that have something to draw; None where fewer than two have."""
    ranked = [
        {**row, "rank": row.get("rank") or place + 1, "serves": serves(row)}
        for place, row in enumerate(rows)
        if _positive(row.get(USER)) and any(_positive(row.get(column)) for column, _, _ in PANELS)
    ]
    return Pareto(tuple(ranked), winner) if len(ranked) > 1 else None


def front(rows: list[Row], column: str, *, less: bool) -> list[Row]:
    """Rows that no other beats in both: more tokens/s per user, and more (or ``less``) of the column; by the former.

    Of rows that are equal in both the first stands for all. Rows that do not serve are on no front, unless none serves.
    """
    sign = -1.0 if less else 1.0
    able = [row for row in rows if row["serves"]] or rows
    order = sorted(able, key=lambda row: (-row[USER], -sign * row[column], row["rank"]))
    out: list[Row] = []
    for row in order:
        if not out or sign * row[column] > sign * out[-1][column]:
            out.append(row)
    return out[::-1]


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and value > 0


def _scale(scale: Callable[..., Any], axis: Axis, limits: Callable[..., Any], values: list[float]) -> None:
    low, high = min(values), max(values)
    if high / low > WIDE_RANGE:
        log_scale(scale, axis)
        limits(low / 1.35, high * 1.35)
    else:
        limits(0, 1.15 * high)
