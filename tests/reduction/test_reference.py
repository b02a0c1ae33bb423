"""The reference answers: wide, by rows, in order, and defined for nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cudareduce.reduction.inputs import make
from cudareduce.reduction.operators import reduction_of
from cudareduce.reduction.reference import bound, max_bounded_size, reference


def test_float64_sums_are_as_accurate_as_fsum() -> None:
    reduction = reduction_of("sum", "float64")
    data = np.random.default_rng(0).normal(size=30000) * 10.0 ** np.arange(-15, 15).repeat(1000)
    for rows in (1, 3, 30000):
        found = reference(reduction, data, rows).expected
        exact = [math.fsum(row) for row in data.reshape(rows, -1)]
        assert np.abs(found - np.array(exact)).max() <= 2**-53 * np.abs(exact).max()


def test_magnitudes_are_sums_of_absolute_values() -> None:
    data = make("random", reduction_of("sum", "float32"), 1000, 7)
    found = reference(reduction_of("sum", "float32"), data, 7).magnitude
    assert found == pytest.approx(np.abs(data.reshape(7, 1000)).sum(1, dtype="float64"))


def test_a_sum_of_int32_wraps_as_numpys_does_and_a_wider_one_does_not() -> None:
    data = np.full(3, 2**31 - 1, np.int32)
    narrow = reference(reduction_of("sum", "int32"), data, 1).expected[0]
    assert narrow == data.sum(dtype=np.int32) == 2**31 - 3
    assert reference(reduction_of("sum", "int32", "int64"), data, 1).expected[0] == 3 * (2**31 - 1)


@pytest.mark.parametrize("op", ["matmul", "affine"])
def test_noncommutative_operators_are_combined_in_order(op: str) -> None:
    reduction = reduction_of(op, "uint32")
    data = make("random", reduction, 11, 3)
    expected = []
    for row in data.reshape(3, 11):
        if op == "matmul":
            product = np.eye(2, dtype=np.uint32)
            for x in row:
                product = product @ np.array([[x, 1], [1, 0]], np.uint32)
            expected.append(product.reshape(-1).tolist())
        else:
            scale, shift = 1, 0
            for x in map(int, row):
                scale, shift = (2 * x + 1) * scale % 2**32, ((2 * x + 1) * shift + x + 1) % 2**32
            expected.append([scale, shift])
    assert reference(reduction, data, 3).expected.tolist() == expected
    assert reference(reduction, data[::-1].copy(), 3).expected.tolist() != expected


@pytest.mark.parametrize(
    ("op", "dtype", "answer"),
    [("sum", "float32", 0), ("prod", "int32", 1), ("min", "float64", np.inf),
     ("max", "int32", -(2**31)), ("argmin", "float32", -1), ("mean", "float32", np.nan)],
)  # fmt: skip
def test_an_empty_input_has_a_result(op: str, dtype: str, answer: float) -> None:
    reduction = reduction_of(op, dtype)
    found = reference(reduction, np.empty(0, reduction.dtype.storage), 2).expected
    np.testing.assert_array_equal(found, [answer, answer])


def test_extrema_are_numpys() -> None:
    data = np.array([1, np.nan, -np.inf, 5, np.nan, 5], "float32")
    for op in ("min", "max", "argmin", "argmax"):
        found = reference(reduction_of(op, "float32"), data, 2).expected
        np.testing.assert_array_equal(found, getattr(np, op)(data.reshape(2, 3), axis=1))


def test_an_error_bound_grows_with_depth_until_it_is_useless() -> None:
    reduction = reduction_of("sum", "float32")
    ref = reference(reduction, np.ones(8, "float32"), 1)
    assert bound(reduction, 10, ref, False) == pytest.approx([10 * 2**-24 * 8], rel=1e-5)
    assert bound(reduction, 10, ref, True) == pytest.approx([0])
    assert bound(reduction, 200_000, ref, False) is None
    exact = reference(reduction_of("sum", "int32"), np.ones(8, "int32"), 1)
    assert bound(reduction_of("sum", "int32"), 200_000, exact, False) == pytest.approx([0])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_infinities_and_nan_are_ieees(dtype: str) -> None:
    rows = [[1, np.inf, 2], [np.inf, 1, -np.inf], [1, np.nan, 2], [1, 2, 3]]
    for op, last in (("sum", 6), ("mean", 2), ("prod", 6)):
        reduction = reduction_of(op, dtype)
        ref = reference(reduction, np.array(rows, dtype).reshape(-1), 4)
        second = -np.inf if op == "prod" else np.nan
        np.testing.assert_array_equal(ref.expected, [np.inf, second, np.nan, last])
        limit = bound(reduction, 5, ref, False)
        assert limit is not None
        assert limit[:3].tolist() == [0, 0, 0]
        assert limit[3] > 0


def test_a_mean_may_be_a_product_with_the_reciprocal_of_the_count() -> None:
    reduction, n = reduction_of("mean", "float32"), 1000003
    total = np.float32(0.6369617)  # of which the product is off by 1.2 roundings
    values = np.zeros(n, "float32")
    values[7] = total
    ref = reference(reduction, values, 1)
    limit = bound(reduction, 0, ref, True)
    assert limit is not None
    reciprocal = np.float32(1) / np.float32(n)
    assert abs(float(total * reciprocal) - float(ref.expected[0])) <= limit[0]


def test_the_lowest_integer_has_a_magnitude() -> None:
    ref = reference(reduction_of("mean", "int8"), np.full(9, -128, np.int8), 1)
    assert ref.magnitude == pytest.approx([128])


def test_packed_transforms_are_combined_in_order() -> None:
    reduction = reduction_of("affine16", "int32")
    data = make("random", reduction, 11, 3)
    expected = []
    for row in data.view(np.uint32).reshape(3, 11).tolist():
        scale, shift = 1, 0
        for word in row:
            factor = 2 * (word & 0xFFFF) + 1
            scale, shift = factor * scale % 2**17, (factor * shift + (word >> 16)) % 2**16
        expected.append(shift << 16 | (scale - 1) // 2)
    found = reference(reduction, data, 3).expected
    assert found.dtype == np.int32
    assert found.view(np.uint32).tolist() == expected


def test_of_what_is_rounded_one_by_one_a_bound_says_something_up_to_a_number() -> None:
    assert max_bounded_size(reduction_of("sum", "float32")) == 2048
    assert max_bounded_size(reduction_of("mean", "float32")) == 65536
    assert max_bounded_size(reduction_of("sum", "int32")) > 2**60
