"""The points of a sweep: replications become one mean with an interval; runs that a knob leaves equal become one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from reports.sweep_data import Axis, Row, SweepData

RAN = ("ok", "slo_missed")
"""Values of ``status`` with which a row has numbers."""

FELT = (
    *("output_throughput", "request_goodput", "mean_running", "preemptions", "admitted"),
    *("median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "p99_tpot_ms", "kv.block_table_bytes", "kv.token_share"),
    *("kv.reserved_share", "kv.internal_fragmentation_share", "kv.external_fragmentation_share"),
)
"""Points that are alike in all of these do not feel a setting."""

ALIKE = 0.02
NEXT_TO_NOTHING = 0.002

T_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t for two-sided 95 %, by degrees of freedom from 1 on."""


@dataclass(frozen=True, eq=False)
class Point:
    """One setting of all axes.

    Attributes:
        place: the value of each axis, by path; None where the point stands for every value of the axis.
        rows: its replications.
    """

    place: dict[str, Any]
    rows: tuple[Row, ...]

    @cached_property
    def ran(self) -> tuple[Row, ...]:
        """The replications that have numbers."""
        return tuple(row for row in self.rows if row["status"] in RAN)

    @property
    def error(self) -> str | None:
        """Why it has no numbers; None where every replication has some."""
        return next((str(r["error"] or r["status"]) for r in self.rows if r["status"] not in RAN), None)

    def mean(self, column: str) -> float | None:
        """Over the replications; None where there is no value."""
        values = self._values(column)
        return math.fsum(values) / len(values) if values else None

    def half_width(self, column: str) -> float | None:
        """Of the 95 % interval of the mean (Student's t over replications); None for fewer than two."""
        values = self._values(column)
        n = len(values)
        if n < 2:
            return None
        mean = math.fsum(values) / n
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
        t = T_95[n - 2] if n - 1 <= len(T_95) else 1.96
        return t * deviation / math.sqrt(n)

    def texts(self, column: str) -> list[str]:
        """The different values of a column among the replications, as text."""
        return list(dict.fromkeys(str(row[column]) for row in self.ran if row.get(column) is not None))

    def any(self, column: str) -> bool:
        """Whether a column is true in some replication."""
        return any(bool(row.get(column)) for row in self.ran)

    def _values(self, column: str) -> list[float]:
        found = [row.get(column) for row in self.ran]
        return [float(value) for value in found if isinstance(value, int | float)]


def points_of(sweep: SweepData) -> list[Point]:
    """Every setting, in the order of the rows."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in sweep.rows:
        groups.setdefault(tuple(row[axis.path] for axis in sweep.axes), []).append(row)
    paths = [axis.path for axis in sweep.axes]
    return [Point(dict(zip(paths, key, strict=True)), tuple(rows)) for key, rows in groups.items()]


def merged(sweep: SweepData, points: list[Point]) -> list[Point]:
    """The points without those of a baseline that does not feel a numeric setting.

    A contiguous cache has no block size (its pool is cut to whole blocks, which is next to nothing): its rows for 1, 2,
    4, ... become one point whose ``place`` has None there, a level line. A baseline is one variant (or GPU, or another
    setting without a scale) that comes out alike everywhere; where all do, all points stay: that is a finding.
    """
    for axis in sweep.axes:
        if axis.numeric and not axis.is_condition:
            points = _merged_along(axis, [one.path for one in sweep.axes if not one.numeric], points)
    return points


def _merged_along(axis: Axis, names: list[str], points: list[Point]) -> list[Point]:
    groups: dict[tuple[Any, ...], list[Point]] = {}
    for point in points:
        groups.setdefault(tuple(v for path, v in point.place.items() if path != axis.path), []).append(point)
    feels: dict[tuple[Any, ...], bool] = {}
    for group in groups.values():
        alike = len(group) == len(axis.values) and all(_is_alike(group[0], point) for point in group[1:])
        key = tuple(group[0].place[name] for name in names)
        feels[key] = feels.get(key, False) or not alike
    if not any(feels.values()):
        return points
    out: list[Point] = []
    seen: set[tuple[Any, ...]] = set()
    for point in points:
        if feels[tuple(point.place[name] for name in names)]:
            out.append(point)
            continue
        place = point.place | {axis.path: None}
        if tuple(place.values()) not in seen:
            seen.add(tuple(place.values()))
            out.append(Point(place, point.rows))
    return out


def _is_alike(one: Point, other: Point) -> bool:
    if one.error or other.error or len(one.rows) != len(other.rows):
        return False
    return all(_are_close(one.mean(c), other.mean(c)) for c in FELT) and all(
        one.texts(column) == other.texts(column) for column in ("binding_limit", "saturated", "status")
    )


def _are_close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= ALIKE * max(abs(one), abs(other)) or max(abs(one), abs(other)) < NEXT_TO_NOTHING
