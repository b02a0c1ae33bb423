"""What is to be streamed, and in which chunks, as it was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cudareduce.bench.stream.files import ArrayFile, read_header
from cudareduce.errors import UsageError
from cudareduce.problem.operators import Reduction
from cudareduce.problem.sizes import counted
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
