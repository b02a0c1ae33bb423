"""The streamed array (a .npy file or generated in host memory), its chunk sizes, and reference
results of its parts."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.lib import format as npy

from cudareduce.errors import OutOfMemory, UsageError
from cudareduce.machine import cpu_count
from cudareduce.reduction.dtypes import DTYPES, DType
from cudareduce.reduction.inputs import (
    Array,
    exact_elements,
    exact_factors,
    is_exact,
    make,
    stored,
)
from cudareduce.reduction.operators import Reduction
from cudareduce.reduction.reference import Reference, reference
from cudareduce.reduction.sizes import counted
from cudareduce.report.numbers import memory_text

#: The option value for an array in the host's memory.
HOST = "host"
#: Default bytes of a chunk.
CHUNK_BYTES = 64 << 20
#: Most pieces of an array: each costs the host some microseconds.
_MOST_PIECES = 2**16


@dataclass(frozen=True, slots=True)
class Streaming:
    """The array to stream: from `file`, or generated in host memory if that is None. `chunk_bytes`
    are chunk sizes in bytes, by default `CHUNK_BYTES`."""

    file: ArrayFile | None = None
    chunk_bytes: tuple[int, ...] = ()

    @property
    def source(self) -> str:
        """The value of the record field `source`."""
        return "file" if self.file else HOST

    def part(self, elements: range) -> Streaming:
        """A range of the elements as an array of its own."""
        if self.file is None:
            return self
        offset = self.file.offset + elements.start * self.file.dtype.size
        return replace(self, file=replace(self.file, n=len(elements), offset=offset))


def streaming(source: str, chunk_bytes: Sequence[int]) -> Streaming:
    """The array of --from with the chunk sizes of --chunk. Raises UsageError for an unsupported
    file."""
    file = None if source == HOST else read_header(Path(source))
    return Streaming(file, tuple(chunk_bytes))


def chunks(streaming: Streaming, reduction: Reduction, n: int) -> tuple[int, ...]:
    """The chunk sizes in elements. Raises UsageError for a chunk that is larger than the array, too
    small, or not a multiple of the element size."""
    size = reduction.dtype.size
    if n == 0:
        raise UsageError("the array is empty: give at least one element for each GPU")
    counts, or_larger = [], ", or a larger --n"
    for nbytes in streaming.chunk_bytes or (min(CHUNK_BYTES, n * size),):
        if nbytes % size or nbytes == 0:
            raise UsageError(
                f"--chunk {nbytes}: an element of {reduction.dtype.name} has {size} bytes; give a "
                "multiple of that"
            )
        if nbytes > n * size:
            raise UsageError(
                f"--chunk {nbytes}: that is {memory_text(nbytes)}, and the whole array has "
                f"{n * size} bytes; give a smaller one{'' if streaming.file else or_larger}"
            )
        pieces = -(-n * size // nbytes)
        if pieces > _MOST_PIECES:
            raise UsageError(
                f"--chunk {nbytes}: that makes {counted(pieces, 'copy', 'copies')}; give at least "
                f"{-(-n // _MOST_PIECES) * size}"
            )
        counts.append(nbytes // size)
    return tuple(counts)


#: A header of one type and some lengths has a hundred characters.
_LONGEST_HEADER = 10_000
_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_MOST_ELEMENTS = 2**63
_WRITE_ONE = "write one with numpy.save"


@dataclass(frozen=True, slots=True)
class ArrayFile:
    """An array of `n` elements that starts at byte `offset` of a file."""

    path: Path
    dtype: DType
    shape: tuple[int, ...]
    n: int
    offset: int

    def mapped(self) -> np.ndarray:
        """Its elements as bytes, mapped into memory."""
        nbytes = self.n * self.dtype.size
        return np.memmap(self.path, np.uint8, "r", self.offset, (nbytes,))


def read_header(path: Path) -> ArrayFile:
    """The array in a .npy file. A file that is missing, cut short, or holds another type is a
    UsageError."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is no plain file: {_WRITE_ONE}")
    try:
        with path.open("rb") as file:
            version = npy.read_magic(file)
            if version not in _READERS:
                raise UsageError(f"{path} is a .npy of version {version[0]}.{version[1]}, which is "
                                 f"not read here: {_WRITE_ONE}")  # fmt: skip
            shape, fortran, kind = _READERS[version](file, max_header_size=_LONGEST_HEADER)
            offset, size = file.tell(), path.stat().st_size
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; name another file") from None
    except (ValueError, TypeError, SyntaxError, TokenError, RecursionError, MemoryError):
        raise UsageError(f"{path} is no .npy, or its header is broken: {_WRITE_ONE}") from None
    dtype, n = _element_type(path, kind), prod(shape)
    if n < 1:
        raise UsageError(f"{path} holds no elements: there is nothing to stream")
    if fortran and sum(length > 1 for length in shape) > 1:
        raise UsageError(
            f"{path} is stored in Fortran order: write it with numpy.ascontiguousarray"
        )
    if n * dtype.size > size - offset:
        count = "more than 2^63" if n > _MOST_ELEMENTS else n
        raise UsageError(
            f"{path} is cut short: {count} elements of {dtype.name} are more than the "
            f"{size - offset} bytes that it holds; write it again"
        )
    return ArrayFile(path, dtype, shape, n, offset)


