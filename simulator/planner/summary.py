"""Replications of a point in one row: the mean of every number, and its 95 % interval.

With n replications, x̄ ± t(0.975, n−1)·s/√n, where s² = Σ(x − x̄)²/(n−1). Replications of one point use different
seeds and those of different points the same ones, so intervals of differences between points are narrower still.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from simulator.planner.table import Row

_T_975 = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
    *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
    *(2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423),
)
"""Student's t, two-sided 95 %, for 1 to 30 degrees of freedom."""
_Z_975 = 1.959964
_ASIDE = ("point", "replication", "seed", "exit_code", "schema_version")


def summary_rows(rows: Sequence[Row], paths: Sequence[str]) -> list[Row]:
    """One row for each variant and combination of values, in the order of the table."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["variant"], *(str(row[path]) for path in paths)), []).append(row)
    return [_summary(members, paths) for members in groups.values()]


def _summary(members: list[Row], paths: Sequence[str]) -> Row:
    fine = [row for row in members if row["status"] in ("ok", "slo_missed")]
    found: Row = {"variant": members[0]["variant"]} | {path: members[0][path] for path in paths}
    found |= {"replications": len(members), "with_numbers": len(fine)}
    for name in fine[0] if fine else ():
        if name in found or name in _ASIDE:
            continue
        values = [row.get(name) for row in fine]
        numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        if len(numbers) == len(values):
            found[name], low, high = mean_interval(numbers)
            found |= {f"{name}.ci95_low": low, f"{name}.ci95_high": high}
    return found


def mean_interval(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Mean and the ends of its 95 % interval; a single value has none."""
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return mean, None, None
    s = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = t_975(n - 1) * s / math.sqrt(n)
    return mean, mean - half, mean + half


def t_975(degrees: int) -> float:
    """The 0.975 quantile of Student's t; above 30 degrees by its expansion around the normal one (Hill 1970)."""
    if degrees <= len(_T_975):
        return _T_975[degrees - 1]
    z = _Z_975
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
