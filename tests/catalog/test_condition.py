"""What a kernel asks of its input: in words, and of which sizes it holds."""

from __future__ import annotations

import pytest

from cudareduce.catalog.condition import ANY_INPUT, Condition


def test_an_empty_condition_has_no_text() -> None:
    assert ANY_INPUT.texts == ()
    assert ANY_INPUT.nearest_sizes(33) == (33,)
    assert ANY_INPUT.why_not(33) is None


def test_each_part_of_a_condition_has_a_text() -> None:
    asks = Condition(multiple=4, aligned=True, positive="positive", finite=True, nan="none")
    assert asks.texts == (
        "n is a multiple of 4",
        "its input is aligned to 16 bytes",
        "its input is positive",
        "one of its elements is finite",
        "none of its elements is NaN",
    )
    assert Condition(nan="drop").texts == ("a NaN may be dropped",)
    assert Condition(multiple=4, sizes=(4, 8, 12)).texts == ("n is 4, 8 or 12",)


def test_what_must_fit_is_said() -> None:
    asks = Condition(positive="normal", within="int32")
    assert asks.texts == (
        "its input is positive and not subnormal",
        "its sums fit int32",
    )
    assert Condition(within="float16").texts == ("nothing is lost by rounding to float16",)


@pytest.mark.parametrize(("n", "near"), [(0, (0,)), (1, (0, 4)), (4, (4,)), (1001, (1000, 1004))])
def test_the_nearest_sizes_that_meet_a_condition(n: int, near: tuple[int, ...]) -> None:
    assert Condition(multiple=4).nearest_sizes(n) == near


def test_sizes_for_which_it_does_not_hold() -> None:
    assert Condition(multiple=4).why_not(6) == "is right if n is a multiple of 4, not 6"
    assert Condition(sizes=(6,)).why_not(8) == "is right if n is 6, not 8"
    assert Condition(multiple=4, sizes=(6,)).why_not(6) == "is right if n is a multiple of 4, not 6"


def test_rows_for_which_it_does_not_hold() -> None:
    few = Condition(most_rows=256)
    assert few.texts == ("it has at most 256 rows",)
    assert few.why_not(7, 257) == "is right if it has at most 256 rows, not 257"
    assert few.why_not(7, 256) is None
    assert [few.nearest_rows(n) for n in (1, 256, 1000)] == [1, 256, 256]
    assert ANY_INPUT.nearest_rows(7) == 7
