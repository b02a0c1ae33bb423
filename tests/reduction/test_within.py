"""Elements that fit a narrower type: no sum of them leaves it, and what adds in less is told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.inputs import as_numbers, digits, make_all
from cudareduce.reduction.operators import Map, Reduction, reduction_of

SUMS = [
    ("int32", "int64", "int32", None), ("int32", "int32", "float32", None),
    ("uint32", "uint64", "int32", None), ("int64", "int64", "float32", None),
    ("int8", "int32", "float32", None), ("float16", "float32", "float16", None),
    ("bfloat16", "float32", "bfloat16", None), ("float16", "float32", "float16", Map("a * b", 2)),
    ("float16", "float32", "float16", Map("a * a")), ("int32", "int64", "int32", Map("a * b", 2)),
    ("bfloat16", "float32", "bfloat16", Map("(a - b) * (a - b)", 2)),
]  # fmt: skip
SIZES = (1, 2, 3, 4, 5, 31, 256, 1000, 2049, 70000)


def within(dtype: str, acc: str, narrow: str, mapped: Map | None) -> Reduction:
    return replace(reduction_of("sum", dtype, acc, mapped), within=DTYPES[narrow])


def values(reduction: Reduction, n: int, rows: int, pattern: str) -> np.ndarray:
    """What is added up, as float64, row by row."""
    made = make_all(pattern, reduction, n, rows, 5)
    a, *b = (as_numbers(one, reduction.dtype).astype(float).reshape(rows, n) for one in made)
    expression = reduction.map.expression if reduction.map else "a"
    return np.asarray(eval(expression, {"a": a, "b": b[0] if b else None}))


@pytest.mark.parametrize("pattern", ["exact", "random", "ones"])
@pytest.mark.parametrize(("dtype", "acc", "narrow", "mapped"), SUMS)
def test_no_sum_leaves_the_type(
    dtype: str, acc: str, narrow: str, mapped: Map | None, pattern: str
) -> None:
    reduction = within(dtype, acc, narrow, mapped)
    most = 2.0 ** digits(DTYPES[narrow])
    for n in SIZES:
        for row in np.abs(values(reduction, n, 2, pattern)):
            alone = np.count_nonzero(row) == 1 and np.frexp(row.max())[0] == 0.5
            assert alone or row.sum() <= most, n
            assert (row == np.trunc(row)).all()


@pytest.mark.parametrize(("dtype", "acc", "narrow", "mapped"), SUMS)
def test_what_has_a_bit_less_is_told(dtype: str, acc: str, narrow: str, mapped: Map | None) -> None:
    """At one of the sizes at least there is more than half of what the type holds."""
    reduction = within(dtype, acc, narrow, mapped)
    most = min(2.0 ** digits(DTYPES[narrow]), 2.0 ** (8 * DTYPES[dtype].size - 1))
    largest = max(np.abs(values(reduction, n, 1, "random")).max() for n in SIZES)
    assert largest >= most / (8 if mapped else 4)


@pytest.mark.parametrize(("dtype", "acc", "narrow", "mapped"), SUMS[:7])
def test_however_many_there_are_both_ends_show(
    dtype: str, acc: str, narrow: str, mapped: Map | None
) -> None:
    row = values(within(dtype, acc, narrow, mapped), 70001, 1, "ones")[0]
    ends = row[0] and row[-1]
    assert ends or np.count_nonzero(row) == 1


def test_what_has_no_sign_gets_none() -> None:
    reduction = within("int32", "int64", "int32", None)
    assert all((values(reduction, n, 1, "positive") >= 0).all() for n in SIZES)


def test_infinities_and_nan_stay() -> None:
    reduction = within("float16", "float32", "float16", None)
    assert np.isnan(values(reduction, 100, 1, "nan:3")[0, 3])
    assert values(reduction, 100, 1, "-inf:0,99")[0, 99] == -np.inf
