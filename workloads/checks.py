"""Checks of single values. Each says what is wrong, where, and a value that would work."""

from __future__ import annotations

import math
from typing import Any

from workloads.errors import WorkloadError


def a_number(
    value: Any, where: str, *, above: float | None = None, at_least: float | None = None, at_most: float | None = None
) -> float:
    """``value`` as a finite float within the bounds; booleans and text are not numbers."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WorkloadError(f"needs a number, not {value!r}", where=where, remedy=f"write {_example(above, at_least)}")
    if not math.isfinite(value):
        raise WorkloadError(
            f"needs a finite number, not {value!r}", where=where, remedy=f"write {_example(above, at_least)}"
        )
    _within(value, where, above, at_least, at_most)
    return float(value)


def a_count(value: Any, where: str, *, at_least: int = 1, at_most: int | None = None) -> int:
    """``value`` as a whole number within the bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise WorkloadError(
            f"needs a whole number, not {value!r}", where=where, remedy=f"write {_example(None, at_least)}"
        )
    _within(value, where, None, at_least, at_most)
    return value


def a_choice(value: Any, where: str, choices: tuple[str, ...]) -> str:
    """``value`` if it is one of ``choices``."""
    if value not in choices:
        raise WorkloadError(
            f"{value!r} is not one of the choices", where=where, remedy="choose from " + ", ".join(choices)
        )
    return str(value)


def _within(value: float, where: str, above: float | None, at_least: float | None, at_most: float | None) -> None:
    if above is not None and value <= above:
        raise WorkloadError(f"{value!r} is not above {above:g}", where=where, remedy=f"write {_example(above, None)}")
    if at_least is not None and value < at_least:
        raise WorkloadError(f"{value!r} is below {at_least:g}", where=where, remedy=f"write {at_least:g} or more")
    if at_most is not None and value > at_most:
        raise WorkloadError(f"{value!r} is above {at_most:g}", where=where, remedy=f"write {at_most:g} or less")


def _example(above: float | None, at_least: float | None) -> str:
    if above is not None:
        return f"a number above {above:g}, such as {above + 1:g}"
    return f"{at_least:g} or more" if at_least is not None else "a number such as 1"
