"""Elements no sum of which is rounded: what is promised of them, in digits of the accumulator."""

from __future__ import annotations

import numpy as np
import pytest

from cudareduce.reduction.inputs import as_numbers, digits, make, rounds_nothing
from cudareduce.reduction.operators import reduction_of
from cudareduce.reduction.reference import bound, reference

FLOATS = ("float16", "bfloat16", "float32", "float64")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [1, 2, 33, 4096, 4097, 65537, 1000003])
def test_all_magnitudes_together_fit_the_accumulator(dtype: str, n: int) -> None:
    reduction = reduction_of("sum", dtype)
    unit = 2.0**-24 if dtype == "float16" else 2.0**-60
    whole = as_numbers(make("exact", reduction, n), reduction.dtype).astype(np.float64) / unit
    assert (whole % 2 == 1).all()
    assert np.abs(whole).sum() <= 2.0 ** digits(reduction.acc)
    if n > 1000:  # some that a 16-bit sum would cut
        assert np.abs(whole).max() >= 2 ** min(digits(reduction.dtype), 13) - 7


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_beyond_that_random_signs_keep_sums_in_range(dtype: str) -> None:
    reduction, n = reduction_of("sum", dtype), 2**22
    unit = 2.0**-24 if dtype == "float16" else 2.0**-60
    whole = make("exact", reduction, n).astype(np.float64) / unit
    assert (whole % 2 == 1).all()
    assert np.abs(np.cumsum(whole)).max() < 2**24
    assert np.abs(whole).max() > 2**9


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("pattern", ["exact", "large"])
def test_a_sum_in_the_accumulators_type_is_the_reference(dtype: str, pattern: str) -> None:
    reduction = reduction_of("sum", dtype)
    assert rounds_nothing(pattern, reduction)
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
    limit = bound(reduction, 4097, ref, rounds_nothing("spread", reduction))
    error = abs(float(np.prod(data, dtype=np.float32)) - float(ref.expected[0]))
    assert limit is not None
    assert 0 < error <= limit[0] < 1e-3 * abs(float(ref.expected[0]))
    assert rounds_nothing("random", reduction)