def _element_type(path: Path, kind: np.dtype[Any]) -> DType:
    if kind.hasobject:
        raise UsageError(f"{path} holds Python objects, and kernels take numbers: save those")
    if kind.names is not None or kind.subdtype is not None:
        raise UsageError(f"{path} holds records of several fields: save one field as an array")
    if not kind.isnative:
        raise UsageError(
            f"{path} holds numbers in the byte order of other machines ({kind.str}): convert it "
            "with numpy.astype"
        )
    types = {t.name: t for t in DTYPES.values() if t.storage == t.name}
    if kind.name not in types:
        raise UsageError(f"{path} holds {kind.name}, and kernels take {', '.join(types)}: "
                         "convert it with numpy.astype")  # fmt: skip
    return types[kind.name]


def cached_share(mapped: np.ndarray) -> float | None:
    """The fraction of a mapped file's pages that are in the page cache; None if unknown."""
    page = mmap.PAGESIZE
    start = mapped.ctypes.data // page * page
    length = mapped.ctypes.data + mapped.nbytes - start
    resident = np.zeros(-(-length // page), np.uint8)
    mincore = ctypes.CDLL(None).mincore
    mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    if mincore(start, length, resident.ctypes.data):
        return None
    return float(np.mean(resident & 1))


#: Elements whose temporaries exist at one time, for each processor.
_STEP = 2**22
#: The operators that fold the results of chunks; a mean, an index or a transform needs more than
#: those results.
FOLDED = ("sum", "prod", "min", "max")


@dataclass(frozen=True, slots=True)
class Content:
    """Reference results of an array's parts: `parts[k]` covers elements `cuts[k]` to
    `cuts[k + 1] - 1`."""

    reduction: Reduction
    cuts: tuple[int, ...]
    parts: tuple[Reference, ...]

    def of(self, start: int, end: int) -> Reference:
        """The reference result of the elements between two cuts."""
        first, last = (int(np.searchsorted(self.cuts, at)) for at in (start, end))
        return merge_references(self.reduction, self.parts[first:last])


def merge_references(reduction: Reduction, parts: Sequence[Reference]) -> Reference:
    """The reference result of consecutive parts of an array, from those of each part."""
    name, floats = reduction.op.name, reduction.acc.kind == "float"
    results = np.concatenate([part.expected for part in parts])
    if name in ("min", "max"):
        return Reference(getattr(np, name)(results, keepdims=True))
    if floats:
        results = results.astype(np.longdouble)
    combine = np.sum if name == "sum" else np.prod
    with np.errstate(invalid="ignore", over="ignore"):  # of infinities NaN is the right result
        result: Array = combine(results, keepdims=True, dtype=results.dtype)
        if not floats:
            return Reference(result)
        if name == "prod":
            return Reference(result, np.abs(result).astype(float))
    magnitudes = [part.magnitude for part in parts if part.magnitude is not None]
    return Reference(result, np.sum(np.concatenate(magnitudes), keepdims=True))


def cut_points(n: int, ends: Iterable[int]) -> tuple[int, ...]:
    """Indices at which an array of `n` elements is split for reference results, including
    `ends`."""
    return tuple(sorted({0, n, *range(0, n, _STEP), *ends}))


def read_content(
    array: Array, reduction: Reduction, cuts: Sequence[int], progress: Callable[[], None],
    pattern: str | None = None, seed: int = 0,
) -> Content:  # fmt: skip
    """The reference results of the parts of an array of stored elements, in parallel; with a
    `pattern` the array is filled with it first, part by part."""

    def read(number: int) -> Reference:
        start, end = cuts[number], cuts[number + 1]
        if pattern is not None:
            sizes = len(array), end - start
            array[start:end] = _elements(pattern, reduction, *sizes, seed + number)
        return reference(reduction, np.asarray(array[start:end]), 1)

    pool = ThreadPoolExecutor(cpu_count())
    parts = []
    try:
        for part in pool.map(read, range(len(cuts) - 1)):
            progress()
            parts.append(part)
    finally:  # Ctrl-C starts no further part
        pool.shutdown(cancel_futures=True)
    return Content(reduction, tuple(cuts), tuple(parts))


def _elements(pattern: str, reduction: Reduction, n: int, count: int, seed: int) -> Array:
    """`count` elements of a part of an array of `n`."""
    if reduction.acc.kind == "float" and is_exact(pattern, reduction):
        # A sum of the whole array must not round either.
        rng = np.random.default_rng([seed, n, count])
        if reduction.op.name == "sum":
            return stored(exact_elements(reduction, n, count, rng), reduction.dtype)
        if reduction.op.name == "prod":
            return stored(exact_factors(count, rng), reduction.dtype)
    return make(pattern, reduction, count, 1, seed)


#: Bytes that a thread touches at once.
_TOUCHED = 64 << 20


def pages(nbytes: int) -> np.ndarray:
    """At least `nbytes` fresh bytes in whole pages, huge ones where the system has them. Raises
    OutOfMemory."""
    whole = -(-max(1, nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE
    try:
        held = mmap.mmap(-1, whole, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError, OverflowError):
        raise OutOfMemory(
            f"the host gives no {nbytes / 2**30:.2f} GiB of memory: give a smaller --n"
        ) from None
    with suppress(OSError):  # a kernel without huge pages
        held.madvise(mmap.MADV_HUGEPAGE)
    array = np.frombuffer(held, np.uint8)
    with ThreadPoolExecutor(cpu_count()) as pool:  # one thread takes seconds for large arrays
        list(pool.map(lambda at: array[at : at + _TOUCHED].fill(0), range(0, whole, _TOUCHED)))
    return array
