"""Streamed arrays: .npy files, and the reference results of an array's parts."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from cudareduce.bench.stream import source
from cudareduce.bench.stream.source import (
    cached_share,
    cut_points,
    merge_references,
    read_content,
    read_header,
)
from cudareduce.errors import UsageError
from cudareduce.reduction.inputs import as_numbers
from cudareduce.reduction.operators import reduction_of
from cudareduce.reduction.reference import reference


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_STEP", 1000)


@pytest.mark.usefixtures("short_parts")
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


def test_integers_wrap_across_parts(short_parts: None) -> None:
    reduction = reduction_of("sum", "int32")
    array = np.full(3000, 2**30, np.int32)
    content = read_content(array, reduction, cut_points(3000, []), lambda: None)
    assert content.of(0, 3000).expected == array.sum(dtype=np.int32)


def test_a_nan_of_a_part_is_the_result_of_the_whole() -> None:
    reduction = reduction_of("max", "float32")
    parts = [reference(reduction, np.array([x], np.float32), 1) for x in (1, np.nan, 3)]
    assert np.isnan(merge_references(reduction, parts).expected).all()


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "int8", "uint64"])
@pytest.mark.parametrize("shape", [(7,), (3, 5), (), (1, 4, 1)])
def test_a_file_has_type_shape_and_elements(
    tmp_path: Path, kind: str, shape: tuple[int, ...]
) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(kind)
    np.save(tmp_path / "a.npy", array)
    file = read_header(tmp_path / "a.npy")
    assert (file.dtype.name, file.shape, file.n) == (kind, shape, array.size)
    assert file.mapped().tobytes() == array.tobytes()
    assert cached_share(file.mapped()) in (None, 1.0)


def test_a_long_header_is_read(tmp_path: Path) -> None:
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, np.ones(5, np.float32), version=(2, 0))
    assert read_header(tmp_path / "a.npy").n == 5


def test_columns_of_one_element_are_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.asfortranarray(np.ones((5, 1))))
    assert read_header(tmp_path / "a.npy").n == 5


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.array([None, 1]), "Python objects"),
        (np.asfortranarray(np.ones((3, 4))), "Fortran order"),
        (np.ones(0), "no elements"),
        (np.zeros(3, [("a", "f4"), ("b", "i4")]), "several fields"),
        (np.zeros(3, ">f4"), "byte order"),
        (np.zeros(3, np.int16), "holds int16, and kernels take float32"),
        (np.zeros(3, bool), "holds bool"),
        (np.zeros(3, "U4"), "kernels take"),
        (np.zeros(3, np.complex64), "kernels take"),
    ],
)
def test_unsupported_arrays_are_refused(tmp_path: Path, array: np.ndarray, said: str) -> None:
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(UsageError, match=said):
        read_header(tmp_path / "a.npy")


@pytest.mark.parametrize("length", [0, 5, 9, 60, 127, 200])
def test_a_truncated_file_is_refused(tmp_path: Path, length: int) -> None:
    np.save(tmp_path / "whole.npy", np.ones(100, np.float32))
    (tmp_path / "a.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:length])
    with pytest.raises(UsageError, match=r"cut short|header is broken"):
        read_header(tmp_path / "a.npy")


@pytest.mark.parametrize(
    "header",
    [b"{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}", b"[" * 60,
     b"{'descr': '<f4', 'fortran_order': False, 'shape': (9" + b"9" * 40 + b",)}",
     b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + (b"9" * 3000 + b",") * 2 + b")}",
     b"__import__('os')", b"{'descr': 3, 'fortran_order': 0, 'shape': 1}"],
)  # fmt: skip
def test_wrong_headers_are_refused(tmp_path: Path, header: bytes) -> None:
    text = header.ljust(117) + b"\n"
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    with pytest.raises(UsageError):
        read_header(tmp_path / "a.npy")


def test_other_kinds_of_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    np.savez(tmp_path / "several.npz", a=np.ones(3))
    for name in ("pipe", "none.npy", "several.npz", "."):
        with pytest.raises(UsageError):
            read_header(tmp_path / name)
