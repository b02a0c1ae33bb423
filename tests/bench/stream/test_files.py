"""Files are read by what their headers say, and what will not do is told in a sentence."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from cudareduce.bench.stream.source import cached_share, read_header
from cudareduce.errors import UsageError


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "int8", "uint64"])
@pytest.mark.parametrize("shape", [(7,), (3, 5), (), (1, 4, 1)])
def test_a_file_is_its_elements(tmp_path: Path, kind: str, shape: tuple[int, ...]) -> None:
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
def test_what_kernels_do_not_take(tmp_path: Path, array: np.ndarray, said: str) -> None:
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(UsageError, match=said):
        read_header(tmp_path / "a.npy")


@pytest.mark.parametrize("length", [0, 5, 9, 60, 127, 200])
def test_what_is_cut_short(tmp_path: Path, length: int) -> None:
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
def test_headers_that_lie(tmp_path: Path, header: bytes) -> None:
    text = header.ljust(117) + b"\n"
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    with pytest.raises(UsageError):
        read_header(tmp_path / "a.npy")


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    np.savez(tmp_path / "several.npz", a=np.ones(3))
    for name in ("pipe", "none.npy", "several.npz", "."):
        with pytest.raises(UsageError):
            read_header(tmp_path / name)
