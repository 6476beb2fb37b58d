"""Which point of a sweep is best: what is compared, and how ties end."""

from __future__ import annotations

from dataclasses import dataclass

from reports.answer import SAME_WITHIN
from reports.sweep_data import SweepData
from reports.sweep_points import Point


@dataclass(frozen=True)
class Objective:
    """A column that is compared, in words and with a unit; ``sign`` is -1 where less is better."""

    column: str
    words: str
    unit: str
    sign: int = 1


GOODPUT = Objective("request_goodput", "requests within the SLO", "requests/s")
THROUGHPUT = Objective("output_throughput", "output tokens", "output tokens/s")
TTFT = Objective("p99_ttft_ms", "p99 of the time to first token", "ms", -1)
ADMITTED = Objective("admitted", "admitted requests", "requests")

COSTS = ("usd_per_hour", "kv.block_table_bytes", "kv.pool_bytes", "p99_tpot_ms", "p99_ttft_ms")
"""Among points that are alike in the objective the one that is less in these, in this order, is better."""

ALIKE = 1.01
NOT_MUCH_WORSE = 1.25
"""A point that is alike may have a p99 of the time to first token so much larger than the others."""


def objective_of(sweep: SweepData, points: list[Point]) -> Objective:
    """What the sweep is about.

    Without a clock: admitted requests. With an SLO: requests within it. Where throughputs differ, or the load is more
    than some point serves: output tokens. Else the time to first token.
    """
    if "admitted" in sweep.columns:
        return ADMITTED
    if "slo.attainment" in sweep.columns:
        return GOODPUT
    delivered = [value for point in points if (value := point.mean(THROUGHPUT.column)) is not None]
    differ = bool(delivered) and max(delivered) > SAME_WITHIN * min(delivered)
    if differ or any(point.any("saturated") for point in points):
        return THROUGHPUT
    return TTFT


def ranked(points: list[Point], objective: Objective) -> list[Point]:
    """Those that ran, the best first.

    Of those whose objective is alike within 1 %, and whose p99 of the time to first token is at most 1.25 times the
    least of them, the one that costs least stands first.
    """
    ran = _by_objective(points, objective)
    best = alike_best(points, objective)[:1]
    return best + [point for point in ran if point not in best]


def alike_best(points: list[Point], objective: Objective) -> list[Point]:
    """Those that may be called best, the cheapest first."""
    ran = _by_objective(points, objective)
    if not ran:
        return []
    top = _value(ran[0], objective.column)
    alike = [point for point in ran if _alike(_value(point, objective.column), top)]
    least = min(_value(point, TTFT.column) for point in alike)
    alike = [point for point in alike if _value(point, TTFT.column) <= NOT_MUCH_WORSE * least]
    return sorted(alike, key=lambda point: tuple(_rounded(point, column) for column in COSTS))


def _by_objective(points: list[Point], objective: Objective) -> list[Point]:
    ran = [point for point in points if point.mean(objective.column) is not None]
    return sorted(ran, key=lambda point: -objective.sign * _value(point, objective.column))


def keeps_up(point: Point) -> bool:
    """Whether a point serves its load: no backlog, and the SLO met where there is one."""
    if not point.ran or point.error:
        return False
    met = [row.get("slo.met") for row in point.ran]
    return not point.any("saturated") and all(value is not False for value in met)


def _alike(value: float, top: float) -> bool:
    return max(value, top) <= ALIKE * min(value, top)


def _value(point: Point, column: str) -> float:
    found = point.mean(column)
    return 0.0 if found is None else found


def _rounded(point: Point, column: str) -> float:
    """To two digits: what differs by less does not decide."""
    value = _value(point, column)
    return float(f"{value:.1e}")
