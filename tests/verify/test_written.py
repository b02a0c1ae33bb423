"""Sizes that the numbers in a kernel's text may be about."""

from __future__ import annotations

from cudareduce.verify.test_sets import literal_rows, literal_sizes


def test_one_row_more_than_a_number() -> None:
    assert literal_rows((256, 100000, 2**23)) == ((3, 100001),)


def test_around_a_number_that_may_be_the_most() -> None:
    assert literal_sizes((4096,), 256)[:3] == (4096, 4097, 8193)
    assert literal_sizes((256, 2**23), 256) == ()


def test_rests_that_are_named() -> None:
    sizes = literal_sizes((0, 1, 37, 256), 256)
    assert any(n % 256 == 37 and n > 512 for n in sizes)
    masked = literal_sizes((37, 1023), 256)
    assert any(n & 1023 == 37 for n in masked)


def test_not_every_pair_is_worth_a_size() -> None:
    assert len(literal_sizes(tuple(range(2, 600)), 256)) <= 64
