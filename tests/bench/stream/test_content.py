"""What an array holds is known part by part, and adds up to what is known of the whole."""

from __future__ import annotations

import numpy as np
import pytest

from cudareduce.bench.stream import source
from cudareduce.bench.stream.source import cut_points, joined, read_content
from cudareduce.reduction.inputs import as_numbers
from cudareduce.reduction.operators import reduction_of
from cudareduce.reduction.reference import reference


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_STEP", 1000)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint64"])
@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
@pytest.mark.parametrize("pattern", ["random", "exact"])
def test_parts_add_up_to_the_whole(op: str, dtype: str, pattern: str) -> None:
    reduction = reduction_of(op, dtype)
    array = np.empty(4321, reduction.dtype.storage)
    steps: list[None] = []
    cuts = cut_points(4321, [17, 1234, 4321])
    known = read_content(array, reduction, cuts, lambda: steps.append(None), pattern, 1)
    whole = reference(reduction, array, 1)
    assert len(steps) == len(known.parts) == 7
    for start, end in ((0, 17), (17, 1234), (1000, 4321), (0, 4321)):
        right = reference(reduction, array[start:end], 1)
        np.testing.assert_allclose(
            known.of(start, end).expected.astype(float), right.expected.astype(float),
            rtol=1e-9, atol=1e-9,
        )  # fmt: skip
    assert known.of(0, 4321).expected.dtype.kind == whole.expected.dtype.kind
    again = read_content(array, reduction, cut_points(4321, [2000]), lambda: None)
    np.testing.assert_allclose(
        again.of(0, 4321).expected.astype(float), known.of(0, 4321).expected.astype(float)
    )


@pytest.mark.parametrize("n", [3000, 2**21 - 1, 2**22 + 5])
def test_no_sum_of_exact_elements_is_rounded(n: int) -> None:
    reduction = reduction_of("sum", "float32")
    array = np.empty(n, np.float32)
    read_content(array, reduction, cut_points(n, []), lambda: None, "exact", 3)
    numbers = as_numbers(array, reduction.dtype)
    assert (numbers != 0).all()
    in_order = np.cumsum(numbers, dtype=np.float32)
    assert in_order[-1] == numbers.sum(dtype=np.float64)


def test_integers_wrap_across_parts() -> None:
    reduction = reduction_of("sum", "int32")
    array = np.full(3000, 2**30, np.int32)
    content = read_content(array, reduction, cut_points(3000, []), lambda: None)
    assert content.of(0, 3000).expected == array.sum(dtype=np.int32)


def test_a_nan_of_one_part_is_one_of_the_whole() -> None:
    reduction = reduction_of("max", "float32")
    parts = [reference(reduction, np.array([x], np.float32), 1) for x in (1, np.nan, 3)]
    assert np.isnan(joined(reduction, parts).expected).all()
