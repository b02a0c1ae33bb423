"""Arrays in files: what a .npy says of itself, its bytes by a memory map, and what of them lies in
the page cache."""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.lib import format as npy

from cudareduce.errors import UsageError
from cudareduce.problem.dtypes import DTYPES, DType

#: A header of one type and some lengths has a hundred characters.
_LONGEST_HEADER = 10_000
_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
#: No file has more elements, and no message all the digits that lengths in a header can make.
_MOST, _MANY = 2**63, "more than 2^63"
_WRITE_ONE = "write one with numpy.save"


@dataclass(frozen=True, slots=True)
class ArrayFile:
    """An array in a file: `n` elements of a type, `offset` bytes behind its beginning; as the user
    sees it, it has this `shape`."""

    path: Path
    dtype: DType
    shape: tuple[int, ...]
    n: int
    offset: int

    def mapped(self) -> np.ndarray:
        """Its elements as bytes, which are read when they are looked at."""
        nbytes = self.n * self.dtype.size
        return np.memmap(self.path, np.uint8, "r", self.offset, (nbytes,))


def read_header(path: Path) -> ArrayFile:
    """What a .npy file holds. One that is not there, is cut short, or holds what no kernel takes is
    a UsageError."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is no plain file: {_WRITE_ONE}")
    try:
        with path.open("rb") as file:
            version = npy.read_magic(file)
            if version not in _READERS:
                raise UsageError(f"{path} is a .npy of version {version[0]}.{version[1]}, which is "
                                 f"not read here: {_WRITE_ONE}")  # fmt: skip
            shape, fortran, kind = _READERS[version](file, max_header_size=_LONGEST_HEADER)
            offset, held = file.tell(), path.stat().st_size
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; name another file") from None
    except (ValueError, TypeError, SyntaxError, TokenError, RecursionError, MemoryError):
        raise UsageError(f"{path} is no .npy, or its header is broken: {_WRITE_ONE}") from None
    dtype, n = _known(path, kind), _count(path, shape)
    if fortran and sum(length > 1 for length in shape) > 1:
        raise UsageError(
            f"{path} holds columns one behind the other (Fortran order): write it with "
            "numpy.ascontiguousarray"
        )
    if n * dtype.size > held - offset:
        raise UsageError(
            f"{path} is cut short: {_MANY if n > _MOST else n} elements of {dtype.name} are more "
            f"than the {held - offset} bytes that it holds; write it again"
        )
    return ArrayFile(path, dtype, shape, n, offset)


def _known(path: Path, kind: np.dtype[Any]) -> DType:
    """The element type of a file."""
    if kind.hasobject:
        raise UsageError(f"{path} holds Python objects, and kernels take numbers: save those")
    if kind.names is not None or kind.subdtype is not None:
        raise UsageError(f"{path} holds records of several fields: save one field as an array")
    if not kind.isnative:
        raise UsageError(
            f"{path} holds numbers in the byte order of other machines ({kind.str}): convert it "
            "with numpy.astype"
        )
    found = next((t for t in DTYPES.values() if t.storage == t.name == kind.name), None)
    if found is None:
        names = [t.name for t in DTYPES.values() if t.storage == t.name]
        raise UsageError(f"{path} holds {kind.name}, and kernels take {', '.join(names)}: "
                         "convert it with numpy.astype")  # fmt: skip
    return found


def _count(path: Path, shape: tuple[int, ...]) -> int:
    n = 1
    for length in shape:
        n *= length
    if n < 1:
        raise UsageError(f"{path} holds no elements: there is nothing to stream")
    return n


def cached_share(mapped: np.ndarray) -> float | None:
    """The share of a mapped file's pages that lie in the page cache; None where the system does not
    say."""
    page = mmap.PAGESIZE
    start = mapped.ctypes.data // page * page
    length = mapped.ctypes.data + mapped.nbytes - start
    found = np.zeros(-(-length // page), np.uint8)
    mincore = ctypes.CDLL(None).mincore
    mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    if mincore(start, length, found.ctypes.data):
        return None
    return float(np.mean(found & 1))
