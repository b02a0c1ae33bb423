"""Patterns by their names: those that a user may ask for, those that verify, and no others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.inputs import (
    as_answers,
    as_numbers,
    make,
    make_all,
    make_positive,
    rounds_nothing,
    varies,
    without_nan,
)
from cudareduce.reduction.operators import Map, reduction_of
from cudareduce.reduction.patterns import PATTERNS, needs_schedules, patterns_for
from cudareduce.reduction.reference import bound, reference


def test_of_columns_elements_are_as_far_apart_as_there_are_columns() -> None:
    rows = reduction_of("sum", "int32")
    (plain,), (turned,) = (
        make_all("random", one, 5, 3) for one in (rows, replace(rows, columns=True))
    )
    assert (plain.reshape(3, 5) == turned.reshape(5, 3).T).all()
    expected = reference(rows, plain, 3).expected
    assert (reference(replace(rows, columns=True), turned, 3).expected == expected).all()


def test_a_map_is_given_the_numbers_that_it_names() -> None:
    for expression, dtype in (
        ("a == -3", "int32"),
        ("a > 0x10u", "uint8"),
        ("a < 1.5f", "float16"),
    ):
        counted = reduction_of("sum", dtype, None, Map(expression))
        assert "named" in patterns_for(counted, 1000, 256)
        few = set(as_numbers(make("named", counted, 1000), counted.dtype).tolist())
        named = {"a == -3": -3, "a > 0x10u": 16, "a < 1.5f": 1.5}[expression]
        assert {named - 1, named, named + 1} <= few and len(few) < 16


def test_what_a_map_tells_apart_is_there_as_often() -> None:
    for expression, dtype in (("a == -77777", "int32"), ("a > 1e6f", "float32")):
        counted = reduction_of("sum", dtype, None, Map(expression))
        data = make("named", counted, 1000)
        numbers = as_numbers(data, counted.dtype)
        kept = numbers == -77777 if dtype == "int32" else numbers > 1e6
        assert 400 < int(kept.sum()) < 600


def test_a_map_that_makes_the_same_of_all_shows_nothing() -> None:
    below = reduction_of("sum", "int32", None, Map("a < 0"))
    assert varies(below) and not varies(below, positive="positive")
    rare = reduction_of("sum", "int32", None, Map("a == 42"))
    assert varies(rare) and not varies(replace(rare, within=DTYPES["float32"]))


def test_every_name_makes_elements() -> None:
    total, least = reduction_of("sum", "float32"), reduction_of("min", "float32")
    made = [make(pattern, total, 100) for pattern in PATTERNS]
    made += [make(pattern, least, 100) for pattern in patterns_for(least, 100, 32)]
    assert {data.size for data in made} == {100}
    assert np.array_equal(make("random", total, 9, 2, 3), make("random", total, 9, 2, 3))


@pytest.mark.parametrize(
    "pattern", ["randum", "", "Random", "random:3", "extremum", "extremum:x", "tie"]
)
def test_another_name_is_an_error_of_the_program(pattern: str) -> None:
    with pytest.raises(ValueError):
        make(pattern, reduction_of("min", "float32"), 9)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["sum", "mean", "prod", "min", "argmax"])
@pytest.mark.parametrize("n", [1, 2, 33, 1000])
def test_what_verifies_has_elements_and_an_answer(op: str, dtype: str, n: int) -> None:
    reduction = reduction_of(op, dtype)
    patterns = patterns_for(reduction, n, 256)
    assert len(patterns) == len(set(patterns))
    for pattern in patterns:
        data = make(pattern, reduction, n, 3)
        assert data.dtype == reduction.dtype.storage
        ref = reference(reduction, data, 3)
        limit = bound(reduction, 9, ref, rounds_nothing(pattern, reduction))
        assert limit is not None
        assert (limit >= 0).all()


def test_special_values_are_tried_where_they_are_cheap() -> None:
    reduction = reduction_of("sum", "float32")
    assert "large" in patterns_for(reduction, 4097, 256)
    assert "large" in patterns_for(reduction, 3 * 8192 + 1, 8192)
    assert patterns_for(reduction, 65537, 256) == ["exact", "random", "positive"]
    assert patterns_for(reduction, 2**25, 2**25) == ["exact", "random", "positive"]
    assert not needs_schedules("-nan:4096")
    assert needs_schedules("tie:0,9")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_nan_keeps_its_sign(dtype: str) -> None:
    reduction = reduction_of("sum", dtype)
    numbers = as_numbers(make("-nan:3", reduction, 9), reduction.dtype)
    assert np.flatnonzero(np.isnan(numbers)).tolist() == [3]
    assert np.signbit(numbers[3])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pattern", ["rising", "one-sided", "close", "extremum:7", "zeros"])
def test_make_positive_in_the_order_that_there_was(dtype: str, pattern: str) -> None:
    reduction = reduction_of("max", dtype)
    if pattern == "zeros" and reduction.dtype.kind != "float":
        return
    data = make(pattern, reduction, 100)
    moved = make_positive(data, reduction)
    old, new = (as_numbers(some, reduction.dtype) for some in (data, moved))
    assert moved.dtype == data.dtype
    assert (new > 0).all()
    assert (np.diff(new[np.argsort(old, kind="stable")]) >= 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_neutral_positive_number_is_the_least(dtype: str) -> None:
    """So that a maximum shows which begins at some number that is merely small."""
    reduction = reduction_of("max", dtype)
    if reduction.dtype.kind != "uint":
        moved = make_positive(make("neutral", reduction, 3), reduction)
        assert moved.view(f"u{reduction.dtype.size}").tolist() == [1, 1, 1]


def test_a_nan_is_dropped_from_what_counts() -> None:
    for op, expected in (("min", 1.0), ("max", 2.0)):
        reduction = reduction_of(op, "float32")
        data = np.array([np.nan, 1, -np.nan, 2], np.float32)
        assert reference(reduction, without_nan(data, reduction), 1).expected == expected


@pytest.mark.parametrize("stored", ["float16", "bfloat16"])
@pytest.mark.parametrize("n", [1, 2, 3, 1000, 2**20])
def test_a_lost_element_shows_in_an_answer_of_16_bits(stored: str, n: int) -> None:
    reduction = replace(reduction_of("sum", stored), stored=DTYPES[stored])
    (data,) = make_all("exact", reduction, n, 2)
    ref = reference(reduction, data, 2).expected
    assert (as_answers(ref, reduction) == ref).all()
    for place in {0, n // 2, n - 1}:
        lost = data.copy()
        lost[place] = 0
        assert as_answers(reference(reduction, lost, 2).expected, reduction)[0] != ref[0]
