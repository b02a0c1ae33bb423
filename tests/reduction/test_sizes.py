"""Sizes as people write them."""

from __future__ import annotations

import pytest

from cudareduce.errors import UsageError
from cudareduce.reduction.sizes import counted, parse_size, parse_sizes


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("1", 1), ("33554432", 2**25), ("2^25", 2**25), ("2^24+1", 2**24 + 1),
     ("2^10-1", 1023), ("32Mi", 2**25), ("1k", 1000), ("2Gi", 2**31), ("1e6", 10**6),
     ("1.5e3", 1500), ("33_554_432", 2**25), ("1.15e2", 115), ("0" * 30 + "7", 7)],
)  # fmt: skip
def test_a_size_may_have_a_power_or_a_suffix(text: str, value: int) -> None:
    assert parse_size(text) == value


@pytest.mark.parametrize("space", [" ", "\u00a0", "\u2007", "\u2009", "\u202f"])
def test_a_size_as_tables_print_it(space: str) -> None:
    assert parse_size(f" 33{space}554{space}432") == 2**25
    assert parse_sizes(f"1{space}024..4{space}096,7") == [1024, 2048, 4096, 7]


@pytest.mark.parametrize("text", ["33  554 432", "3 554 43", "1024 000", "2 ^25", "32 Mi", "1 2"])
def test_other_spaces_are_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2²⁵", "has '²' in it: write a size in plain digits, as 33554432, 2^25"),
        ("\uff12^25", "has '\uff12' in it"),
        ("2^25\u22121", "has '\u2212' in it"),
        ("٣", "has '٣' in it"),
        ("2**25", "write powers with ^, as 2^25"),
        ("9^9^9", "is not a size"),
        ("1e400", "out of range"),
        ("99999999999999999999e300", "out of range"),
        ("9" * 5000, "too long for a size: at most 2^48 elements"),
        (f"{'9' * 5000}^{'9' * 5000}", "too long"),
        ("1e" + "9" * 5000, "too long"),
        ("x" * 5000, "too long"),
    ],
)
def test_an_invalid_size_is_a_short_usage_error(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_sizes(text)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 160


def test_an_ambiguous_number_with_commas_is_a_usage_error() -> None:
    for text in ("33,554,432", "134,217,728", "1,000,000", "7,000", "100,032,500"):
        with pytest.raises(UsageError) as caught:
            parse_sizes(text)
        whole, parts = text.replace(",", ""), text.replace(",", ", ")
        assert f"did you mean {whole} or the list {parts}?" in str(caught.value)
    assert parse_sizes("33, 554, 432") == [33, 554, 432]
    assert parse_sizes("128,256,512") == [128, 256, 512]
    assert parse_sizes("100,200") == [100, 200]
    assert parse_sizes("999,1000") == [999, 1000]


@pytest.mark.parametrize(
    "text", ["", "-1", "ten", "2^", "1.5", "1e-3", "1.0001e2", "2^999999", "1e99", "0x10", "2^49"]
)
def test_what_is_no_size_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"size|number|range|large"):
        parse_size(text)


def test_lists_and_ranges_of_sizes_are_read() -> None:
    assert parse_sizes("2^20,2^24") == [2**20, 2**24]
    assert parse_sizes("2^10..2^13") == [1024, 2048, 4096, 8192]
    assert parse_sizes("3..13") == [3, 6, 12]
    assert parse_sizes("1,1,2") == [1, 2]


@pytest.mark.parametrize("text", ["8..4", "0..4", "2^10..", "..4", "1,,2"])
def test_a_malformed_list_of_sizes_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse_sizes(text)


def test_one_of_something_is_not_many() -> None:
    assert [counted(n, "element") for n in (0, 1, 2)] == ["0 elements", "1 element", "2 elements"]
    assert [counted(n, "entry", "entries") for n in (1, 3)] == ["1 entry", "3 entries"]
