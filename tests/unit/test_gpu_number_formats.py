"""Storage formats against NumPy's own half, hand-made numbers and a search over every number of a format."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_validate.number_formats import FORMATS, round_to, to_bits, to_floats


def _all_bits(name: str) -> np.ndarray:
    storage = FORMATS[name].storage
    return np.arange(int(np.iinfo(storage).max) + 1).astype(storage)


@pytest.mark.parametrize(
    ("name", "bits", "value"),
    [
        ("float16", 0x3C00, 1.0),
        ("float16", 0x7BFF, 65504.0),
        ("float16", 0x0001, 2.0**-24),
        ("bfloat16", 0x3F80, 1.0),
        ("bfloat16", 0xC040, -3.0),
        ("bfloat16", 0x0001, 2.0**-133),
        ("fp8_e4m3", 0x38, 1.0),
        ("fp8_e4m3", 0x7E, 448.0),
        ("fp8_e4m3", 0x01, 2.0**-9),
        ("fp8_e4m3", 0x87, -7 * 2.0**-9),
    ],
)
def test_numbers_worked_by_hand(name: str, bits: int, value: float) -> None:
    assert to_floats(np.array([bits], dtype=FORMATS[name].storage), name)[0] == value
    assert to_bits(np.array([value]), name)[0] == bits


@pytest.mark.parametrize("name", FORMATS)
def test_every_number_goes_there_and_back(name: str) -> None:
    bits = _all_bits(name)
    values = to_floats(bits, name)
    kept = np.isfinite(values)
    assert np.array_equal(to_bits(values[kept], name), bits[kept])
    assert np.isnan(to_floats(to_bits(np.array([np.nan]), name), name)).all()


@pytest.mark.parametrize("name", FORMATS)
def test_rounding_finds_the_nearest_and_ties_go_to_even(name: str) -> None:
    bits = _all_bits(name)
    values = to_floats(bits, name)
    size = np.unique(np.abs(values[np.isfinite(values)]))
    halfway, lower = (size[:-1] + size[1:]) / 2, to_bits(size[:-1], name)
    assert np.array_equal(to_bits(halfway, name), np.where(lower % 2 == 0, lower, lower + 1))
    just_below, just_above = np.nextafter(halfway, 0), np.nextafter(halfway, np.inf)
    assert np.array_equal(to_bits(just_below, name), lower)
    assert np.array_equal(to_bits(-just_above, name), to_bits(-size[1:], name))


def test_fp8_saturates_and_half_overflows() -> None:
    assert round_to(np.array([460.0, 1e9, -np.inf]), "fp8_e4m3").tolist() == [448.0, 448.0, -448.0]
    with np.errstate(over="ignore"):
        assert round_to(np.array([65519.0, 65520.0]), "float16").tolist() == [65504.0, np.inf]


@pytest.mark.parametrize("name", FORMATS)
def test_a_formats_facts_follow_from_its_numbers(name: str) -> None:
    what = FORMATS[name]
    values = to_floats(_all_bits(name), name)
    positive = np.sort(values[np.isfinite(values) & (values > 0)])
    assert positive[0] == what.spacing_at_zero
    above_one = positive[np.searchsorted(positive, 1.0) + 1]
    assert (above_one - 1.0) / 2 == what.roundoff
