"""Drives a sweep: what is missing runs, each outcome lands at once, and the table is made of what landed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from simulator.planner.executors.base import Executor
from simulator.planner.findings import findings
from simulator.planner.fingerprint import fingerprint
from simulator.planner.grid import Grid
from simulator.planner.kept_folder import write_durably
from simulator.planner.point import EXIT_CODES, STATUSES, Outcome, Point, Task
from simulator.planner.summary import summary_rows
from simulator.planner.sweep_folder import SweepFolder
from simulator.planner.table import Row, columns_of, row_of, write_csv, write_tables
from simulator.provenance import provenance
from simulator.result_files import json_text
from simulator.scenario_resolved import resolved_yaml

SCHEMA_VERSION = 1


@dataclass
class Tally:
    """How far a sweep is: runs (not points, for equal points run once), and what they cost."""

    total: int = 0
    done: int = 0
    failed: int = 0
    busy_s: float = 0.0
    kept: int = 0


@dataclass
class Sweep:
    """One sweep into one folder.

    Attributes:
        question: what the sweep is to answer, for the report.
        on_progress: called after every outcome and about once a second.
    """

    grid: Grid
    folder: SweepFolder
    question: str | None = None
    on_progress: Callable[[Tally], None] = lambda tally: None
    tally: Tally = field(default_factory=Tally)
    _rows: dict[int, Row] = field(default_factory=dict)

    def plan(self, *, resume: bool) -> list[Point]:
        """Readies the folder; the points that have to run, of equal ones the first.

        Raises:
            InputError: without ``resume`` where the folder holds a sweep that was cut short.
        """
        if not resume:
            self.folder.refuse_unfinished()
            self.folder.clear()
        self.folder.open_again()
        kept = self.folder.kept()
        self.folder.move(kept, self.grid.points)
        first = self._first()
        missing = [point for key, point in first.items() if key not in kept]
        self.tally = Tally(total=len(first), done=len(first) - len(missing), kept=len(first) - len(missing))
        return _spread(missing)

    def run(self, missing: list[Point], executor: Executor | None, executor_name: str) -> None:
        """Runs the points; each outcome lands before the next is looked at."""
        by_index = {point.index: point for point in missing}
        started = datetime.now(UTC)
        for index, outcome in self._outcomes(missing, executor):
            point = by_index[index]
            more = {"executor": executor_name, "started_utc": started.isoformat(timespec="seconds")}
            self.folder.save(point, outcome, more)
            # While others run: at the end it would cost the user's time.
            content = json.loads(outcome.result) if outcome.result else {}
            self._rows[index] = row_of(self.grid.axes, point, outcome.status, outcome.error, content)
            self.tally.done += 1
            self.tally.failed += outcome.result is None
            self.tally.busy_s += outcome.seconds
            self.on_progress(self.tally)

    def _outcomes(self, missing: list[Point], executor: Executor | None) -> Iterator[tuple[int, Outcome]]:
        unreadable = self.grid.unreadable
        for point in missing:
            if point.key in unreadable:
                yield point.index, unreadable[point.key]
        if executor is None:
            return
        tasks = (self.grid.task(point) for point in missing if point.key not in unreadable)
        with closing(_as_generator(executor.run(tasks))) as outcomes:
            for found in outcomes:
                if found is None:
                    self.on_progress(self.tally)
                else:
                    yield found

    def finish(self, started: datetime, seconds: Mapping[str, float]) -> tuple[dict[str, Any], list[Row]]:
        """Fills the points that others stand for and writes the tables; ``sweep.json`` comes last.

        Returns:
            what ``sweep.json`` says, and the rows.
        """
        start = time.perf_counter()
        grid, folder = self.grid, self.folder
        self._fill_equal_points()
        rows = [self._rows.get(point.index) or row_of(grid.axes, point, *folder.read(point)) for point in grid.points]
        folder.forget_others(grid.points)
        write_tables(rows, columns_of(rows), folder.out)
        if grid.replications > 1:
            summary = summary_rows(rows, [axis.path for axis in grid.axes])
            write_csv(summary, columns_of(summary), folder.out / "summary.csv")
        write_durably(folder.out / "scenario.yaml", self._scenario_yaml())
        parts = {**seconds, "points": self.tally.busy_s, "tables": time.perf_counter() - start}
        write_durably(
            folder.out / "provenance.json", json_text(provenance(started, parts) | {"kvplan_code": fingerprint()})
        )
        said = self._sweep_json(rows)
        write_durably(folder.out / "sweep.json", json_text(said))
        return said, rows

    def _first(self) -> dict[str, Point]:
        """Of each key the first point, which is the one that runs."""
        found: dict[str, Point] = {}
        for point in self.grid.points:
            found.setdefault(point.key, point)
        return found

    def _fill_equal_points(self) -> None:
        first = self._first()
        for point in self.grid.points:
            model = first[point.key]
            if point is not model and (model.index in self._rows or not self.folder.holds(point)):
                self.folder.copy(model.folder, point)

    def _sweep_json(self, rows: list[Row]) -> dict[str, Any]:
        grid = self.grid
        counts = [row["status"] for row in rows]
        return {
            "schema_version": SCHEMA_VERSION,
            "name": grid.loaded.name,
            "question": self.question,
            "axes": [{"path": axis.path, "values": list(axis.values)} for axis in grid.axes],
            "variants": [name for name in grid.variants if name],
            "replications": grid.replications,
            "points": len(rows),
            "statuses": {status: counts.count(status) for status in STATUSES if status in counts},
            "findings": findings(rows, [(axis.path, list(axis.values)) for axis in grid.axes]),
            "folders": [f"points/{point.folder}" for point in grid.points],
        }

    def _scenario_yaml(self) -> str:
        """The file with the axes of the command line in it: ``kvplan sweep`` on it repeats the sweep."""
        loaded = self.grid.loaded
        over = {axis.path: list(axis.values) for axis in self.grid.axes}
        sweep: dict[str, Any] = {"over": over} if over else {}
        sweep |= {"replications": self.grid.replications} if self.grid.replications > 1 else {}
        whole = {**(loaded.document.data), **({"sweep": sweep} if sweep else {})}
        head = f"# {self.question}\n" if self.question else ""
        return head + resolved_yaml(whole).replace("kvplan run", "kvplan sweep", 1)


def exit_code(rows: list[Row]) -> int:
    """0 where one point is as it should be; else 4 where one has numbers; else that of the mildest failure: 3, 2, 1."""
    statuses = {row["status"] for row in rows}
    return next(EXIT_CODES[status] for status in STATUSES if status in statuses)


def _spread(points: list[Point]) -> list[Point]:
    """The points in an order in which any first part is like the whole, so that the time left can be told from it."""
    count = len(points)
    if count < 3:
        return points
    ranked = sorted(range(count), key=lambda i: (i * 0.6180339887498949) % 1.0)
    place = {i: rank for rank, i in enumerate(ranked)}
    return [points[place[i]] for i in range(count)]


def _as_generator(outcomes: Iterator[tuple[int, Outcome] | None]) -> Any:
    return outcomes if hasattr(outcomes, "close") else (found for found in outcomes)


__all__ = ["Sweep", "Tally", "Task", "exit_code"]
