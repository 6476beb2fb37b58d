"""Whole columns of CSV are the bytes of ``csv.writer``."""

from __future__ import annotations

import csv
import io

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from simulator.csv_cells import floats, lines, quotients, texts, whole_numbers, words

NAMES = ["", "default", 'a "b", c', "é\n", "\0", "ÿ\0"]
PS = (
    st.integers(0, 1 << 62)
    | st.integers(0, 10**13)
    | st.integers(0, 10**9)
    | st.integers(7 * 10**15, 10**16)
    | st.builds(lambda digits, zeros: digits * 10**zeros, st.integers(0, 10**4), st.integers(0, 14))
)
ROW = st.tuples(
    st.integers(0, (1 << 63) - 1) | st.integers(0, 99),
    st.none() | PS,
    st.none() | PS,
    st.none() | st.floats(allow_nan=False),
    st.sampled_from(range(len(NAMES))),
    st.text() | st.sampled_from(NAMES),
)


def written(rows: list[tuple[object, ...]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


@given(st.lists(ROW, min_size=1, max_size=30))
@example(
    [(0, 0, 99_999, 0.0, 0, ""), (10, 100_000, 10**8, 1e22, 1, "ÿ"), (7, 8 * 10**15, 8 * 10**15 - 1, -0.1, 2, ",")]
)
def test_a_block_of_rows(rows: list[tuple[int, int | None, int | None, float | None, int, str]]) -> None:
    count, seconds, ms, number, name, text = zip(*rows, strict=True)

    def column(values: tuple[int | None, ...]) -> tuple[np.ndarray, np.ndarray]:
        known = np.array([value is not None for value in values])
        return np.array([value or 0 for value in values], dtype=np.int64), known

    (at, come), (took, ended) = column(seconds), column(ms)
    block = lines(
        [
            whole_numbers(np.array(count, dtype=np.int64)),
            quotients(at, 12, come),
            quotients(took, 9, ended),
            floats(np.array([np.nan if value is None else value for value in number])),
            words(np.array(name), NAMES),
            texts(text),
        ]
    )
    assert block == written(
        [
            (a, None if b is None else b / 10**12, None if c is None else c / 10**9, d, NAMES[e], f)
            for a, b, c, d, e, f in rows
        ]
    )


def test_every_length_of_a_time() -> None:
    """All numbers of digits, and all numbers of zeros at the end, by rows of 10^5."""
    generator = np.random.default_rng(0)
    for top in range(1, 16):
        values = generator.integers(0, 8 * 10**top, size=20_000)
        values -= values % 10 ** generator.integers(0, top + 1, size=len(values))
        for places in (9, 12):
            known = generator.random(len(values)) < 0.9
            expected = [
                value / 10**places if there else None for value, there in zip(values.tolist(), known, strict=True)
            ]
            assert lines([quotients(values, places, known), texts(["x"] * len(values))]) == written(
                [(value, "x") for value in expected]
            )
