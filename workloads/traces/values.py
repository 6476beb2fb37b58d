"""Single values of a trace: token counts and times, exact to the picosecond."""

from __future__ import annotations

import math
import re
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from workloads.traces.sink import BadRowError
from workloads.workload import PS_PER_S

UNIT_PS = {"s": PS_PER_S, "ms": PS_PER_S // 10**3, "us": PS_PER_S // 10**6, "ns": PS_PER_S // 10**9}

_MAX_TOKENS = 1 << 31
_MAX_TIME = 10**19  # in any unit: nanoseconds of a Unix clock stay below
_DATE = re.compile(
    r"(\d{4})[-/](\d\d?)[-/](\d\d?)[ T](\d\d?):(\d\d):(\d\d)(?:[.,](\d{1,12})\d*)?\s*(Z|UTC|[+-]\d\d:?\d\d)?", re.ASCII
)


def token_count(value: Any, name: str, *, at_least: int = 1) -> int:
    """A whole number of tokens. Raises BadRowError for anything else, and below ``at_least``."""
    if type(value) is str and value.isdecimal() and value.isascii():
        count = int(value) if len(value) < 20 else _MAX_TOKENS + 1
    elif type(value) is int:
        count = value
    else:
        count = _odd_count(value, name)
    if count < at_least:
        raise BadRowError(f"{name} is below {at_least}", str(count))
    if count > _MAX_TOKENS:
        raise BadRowError(f"{name} is above {_MAX_TOKENS}", str(value)[:40])
    return count


def time_ps(value: Any, name: str, unit_ps: int) -> int:
    """A time in whole picoseconds: a number in units of ``unit_ps``, or a date and time of day.

    Dates may carry any number of decimals (Azure has seven) and a UTC offset; they count from year 1.
    """
    if type(value) is int or type(value) is float:
        if not abs(value) < _MAX_TIME:  # NaN compares false
            raise BadRowError(f"{name} is not a usable number", str(value)[:40])
        return round(value * unit_ps)
    if type(value) is not str or not value.strip():
        raise BadRowError(f"{name} is missing" if value in (None, "") else f"{name} is not a time", _shown(value))
    text = value.strip()
    matched = _DATE.fullmatch(text)
    if matched:
        return _date_ps(matched, name, text)
    try:
        number = Decimal(text) if "_" not in text else None
    except InvalidOperation:
        number = None
    if number is None or not number.is_finite() or not abs(number) < _MAX_TIME:
        raise BadRowError(f"{name} is not a time", _shown(text))
    return int((number * unit_ps).to_integral_value())


def _date_ps(matched: re.Match[str], name: str, text: str) -> int:
    groups = matched.groups()
    hour, minute, second = int(groups[3]), int(groups[4]), int(groups[5])
    if hour > 23 or minute > 59 or second > 60:
        raise BadRowError(f"{name} is not a time of day", _shown(text))
    try:
        days = date(int(groups[0]), int(groups[1]), int(groups[2])).toordinal()
    except ValueError:
        raise BadRowError(f"{name} is not a date", _shown(text)) from None
    offset_s = 0
    zone = groups[7]
    if zone and zone[0] in "+-":
        digits = zone[1:].replace(":", "")
        offset_s = (int(digits[:2]) * 3600 + int(digits[2:]) * 60) * (1 if zone[0] == "+" else -1)
    whole_s = ((days * 24 + hour) * 60 + minute) * 60 + second - offset_s
    return whole_s * PS_PER_S + int((groups[6] or "0").ljust(12, "0"))


def _odd_count(value: Any, name: str) -> int:
    """Counts written in an unusual way: ``374.0``, `` 12 ``, ``-3``."""
    if value is None or (isinstance(value, str) and not value.strip()):
        raise BadRowError(f"{name} is missing")
    try:
        if isinstance(value, bool) or (isinstance(value, str) and "_" in value):
            raise ValueError
        number = float(value)
    except (TypeError, ValueError):
        raise BadRowError(f"{name} is not a number", _shown(value)) from None
    if not math.isfinite(number) or number != int(number):
        raise BadRowError(f"{name} is not a whole number", _shown(value))
    return int(number)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
