"""Input patterns: every name has elements, exact sums do not round, and values are within range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.inputs import (
    as_numbers,
    as_results,
    digits,
    is_exact,
    make,
    make_all,
    make_positive,
    varies,
    without_nan,
)
from cudareduce.reduction.operators import Map, Reduction, reduction_of
from cudareduce.reduction.patterns import PATTERNS, needs_schedules, patterns_for
from cudareduce.reduction.reference import bound, reference

FLOATS = ("float16", "bfloat16", "float32", "float64")
PRODUCT, SQUARE, DISTANCE = Map("a * b", 2), Map("a * a"), Map("(a - b) * (a - b)", 2)


def exact_units(dtype: str, n: int) -> np.ndarray:
    """The elements of an exact sum in their smallest unit."""
    reduction = reduction_of("sum", dtype)
    unit = 2.0**-24 if dtype == "float16" else 2.0**-60
    return as_numbers(make("exact", reduction, n), reduction.dtype).astype(np.float64) / unit


def test_columns_are_rows_transposed() -> None:
    rows = reduction_of("sum", "int32")
    columns = replace(rows, columns=True)
    (plain,), (turned,) = (make_all("random", one, 5, 3) for one in (rows, columns))
    assert (plain.reshape(3, 5) == turned.reshape(5, 3).T).all()
    expected = reference(rows, plain, 3).expected
    assert (reference(columns, turned, 3).expected == expected).all()


def test_every_pattern_has_elements_and_a_seed_repeats_them() -> None:
    total, least = reduction_of("sum", "float32"), reduction_of("min", "float32")
    made = [make(pattern, total, 100) for pattern in PATTERNS]
    made += [make(pattern, least, 100) for pattern in patterns_for(least, 100, 32)]
    assert {data.size for data in made} == {100}
    assert np.array_equal(make("random", total, 9, 2, 3), make("random", total, 9, 2, 3))
    a, b = make_all("random", reduction_of("sum", "float32", None, PRODUCT), 100)
    assert (a != b).all()


@pytest.mark.parametrize(
    "pattern", ["randum", "", "Random", "random:3", "extremum", "extremum:x", "tie"]
)
def test_an_unknown_pattern_is_an_error(pattern: str) -> None:
    with pytest.raises(ValueError):
        make(pattern, reduction_of("min", "float32"), 9)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["sum", "mean", "prod", "min", "argmax"])
def test_verification_patterns_have_a_bound(op: str, dtype: str) -> None:
    reduction = reduction_of(op, dtype)
    for n in (1, 2, 33, 1000):
        patterns = patterns_for(reduction, n, 256)
        assert len(patterns) == len(set(patterns))
        for pattern in patterns:
            data = make(pattern, reduction, n, 3)
            assert data.dtype == reduction.dtype.storage
            ref = reference(reduction, data, 3)
            limit = bound(reduction, 9, ref, is_exact(pattern, reduction))
            assert limit is not None and (limit >= 0).all(), (n, pattern)


def test_special_values_are_tried_at_small_sizes() -> None:
    reduction = reduction_of("sum", "float32")
    assert "large" in patterns_for(reduction, 4097, 256)
    assert "large" in patterns_for(reduction, 3 * 8192 + 1, 8192)
    assert patterns_for(reduction, 65537, 256) == ["exact", "random", "positive"]
    assert patterns_for(reduction, 2**25, 2**25) == ["exact", "random", "positive"]
    assert not needs_schedules("-nan:4096")
    assert needs_schedules("tie:0,9")


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_keeps_its_sign_and_may_be_replaced(dtype: str) -> None:
    reduction = reduction_of("sum", dtype)
    numbers = as_numbers(make("-nan:3", reduction, 9), reduction.dtype)
    assert np.flatnonzero(np.isnan(numbers)).tolist() == [3]
    assert np.signbit(numbers[3])
    for op, expected in (("min", 1.0), ("max", 2.0)):
        reduction = reduction_of(op, "float32")
        data = np.array([np.nan, 1, -np.nan, 2], np.float32)
        assert reference(reduction, without_nan(data, reduction), 1).expected == expected


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pattern", ["rising", "one-sided", "close", "extremum:7", "zeros"])
def test_positive_elements_keep_their_order(dtype: str, pattern: str) -> None:
    reduction = reduction_of("max", dtype)
    if pattern == "zeros" and reduction.dtype.kind != "float":
        return
    data = make(pattern, reduction, 100)
    moved = make_positive(data, reduction)
    old, new = (as_numbers(some, reduction.dtype) for some in (data, moved))
    assert moved.dtype == data.dtype
    assert (new > 0).all()
    assert (np.diff(new[np.argsort(old, kind="stable")]) >= 0).all()
    if reduction.dtype.kind != "uint":  # so that a maximum that starts at a small number shows
        moved = make_positive(make("neutral", reduction, 3), reduction)
        assert moved.view(f"u{reduction.dtype.size}").tolist() == [1, 1, 1]


# Exact sums


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [1, 2, 33, 4096, 4097, 65537, 1000003])
def test_all_magnitudes_of_an_exact_sum_fit_the_accumulator(dtype: str, n: int) -> None:
    reduction, whole = reduction_of("sum", dtype), exact_units(dtype, n)
    assert (whole % 2 == 1).all()
    assert np.abs(whole).sum() <= 2.0 ** digits(reduction.acc)
    if n > 1000:  # some elements that a 16-bit sum would round
        assert np.abs(whole).max() >= 2 ** min(digits(reduction.dtype), 13) - 7


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_random_signs_keep_large_exact_sums_in_range(dtype: str) -> None:
    whole = exact_units(dtype, 2**22)
    assert (whole % 2 == 1).all()
    assert np.abs(np.cumsum(whole)).max() < 2**24
    assert np.abs(whole).max() > 2**9


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("pattern", ["exact", "large"])
def test_a_sum_in_the_accumulators_type_is_the_reference(dtype: str, pattern: str) -> None:
    reduction = reduction_of("sum", dtype)
    assert is_exact(pattern, reduction)
    data = make(pattern, reduction, 4097)
    serial = np.cumsum(as_numbers(data, reduction.dtype), dtype=reduction.acc.storage)[-1]
    assert serial == reference(reduction, data, 1).expected[0]
    assert np.isfinite(serial)


def test_float16_sums_leave_their_range() -> None:
    reduction = reduction_of("sum", "float16")
    assert reference(reduction, make("large", reduction, 33), 1).expected[0] > 65504
    assert np.abs(make("exact", reduction, 33)).min() < 2.0**-14  # subnormal


def test_a_product_is_bounded_by_the_number_of_its_factors() -> None:
    reduction = reduction_of("prod", "float32")
    data = make("spread", reduction, 4097)
    ref = reference(reduction, data, 1)
    limit = bound(reduction, 4097, ref, is_exact("spread", reduction))
    error = abs(float(np.prod(data, dtype=np.float32)) - float(ref.expected[0]))
    assert limit is not None
    assert 0 < error <= limit[0] < 1e-3 * abs(float(ref.expected[0]))
    assert is_exact("random", reduction)


@pytest.mark.parametrize("stored", ["float16", "bfloat16"])
@pytest.mark.parametrize("n", [1, 2, 3, 1000, 2**20])
def test_a_lost_element_shows_in_a_16_bit_result(stored: str, n: int) -> None:
    reduction = replace(reduction_of("sum", stored), stored=DTYPES[stored])
    (data,) = make_all("exact", reduction, n, 2)
    ref = reference(reduction, data, 2).expected
    assert (as_results(ref, reduction) == ref).all()
    for index in {0, n // 2, n - 1}:
        lost = data.copy()
        lost[index] = 0
        assert as_results(reference(reduction, lost, 2).expected, reduction)[0] != ref[0]


@pytest.mark.parametrize(
    ("mapped", "n", "dtype"),
    [
        *product((PRODUCT, SQUARE, Map("fabs(a)"), DISTANCE), (1, 1025, 2**20), FLOATS),
        (PRODUCT, 2**22 + 1, "float32"), (SQUARE, 2**22 + 1, "float32"),
        pytest.param(DISTANCE, 2**25, "float32", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_transformed_exact_elements_add_up_without_rounding(
    mapped: Map, n: int, dtype: str
) -> None:
    reduction = reduction_of("sum", dtype, None, mapped)
    data = make_all("exact", reduction, n, 1, 7)
    ref = reference(reduction, data[0], 1, *data[1:])
    assert ref.exact
    limit = bound(reduction, 10**9, ref, False)
    assert limit is not None and limit[0] == 0
    assert np.count_nonzero(as_numbers(data[0], reduction.dtype)) > n // 20


# Literals of a transform


@pytest.mark.parametrize(
    ("expression", "dtype", "literal"),
    [("a == -3", "int32", -3), ("a > 0x10u", "uint8", 16), ("a < 1.5f", "float16", 1.5)],
)
def test_inputs_have_the_literals_of_a_transform(
    expression: str, dtype: str, literal: float
) -> None:
    reduction = reduction_of("sum", dtype, None, Map(expression))
    assert "named" in patterns_for(reduction, 1000, 256)
    few = set(as_numbers(make("named", reduction, 1000), reduction.dtype).tolist())
    assert {literal - 1, literal, literal + 1} <= few and len(few) < 16


@pytest.mark.parametrize(
    ("expression", "dtype", "counts"),
    [("a == -77777", "int32", lambda a: a == -77777), ("a > 1e6f", "float32", lambda a: a > 1e6)],
)
def test_each_value_of_a_transform_is_as_frequent(
    expression: str, dtype: str, counts: Callable[[np.ndarray], np.ndarray]
) -> None:
    reduction = reduction_of("sum", dtype, None, Map(expression))
    numbers = as_numbers(make("named", reduction, 1000), reduction.dtype)
    assert 400 < int(counts(numbers).sum()) < 600


def test_a_transform_that_is_constant_on_the_inputs_does_not_vary() -> None:
    below = reduction_of("sum", "int32", None, Map("a < 0"))
    assert varies(below) and not varies(below, positive="positive")
    rare = reduction_of("sum", "int32", None, Map("a == 42"))
    assert varies(rare) and not varies(replace(rare, within=DTYPES["float32"]))


# Elements whose sums fit a narrower type

WITHIN = [
    ("int32", "int64", "int32", None), ("int32", "int32", "float32", None),
    ("uint32", "uint64", "int32", None), ("int64", "int64", "float32", None),
    ("int8", "int32", "float32", None), ("float16", "float32", "float16", None),
    ("bfloat16", "float32", "bfloat16", None), ("float16", "float32", "float16", PRODUCT),
    ("float16", "float32", "float16", SQUARE), ("int32", "int64", "int32", PRODUCT),
    ("bfloat16", "float32", "bfloat16", DISTANCE),
]  # fmt: skip
SIZES = (1, 2, 3, 4, 5, 31, 256, 1000, 2049, 70000)


def within(dtype: str, acc: str, narrow: str, mapped: Map | None) -> Reduction:
    return replace(reduction_of("sum", dtype, acc, mapped), within=DTYPES[narrow])


def values(reduction: Reduction, n: int, rows: int, pattern: str) -> np.ndarray:
    """The transformed elements as float64, row by row."""
    data = make_all(pattern, reduction, n, rows, 5)
    a, *b = (as_numbers(one, reduction.dtype).astype(float).reshape(rows, n) for one in data)
    expression = reduction.map.expression if reduction.map else "a"
    return np.asarray(eval(expression, {"a": a, "b": b[0] if b else None}))


@pytest.mark.parametrize(("dtype", "acc", "narrow", "mapped"), WITHIN)
def test_sums_fit_a_narrower_type_and_nearly_fill_it(
    dtype: str, acc: str, narrow: str, mapped: Map | None
) -> None:
    reduction = within(dtype, acc, narrow, mapped)
    most, largest = 2.0 ** digits(DTYPES[narrow]), 0.0
    for pattern in ("exact", "random", "ones"):
        for n in SIZES:
            for row in np.abs(values(reduction, n, 2, pattern)):
                alone = np.count_nonzero(row) == 1 and np.frexp(row.max())[0] == 0.5
                assert alone or row.sum() <= most, n
                assert (row == np.trunc(row)).all()
                largest = max(largest, row.max())
    assert largest >= min(most, 2.0 ** (8 * DTYPES[dtype].size - 1)) / (8 if mapped else 4)


@pytest.mark.parametrize(("dtype", "acc", "narrow", "mapped"), WITHIN[:7])
def test_both_ends_of_a_long_row_are_not_zero(
    dtype: str, acc: str, narrow: str, mapped: Map | None
) -> None:
    row = values(within(dtype, acc, narrow, mapped), 70001, 1, "ones")[0]
    assert (row[0] and row[-1]) or np.count_nonzero(row) == 1


def test_fitted_elements_keep_infinities_nan_and_a_missing_sign() -> None:
    unsigned = within("int32", "int64", "int32", None)
    assert all((values(unsigned, n, 1, "positive") >= 0).all() for n in SIZES)
    reduction = within("float16", "float32", "float16", None)
    assert np.isnan(values(reduction, 100, 1, "nan:3")[0, 3])
    assert values(reduction, 100, 1, "-inf:0,99")[0, 99] == -np.inf
