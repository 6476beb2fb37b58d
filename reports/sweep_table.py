"""The table of a sweep: a row a point, the best marked, a failed one with its error."""

from __future__ import annotations

import re
from dataclasses import dataclass

from reports.numbers import MISSING
from reports.sweep_answer import Judged, place_words, value_words
from reports.sweep_measures import IN_TABLE, PREEMPTIONS, TABLE, TPOT_MEDIAN, TTFT_MEDIAN, WITH_INTERVAL, Measure
from reports.sweep_points import Point
from reports.sweep_rank import keeps_up, ranked
from reports.tables import limit_name

ANY = "any"
FEW_ROWS = 24
"""Up to here the first table holds every point."""

MOST_LOADS = 12
LONGEST_ERROR = 150
PLACE = re.compile(r"^\S+:\d+:\d+: ")
BEST_ROWS, FAILED_ROWS = 10, 6


@dataclass(frozen=True)
class TableRow:
    """Cells of the settings, then of the measures; a failed point has its error instead of the latter."""

    settings: list[str]
    cells: list[str]
    best: bool
    error: str | None
    point: Point


@dataclass(frozen=True)
class Table:
    """Columns (the settings' first) and rows; ``left_out``: how many points it does not show."""

    settings: list[str]
    columns: list[str]
    rows: list[TableRow]
    left_out: int = 0

    @property
    def has_any(self) -> bool:
        """Whether some row stands for every value of a setting."""
        return any(ANY in row.settings for row in self.rows)


def brief_error(error: str) -> str:
    """The beginning of an error, without the place in the scenario file; the page has it in full elsewhere."""
    text = PLACE.sub("", error)
    return text if len(text) <= LONGEST_ERROR else text[:LONGEST_ERROR].rsplit(" ", 1)[0] + " …"


def whole_table(judged: Judged) -> Table:
    """Every point, in the order of the sweep."""
    return _table(judged, judged.points)


def first_table(judged: Judged) -> Table:
    """What the first screen shows: every point of a small sweep; else the best, the worst, and what failed."""
    if len(judged.points) <= FEW_ROWS:
        return _table(judged, judged.points)
    order = ranked(judged.points, judged.objective)
    best = [point for point in order if point in judged.best]
    rest = [point for point in order if point not in best]
    failed = [point for point in judged.points if point.error][:FAILED_ROWS]
    if len(judged.best) > 1:  # one for each load, and of each other choice the last point that keeps up
        best = judged.best[:: -(-len(judged.best) // MOST_LOADS)]
        rest = _last_that_keep_up(judged)
        more = rest
    else:
        more = [*rest[: BEST_ROWS - len(best)], *rest[-1:]]
    chosen = list(dict.fromkeys([*best, *more, *failed]))
    return _table(judged, chosen, len(judged.points) - len(chosen))


def _last_that_keep_up(judged: Judged) -> list[Point]:
    conditions = tuple(axis for axis in judged.sweep.axes if axis.is_condition)
    found: dict[str, Point] = {}
    for point in judged.points:
        if keeps_up(point):
            found[place_words(judged.sweep, point.place, less=conditions)] = point
    return [point for point in found.values() if point not in judged.best][:BEST_ROWS]


def _table(judged: Judged, points: list[Point], left_out: int = 0) -> Table:
    sweep = judged.sweep
    measures = [measure for measure in _measures(judged) if any(measure.value(p) is not None for p in points)]
    several = len(sweep.axes) > 0 and any(len(point.rows) > 1 for point in points)
    judges = "admitted" not in sweep.columns
    # clients of a closed loop wait for their answers, so no backlog ever grows
    judges_load = judges and not ("max_concurrency" in sweep.columns and "slo.met" not in sweep.columns)
    rows = []
    for point in points:
        cells = [measure.text(point, interval=several and measure in WITH_INTERVAL) for measure in measures]
        if judges:
            limits = ", ".join(limit_name(limit) for limit in point.texts("binding_limit"))
            cells.append(limits or MISSING)
        if judges_load:
            cells.append("yes" if keeps_up(point) else "no")
        settings = [
            ANY if point.place[axis.path] is None else value_words(point.place[axis.path]) for axis in sweep.axes
        ]
        error = None if point.ran else point.error
        rows.append(TableRow(settings, cells, point in judged.best, error, point))
    columns = [measure.head for measure in measures] + ["binding limit"] * judges + ["keeps up"] * judges_load
    return Table([axis.label for axis in sweep.axes], columns, rows, left_out)


def _measures(judged: Judged) -> list[Measure]:
    """Those that say something: a column of zeros does not."""
    wanted = [*IN_TABLE]
    if any(axis.path.endswith("block_size") for axis in judged.sweep.axes):
        wanted.insert(wanted.index(PREEMPTIONS), TABLE)
    if any(len(point.rows) > 1 for point in judged.points):  # intervals need the room
        wanted = [measure for measure in wanted if measure not in (TTFT_MEDIAN, TPOT_MEDIAN)]
    return [measure for measure in wanted if any(measure.value(point) for point in judged.points)]
