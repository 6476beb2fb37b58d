"""The speed bench reads the peer's output; the bench itself runs in ``make bench`` alone."""

from __future__ import annotations

import pytest

from tests.bench.peer import parse_wall_time_s


def test_wall_time_is_read_with_its_thousands_separator() -> None:
    assert parse_wall_time_s("table\nWall Time (ms): 4,057.86\nPrefix Cache Reused Ratio: 0.00\n") == 4.05786
    assert parse_wall_time_s("Wall Time (ms): 12") == 0.012


def test_a_missing_wall_time_is_an_error_that_shows_the_output() -> None:
    with pytest.raises(ValueError, match="usage: replay"):
        parse_wall_time_s("usage: replay")
