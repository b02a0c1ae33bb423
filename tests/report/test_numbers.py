"""Numbers as text: no digit that the interval does not carry."""

from __future__ import annotations

from decimal import Decimal
from math import floor, log10

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudareduce.reduction.sizes import parse_size
from cudareduce.report.numbers import (
    change_text,
    measured_text,
    memory_text,
    plain_text,
    share_text,
    short_size,
    size_text,
    time_text,
)


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (34.8216, 34.77, 34.87, "34.82±.05"),
        (34.8216, 34.3, 35.3, "34.8±.5"),
        (58884.0, 58680.0, 59090.0, "58900±200"),
        (3855.2, 3849.0, 3861.0, "3855±6"),
        (3855.2, 3800.0, 3910.0, "3860±60"),
        (1.2345, 1.2345, 1.2345, "1.234±.001"),
        (0.97, 0.9, 1.3, "1.0±.2"),
        (120.0, 100.0, 330.0, "100±100"),
        (9.5, None, None, "9.50"),
        (123456.0, None, None, "123000"),
        (0.0123, None, None, "0.0123"),
        (0.00041, 0.00040, 0.00042, "0.00041±.00002"),
        (0.0, 0.0, 0.0, "0.000±.001"),
        (None, None, None, "-"),
    ],
)
def test_a_value_with_its_interval(
    value: float | None, low: float | None, high: float | None, text: str
) -> None:
    assert measured_text(value, low, high) == text


def test_no_finer_than_the_instrument() -> None:
    assert measured_text(2.72, 2.72, 2.72, 0.016) == "2.72±.02"


def test_a_share_has_the_digits_that_its_error_allows() -> None:
    assert share_text(88.84, 0.0005) == "88.8"
    assert share_text(88.84, 0.05) == "89"
    assert share_text(None) == "-"
    assert plain_text(0) == "0"


@pytest.mark.parametrize(
    ("ratio", "low", "high", "text"),
    [
        (1.0699, 1.0665, 1.0741, "+7.0±.4%"),
        (0.9353, 0.9349, 0.9357, "-6.47±.04%"),
        (0.9996, 0.997, 1.003, "0.0±.3%"),
        (1.01, 0.99, 1.03, "+1±2%"),
        (2.5, 2.2, 2.8, "+150±30%"),
        (1.02, 1.02, 1.02, "+2.00±.01%"),
    ],
)
def test_a_change_is_a_percentage_with_its_interval(
    ratio: float, low: float, high: float, text: str
) -> None:
    assert change_text(ratio, low, high) == text


@pytest.mark.parametrize("ratio", [0.99996, 1.0, 1.00004])
def test_a_change_that_rounds_to_zero_has_no_sign(ratio: float) -> None:
    assert change_text(ratio) == "0.0%"


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (59213.0, 59100.0, 59300.0, "59200"),
        (34.8216, 34.77, 34.87, "34.82"),
        (40.0, 40.0, 40.0, "40.00"),
        (None, None, None, "-"),
    ],
)
def test_a_time_without_its_interval(
    value: float | None, low: float | None, high: float | None, text: str
) -> None:
    assert time_text(value, low, high) == text


@settings(max_examples=500, deadline=None)
@given(
    value=st.floats(1e-3, 1e7), below=st.floats(1e-7, 0.5), above=st.floats(1e-7, 0.5),
    finest=st.sampled_from([0.0, 0.016, 0.001]),
)  # fmt: skip
def test_no_digit_is_smaller_than_the_interval(
    value: float, below: float, above: float, finest: float
) -> None:
    """Half the interval has one digit, and the value ends at that digit's place."""
    text = measured_text(value, value * (1 - below), value * (1 + above), finest)
    shown, half = (Decimal(part) for part in text.split("±"))
    assert len(half.normalize().as_tuple().digits) == 1
    least = value / 20 if value < 0.01 else 0.001
    half_width = max((below + above) * value / 2, finest, least)
    unit = 10.0 ** floor(log10(half_width))  # the place of its first digit
    assert abs(float(half) - half_width) <= unit / 2 * 1.0001
    assert abs(float(shown) - value) <= unit / 2 * 1.0001
    assert float(shown) == pytest.approx(round(float(shown) / unit) * unit, rel=1e-12)


@settings(deadline=None)
@given(power=st.integers(10, 47), offset=st.integers(-3, 3))
def test_sizes_parse_as_they_are_printed(power: int, offset: int) -> None:
    n = 2**power + offset
    assert parse_size(short_size(n)) == n
    assert parse_size(size_text(n).partition(" (")[0].replace(" ", "_")) == n


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (64 << 20, "64 MiB"), (64_000_000, "64 MB"), (1 << 30, "1 GiB"), (2048, "2 KiB"),
        (12, "12 bytes"), (1, "1 byte"), (0, "0 bytes"),
    ],
)  # fmt: skip
def test_memory_has_the_unit_without_decimals(nbytes: int, text: str) -> None:
    assert memory_text(nbytes) == text
