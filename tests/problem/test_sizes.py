"""Sizes as people write them."""

from __future__ import annotations

import pytest

from cudareduce.errors import UsageError
from cudareduce.problem.sizes import parse_size, parse_sizes


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("1", 1), ("33554432", 2**25), ("2^25", 2**25), ("2^24+1", 2**24 + 1),
     ("2^10-1", 1023), ("32Mi", 2**25), ("1k", 1000), ("2Gi", 2**31), ("1e6", 10**6),
     ("1.5e3", 1500), ("33_554_432", 2**25)],
)  # fmt: skip
def test_one_size(text: str, value: int) -> None:
    assert parse_size(text) == value


@pytest.mark.parametrize(
    "text", ["", "-1", "ten", "2^", "1.5", "1e-3", "1.0001e2", "2^999999", "1e99", "0x10", "2^49"]
)
def test_not_a_size(text: str) -> None:
    with pytest.raises(UsageError, match=r"size|number|range|large"):
        parse_size(text)


def test_lists_and_ranges() -> None:
    assert parse_sizes("2^20,2^24") == [2**20, 2**24]
    assert parse_sizes("2^10..2^13") == [1024, 2048, 4096, 8192]
    assert parse_sizes("3..13") == [3, 6, 12]
    assert parse_sizes("1,1,2") == [1, 2]


@pytest.mark.parametrize("text", ["8..4", "0..4", "2^10..", "..4", "1,,2"])
def test_bad_lists(text: str) -> None:
    with pytest.raises(UsageError):
        parse_sizes(text)
