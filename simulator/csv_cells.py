"""Cells of a CSV file, a column at a time: the bytes that ``csv.writer`` would write, ten times sooner.

A column of n cells is a matrix of width x n bytes: each cell is a column of UTF-8 from top to bottom, and ``NOTHING``
stands where a cell is shorter than the matrix is high, in front, behind or in the middle.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simulator.run_log import IntColumn

Cells = NDArray[np.uint8]

NOTHING = 0xFF
"""No byte of UTF-8."""
_ZERO = ord("0")
_QUOTED = re.compile('[,"\r\n]')
_EXACT_BELOW = 8_000_000_000_000_000
"""Whole numbers below this, divided by 10^9 or 10^12, are doubles that lie less than one unit of the last decimal apart
(below 2^23 they are 2^-30 apart, below 2^13 2^-40). So the shortest decimal that reads back as the double, Python's
``repr``, is the quotient written out."""


def lines(columns: Sequence[Cells]) -> bytes:
    """All rows: the columns with commas between and a line feed at the end."""
    count = columns[0].shape[1]
    comma, line_feed = (np.full((1, count), ord(mark), dtype=np.uint8) for mark in ",\n")
    parts = [part for column in columns for part in (column, comma)]
    whole = np.concatenate([*parts[:-1], line_feed]).T.ravel()
    return bytes(whole[whole != NOTHING])


def whole_numbers(values: IntColumn) -> Cells:
    """``str`` of numbers that are not negative."""
    return _digits(values, len(str(int(values.max()))) if len(values) else 1)


def _digits(values: IntColumn, places: int) -> Cells:
    """The decimal digits, without zeros in front."""
    cells = np.empty((places, len(values)), dtype=np.uint8)
    rest = values
    for place in reversed(range(places)):
        higher = rest // 10
        cells[place] = rest - 10 * higher + _ZERO
        if place < places - 1:
            cells[place][rest == 0] = NOTHING
        rest = higher
    return cells


def quotients(
    values: IntColumn, places: int, known: NDArray[np.bool_], divided: NDArray[np.float64] | None = None
) -> Cells:
    """``repr(value / 10**places)``, places 9 or 12, of numbers that are not negative; empty where not known.

    ``divided``: the quotients, where whoever divided numbers past 2^53 rounded more than once.
    """
    unit = 10**places
    plain = known & (values < _EXACT_BELOW) & ((values >= unit // 10_000) | (values == 0))
    number = np.where(plain, values, 0)
    above = number // unit
    fraction = number - above * unit
    cells = np.concatenate((whole_numbers(above), np.empty((1 + places, len(values)), dtype=np.uint8)))
    point = len(cells) - places - 1
    cells[point] = ord(".")
    significant = np.zeros(len(values), dtype=np.bool_)
    for place in reversed(range(point + 1, len(cells))):
        higher = fraction // 10
        digit = fraction - 10 * higher
        significant |= digit != 0
        cells[place] = digit + _ZERO
        if place > point + 1:
            cells[place][~significant] = NOTHING
        fraction = higher
    cells[:, ~plain] = NOTHING
    others = (known & ~plain).nonzero()[0]
    if len(others):  # such as 5e-05
        exact = [value / unit for value in values[others].tolist()]
        return _put(cells, others, texts([*map(repr, exact if divided is None else divided[others].tolist())]))
    return cells


def floats(values: NDArray[np.float64]) -> Cells:
    """``repr``; empty for NaN."""
    return texts(["" if value != value else repr(value) for value in values.tolist()])


def words(index: IntColumn, names: Sequence[str]) -> Cells:
    """The name of each index."""
    cells: Cells = texts(names)[:, index]
    return cells


def texts(values: Sequence[str]) -> Cells:
    """Any text, quoted where CSV asks for it."""
    if _QUOTED.search("".join(values)):
        values = [_quoted(value) if _QUOTED.search(value) else value for value in values]
    encoded = [value.encode() for value in values]
    lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    cells = np.full((len(encoded), int(lengths.max(initial=0))), NOTHING, dtype=np.uint8)
    cells[np.arange(cells.shape[1]) < lengths[:, None]] = np.frombuffer(b"".join(encoded), dtype=np.uint8)
    return cells.T


def _put(cells: Cells, at: IntColumn, others: Cells) -> Cells:
    """Other cells in some places."""
    found = np.full((max(len(cells), len(others)), cells.shape[1]), NOTHING, dtype=np.uint8)
    found[: len(cells)] = cells
    found[: len(others), at] = others
    return found


def _quoted(value: str) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow([value])
    return text.getvalue()[:-1]
