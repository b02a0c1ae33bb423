"""What is to be streamed, and in which chunks, as it was asked for."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.lib import format as npy

from cudareduce.errors import OutOfMemory, UsageError
from cudareduce.machine.host import cpu_count
from cudareduce.reduction.dtypes import DTYPES, DType
from cudareduce.reduction.inputs import (
    Array,
    exact_factors,
    exact_part,
    make,
    rounds_nothing,
    stored,
)
from cudareduce.reduction.operators import Reduction
from cudareduce.reduction.reference import Reference, reference
from cudareduce.reduction.sizes import counted
from cudareduce.report.numbers import memory_text

#: The word for an array that is made in the host's memory.
HOST = "host"
#: A chunk where nobody says.
CHUNK_BYTES = 64 << 20
#: Pieces of an array that are worth having: each takes the host some microseconds.
_MOST_PIECES = 2**16


@dataclass(frozen=True, slots=True)
class Streaming:
    """An array of a `file`, or one that is made in the host's memory, in chunks of so many bytes
    each; without any it is `CHUNK_BYTES`, or what there is."""

    file: ArrayFile | None = None
    chunk_bytes: tuple[int, ...] = ()

    @property
    def source(self) -> str:
        """What a record says of it."""
        return "file" if self.file else HOST

    def part(self, own: range) -> Streaming:
        """The same of some elements."""
        if self.file is None:
            return self
        offset = self.file.offset + own.start * self.file.dtype.size
        return replace(self, file=replace(self.file, n=len(own), offset=offset))


def streaming(source: str, chunk_bytes: Sequence[int]) -> Streaming:
    """What the words on the command line name. A file that will not do is a UsageError."""
    file = None if source == HOST else read_header(Path(source))
    return Streaming(file, tuple(chunk_bytes))


def chunks(asked: Streaming, reduction: Reduction, n: int) -> tuple[int, ...]:
    """The chunks in elements. One that is larger than the array, that cuts elements in two, or is
    too small to be worth a copy is a UsageError."""
    size = reduction.dtype.size
    if n == 0:
        raise UsageError("there is nothing to stream: give an element at least, for each GPU one")
    counts = []
    for nbytes in asked.chunk_bytes or (min(CHUNK_BYTES, n * size),):
        shown = memory_text(nbytes)
        if nbytes % size or nbytes == 0:
            raise UsageError(
                f"--chunk {nbytes}: an element of {reduction.dtype.name} has {size} bytes; give a "
                "multiple of that"
            )
        if nbytes > n * size:
            raise UsageError(
                f"--chunk {nbytes}: that is {shown}, and the whole array has {n * size} bytes; give"
                f" a smaller one{'' if asked.file else ', or a larger --n'}"
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


#: Elements whose temporaries exist at one time, for each processor.
_STEP = 2**22
#: The operators whose answers for chunks give that for the whole; a mean, an index or a map of more
#: than one array take more than the answer.
FOLDED = ("sum", "prod", "min", "max")


@dataclass(frozen=True, slots=True)
class Content:
    """The right answers of an array's parts: `parts` are those between one of `cuts` and the
    next."""

    reduction: Reduction
    cuts: tuple[int, ...]
    parts: tuple[Reference, ...]

    def of(self, start: int, end: int) -> Reference:
        """The right answer of the elements between two cuts."""
        first, last = (int(np.searchsorted(self.cuts, at)) for at in (start, end))
        return joined(self.reduction, self.parts[first:last])


def joined(reduction: Reduction, parts: Sequence[Reference]) -> Reference:
    """The reference result of consecutive parts of an array, from those of each part."""
    name, kind = reduction.op.name, reduction.acc.kind
    answers = np.concatenate([part.expected for part in parts])
    if name in ("min", "max"):
        return Reference(getattr(np, name)(answers, keepdims=True))
    if kind == "float":
        answers = answers.astype(np.longdouble)
    with np.errstate(invalid="ignore", over="ignore"):  # of infinities NaN is the right answer
        combine = np.sum if name == "sum" else np.prod
        answer: Array = combine(answers, keepdims=True, dtype=answers.dtype)
        if kind == "float" and name == "prod":
            return Reference(answer, np.abs(answer).astype(float))
    if kind != "float":
        return Reference(answer)
    magnitudes = [part.magnitude for part in parts if part.magnitude is not None]
    return Reference(answer, np.sum(np.concatenate(magnitudes), keepdims=True))


def made(
    array: Array, reduction: Reduction, pattern: str, seed: int, ends: Iterable[int],
    progress: Callable[[], None],
) -> Content:  # fmt: skip
    """Fill an array of stored elements with a pattern, anew in each part, and know what it holds,
    between the `ends` of pieces at least."""
    cuts = _cuts(len(array), ends)

    def fill(number: int) -> Reference:
        start, end = cuts[number], cuts[number + 1]
        array[start:end] = _values(pattern, reduction, (len(array), end - start), seed + number)
        return reference(reduction, array[start:end], 1)

    return Content(reduction, cuts, tuple(_each(fill, len(cuts) - 1, progress)))


def _values(pattern: str, reduction: Reduction, sizes: tuple[int, int], seed: int) -> Array:
    """Elements of a part, as many as the second of `sizes` says, of an array of the first."""
    n, count = sizes
    rng = np.random.default_rng([seed, n, count])
    if reduction.acc.kind == "float" and rounds_nothing(pattern, reduction):
        # What no sum of a part rounds, one of all may.
        if reduction.op.name == "sum":
            return stored(exact_part(reduction, n, count, rng), reduction.dtype)
        if reduction.op.name == "prod":
            return stored(exact_factors(count, rng), reduction.dtype)
    return make(pattern, reduction, count, 1, seed)


def found(
    array: Array, reduction: Reduction, ends: Iterable[int], progress: Callable[[], None]
) -> Content:
    """What an array of stored elements holds, between the `ends` of pieces at least."""
    cuts = _cuts(len(array), ends)
    spans = list(pairwise(cuts))

    def look(number: int) -> Reference:
        start, end = spans[number]
        return reference(reduction, np.asarray(array[start:end]), 1)

    return Content(reduction, cuts, tuple(_each(look, len(spans), progress)))


def parts(n: int, ends: Iterable[int]) -> int:
    """In how many parts such an array is looked at."""
    return len(_cuts(n, ends)) - 1


def _cuts(n: int, ends: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted({0, n, *range(0, n, _STEP), *ends}))


def _each(
    function: Callable[[int], Reference], count: int, progress: Callable[[], None]
) -> Iterator[Reference]:
    """What a function gives for each number, by all processors, in order."""
    with _pool() as pool:
        for answer in pool.map(function, range(count)):
            progress()
            yield answer


@contextmanager
def _pool() -> Iterator[ThreadPoolExecutor]:
    """Threads, of which none begins anything more once this is left, be it by Ctrl-C."""
    pool = ThreadPoolExecutor(cpu_count())
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


#: Bytes that a thread touches at once.
_TOUCHED = 64 << 20


def pages(nbytes: int) -> np.ndarray:
    """Fresh bytes in whole pages of their own, at least so many, as large pages where the system
    has them. Raises OutOfMemory."""
    whole = -(-max(1, nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE
    try:
        held = mmap.mmap(-1, whole, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError, OverflowError):
        raise OutOfMemory(
            f"the host gives no {nbytes / 2**30:.2f} GiB of memory: give a smaller --n"
        ) from None
    with suppress(OSError):  # a kernel without them
        held.madvise(mmap.MADV_HUGEPAGE)
    found = np.frombuffer(held, np.uint8)
    with ThreadPoolExecutor(cpu_count()) as pool:  # touched by one, large arrays take seconds
        list(pool.map(lambda at: found[at : at + _TOUCHED].fill(0), range(0, whole, _TOUCHED)))
    return found
