"""Numbers as people read them. A value that does not exist is a dash."""

from __future__ import annotations

import math
from typing import Any

MISSING = "-"
GIB = 1 << 30


def fixed(value: float | None, digits: int = 2) -> str:
    """Thousands separated, a fixed number of digits: 2,935.53."""
    return MISSING if value is None else f"{value:,.{digits}f}"


def whole(value: int | None) -> str:
    """Thousands separated: 28,000."""
    return MISSING if value is None else f"{value:,}"


def percent(share: float | None, digits: int = 1) -> str:
    """A share as percent: 12.9%; what is above zero but would round to it is said so."""
    if share is None:
        return MISSING
    if 0 < share < 0.5 * 10 ** -(digits + 2):
        return f"<{10**-digits:.{digits}f}%"
    return f"{share:.{digits}%}"


def short(value: float | None) -> str:
    """Three significant digits, thousands separated: 0.0432, 9.79, 43.1, 2,936."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def few(value: float | None) -> str:
    """A mean number of requests: three digits, and what is nearly nothing is said so."""
    return "<0.01" if value is not None and 0 < value < 0.01 else short(value)


def milliseconds(value: float | None) -> str:
    """A latency with its unit: 43.1 ms, or 12.3 s from ten seconds on."""
    if value is None:
        return MISSING
    return f"{short(value / 1000)} s" if value >= 10_000 else f"{short(value)} ms"


def plain(value: float) -> str:
    """A tick of an axis: 0.5, 20, 10,000, 1,000,000."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def gib(value: float | None) -> str:
    """Bytes as GiB."""
    return MISSING if value is None else f"{value / GIB:,.2f}"


def times(larger: float, smaller: float) -> str:
    """How many times as much: 2.9 times."""
    return f"{short(larger / smaller)} times" if smaller else "many times"


def at(result: dict[str, Any], path: str) -> Any:
    """The value at a dotted path, or None where a key is missing."""
    value: Any = result
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value
