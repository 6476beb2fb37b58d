"""``expect``: thresholds on the numbers of ``result.json``, for use in a CI job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.errors import InputError
from simulator.scenario_settings import Threshold
from simulator.suggestions import did_you_mean


def judge_expectations(result: Mapping[str, Any], expect: Mapping[str, Threshold]) -> list[dict[str, Any]]:
    """One row per threshold: key, min, max, value, met (a value that does not exist misses).

    Raises InputError for a key that the result does not have, or one that is no number.
    """
    rows = []
    for key, threshold in expect.items():
        value = _look_up(result, key)
        above = threshold.min is None or (value is not None and value >= threshold.min)
        below = threshold.max is None or (value is not None and value <= threshold.max)
        rows.append({"key": key, "min": threshold.min, "max": threshold.max, "value": value, "met": above and below})
    return rows


def _look_up(result: Mapping[str, Any], key: str) -> float | None:
    here: Any = result
    for name in key.split("."):
        if not isinstance(here, Mapping) or name not in here:
            known = here if isinstance(here, Mapping) else result
            raise InputError(f"{key} is not in the result", where="expect", remedy=did_you_mean(name, known))
        here = here[name]
    if here is not None and not isinstance(here, int | float):
        raise InputError(f"{key} is not a number", where="expect", remedy="name a number, such as p99_ttft_ms")
    return here
