"""What a map makes of elements: values, how far roundings may move them, and what is exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.inputs import as_numbers, make_all
from cudareduce.reduction.operators import OPERATORS, Map, Reduction, reduction_of
from cudareduce.reduction.reference import bound, reference
from cudareduce.reduction.transforms import fold_mapped

Array = np.ndarray
Of = Callable[..., Array]
PRODUCT, SQUARE, MAGNITUDE = Map("a * b", 2), Map("a * a"), Map("fabs(a)")
DISTANCE = Map("(a - b) * (a - b)", 2)


def random(reduction: Reduction, n: int) -> tuple[Array, ...]:
    return make_all("random", reduction, n, 1, 3)


_CLAMP = Map("a > 0 ? a : 0")
_IN_NUMPY: dict[Map, Of] = {
    PRODUCT: lambda a, b: a * b,
    SQUARE: lambda a: a * a,
    DISTANCE: lambda a, b: (a - b) * (a - b),
    _CLAMP: lambda a: np.maximum(a, a * 0),
}


@pytest.mark.parametrize(
    ("op", "mapped", "dtype"),
    [
        *(("sum", PRODUCT, dtype) for dtype in ("float32", "float64", "float16", "bfloat16")),
        *(("sum", mapped, "int32") for mapped in _IN_NUMPY),
        *((op, mapped, "float32") for op in ("max", "min") for mapped in (DISTANCE, _CLAMP)),
        *(("sum", mapped, "uint8") for mapped in (SQUARE, DISTANCE)),
        ("max", PRODUCT, "bfloat16"),
        ("min", SQUARE, "float16"),
    ],
)
def test_a_map_is_what_it_says(op: str, mapped: Map, dtype: str) -> None:
    reduction = reduction_of(op, dtype, None, mapped)
    given = random(reduction, 1000)
    wide = reduction.acc.storage if reduction.acc.kind != "float" else "longdouble"
    numbers = [as_numbers(array, reduction.dtype).astype(wide) for array in given]
    values = _IN_NUMPY[mapped](*numbers)
    right = values.sum(dtype=values.dtype) if op == "sum" else getattr(values, op)()
    found = reference(reduction, given[0], 1, *given[1:])
    assert abs(found.expected[0] - right) <= 1e-15 * abs(right)


@pytest.mark.parametrize("n", [1, 1000, 70001])
@pytest.mark.parametrize("mapped", [PRODUCT, SQUARE, MAGNITUDE, DISTANCE])
def test_the_accumulators_own_arithmetic_stays_within_the_bound(mapped: Map, n: int) -> None:
    reduction = reduction_of("sum", "float32", None, mapped)
    a, *rest = random(reduction, n)
    b = rest[0] if rest else a
    values = {PRODUCT: a * b, SQUARE: a * a, MAGNITUDE: np.abs(a)}.get(mapped, (a - b) * (a - b))
    found = reference(reduction, a, 1, *rest)
    limit = bound(reduction, 20, found, False)  # as deep as pairs of pairs, and so on, are
    assert limit is not None
    error = abs(float(np.add.reduce(values)) - float(found.expected[0]))
    assert error <= limit[0]
    assert limit[0] < 1e-4 * np.abs(values).sum()


def test_a_product_is_one_rounding_more() -> None:
    found = fold_mapped(reduction_of("sum", "float32", None, SQUARE), (np.array([[0.1]], "f4"),))
    assert found.magnitude is not None
    assert found.slack is not None
    assert found.slack[0] == pytest.approx(2.0**-24 * found.magnitude[0], rel=1e-6)


def test_what_cancels_in_a_map_is_bounded_by_what_cancelled() -> None:
    mapped = Map("a * b - a * a", 2)
    a = np.full((1, 1), 1 / 3, "f4")
    found = fold_mapped(reduction_of("sum", "float32", None, mapped), (a, a))
    assert found.answer[0] == 0
    assert found.slack is not None
    assert found.slack[0] >= 2.0**-24 / 9


@pytest.mark.parametrize(
    ("mapped", "n", "dtype"),
    [
        *((mapped, n, dtype) for mapped in (PRODUCT, SQUARE, MAGNITUDE, DISTANCE)
          for n in (1, 1025) for dtype in ("float32", "float16")),
        *((PRODUCT, 1025, dtype) for dtype in ("float64", "bfloat16")),
        *((mapped, 2**20, "float16") for mapped in (PRODUCT, DISTANCE)),
        pytest.param(SQUARE, 2**22 + 1, "float32", marks=pytest.mark.long),
        pytest.param(DISTANCE, 2**25, "float32", marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_exact_stays_exact(mapped: Map, n: int, dtype: str) -> None:
    reduction = reduction_of("sum", dtype, None, mapped)
    given = make_all("exact", reduction, n, 1, 7)
    found = reference(reduction, given[0], 1, *given[1:])
    assert found.exact
    limit = bound(reduction, 10**9, found, False)
    assert limit is not None
    assert limit[0] == 0
    assert np.count_nonzero(as_numbers(given[0], reduction.dtype)) > n // 20


def test_a_map_that_rounds_everything_has_nothing_exact() -> None:
    reduction = reduction_of("sum", "float32", None, Map("sqrt(a * a + 0.1f)"))
    given = make_all("exact", reduction, 1000)
    assert reference(reduction, given[0], 1).exact is False


def test_what_leaves_the_range_is_not_judged() -> None:
    reduction = reduction_of("sum", "float32", None, Map("exp(a)"))
    data = np.array([1000.0], "f4")
    assert bound(reduction, 1, reference(reduction, data, 1), False) is None


def test_rows_have_answers_of_their_own() -> None:
    reduction = reduction_of("mean", "int32", None, PRODUCT)
    a, b = np.arange(6, dtype="i4"), np.full(6, 2, "i4")
    assert reference(reduction, a, 2, b).expected.tolist() == [2.0, 8.0]


@pytest.mark.parametrize(
    ("dtype", "acc"),
    [("float32", "int32"), ("float16", "uint32"), ("float64", "uint64"), ("int32", "uint32")],
)
def test_what_only_counts_has_elements_as_they_are(dtype: str, acc: str) -> None:
    below = Map("a < 0.5 ? 1u : 0")
    reduction = Reduction(OPERATORS["sum"], DTYPES[dtype], DTYPES[acc], below)
    assert reduction.why_undefined() is None
    (given,) = random(reduction, 1000)
    counted = fold_mapped(reduction, (as_numbers(given, reduction.dtype).reshape(1, -1),)).answer
    assert counted == np.count_nonzero(as_numbers(given, reduction.dtype) < 0.5)
    unmapped = replace(reduction, map=None).why_undefined() or ""
    assert ("by a map" in unmapped) == dtype.startswith("float")


def test_the_second_input_is_another_one() -> None:
    a, b = make_all("random", reduction_of("sum", "float32", None, PRODUCT), 100)
    assert (a != b).all()
