"""Transfer modes: how an array in host memory reaches the kernel, in chunks or as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cudareduce.backends.protocol import (
    Backend,
    Buffer,
    Source,
    StreamBackend,
    TimedBackend,
    build_all,
)
from cudareduce.bench.stream.source import pages
from cudareduce.errors import KernelFault
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, Programs, programs_of
from cudareduce.launch.plan import Plan
from cudareduce.launch.prelude import prelude
from cudareduce.machine import cpu_count
from cudareduce.reduction.inputs import Array, make
from cudareduce.reduction.operators import Reduction

#: Device buffers: one is filled while the kernel reads another, and the third gives the host time
#: to enqueue.
BUFFERS = 3
#: The last chunk is halved down to this size in bytes: no copy hides the time of its kernel.
_LAST_BYTES = 8 << 20
#: Chunks begin at multiples of this: kernels load 16 bytes at once.
_PACK_BYTES = 16
#: One host thread copies about 10 GB/s; a link takes several times that.
_MOST_THREADS = 16
#: Least bytes that are worth a thread.
_LEAST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """The elements of one copy and one launch: `count` elements from index `start`. `number` counts
    the pieces of the array."""

    number: int
    start: int
    count: int

    @property
    def buffer(self) -> int:
        """Index of the device buffer that holds it."""
        return self.number % BUFFERS

    @property
    def end(self) -> int:
        """Index after its last element."""
        return self.start + self.count


def schedule(n: int, chunk: int, size: int) -> tuple[Piece, ...]:
    """The pieces of `n` elements of `size` bytes: chunks of `chunk` elements and the rest, the last
    of them halved down to 8 MiB."""
    counts = [chunk] * (n // chunk) + ([n % chunk] if n % chunk else [])
    pack = max(1, _PACK_BYTES // size)
    while counts and counts[-1] * size > _LAST_BYTES:
        last = counts.pop()
        half = -(-last // 2 // pack) * pack
        counts += [half, last - half]
    pieces, start = [], 0
    for number, count in enumerate(counts):
        pieces.append(Piece(number, start, count))
        start += count
    return tuple(pieces)


class Feed:
    """Supplies the bytes of each piece, in order, from an `array` of bytes with elements of `size`
    bytes."""

    def __init__(self, array: np.ndarray, size: int) -> None:
        self._array, self._size = array, size

    def give(self, piece: Piece) -> np.ndarray:
        """The bytes of a piece, unchanged until its copy has ended."""
        return self._array[piece.start * self._size : piece.end * self._size]

    def copied(self, piece: Piece, mark: Any) -> None:
        """Called when the copy of a piece is enqueued; it ends at the mark."""


class UnfilledFeed(Feed):
    """Supplies pinned buffers without filling them, to time copies alone."""

    def __init__(self, places: Sequence[np.ndarray], size: int) -> None:
        self._places, self._size = places, size

    def give(self, piece: Piece) -> np.ndarray:
        return self._places[piece.buffer][: piece.count * self._size]


class StagingFeed(Feed):
    """Copies each piece with host threads into one of the pinned buffers `places`, while the stream
    `copies` copies earlier pieces to the device."""

    def __init__(
        self, array: np.ndarray, size: int, places: Sequence[np.ndarray], copies: StreamBackend
    ) -> None:
        super().__init__(array, size)
        self._places, self._copies = places, copies
        self._threads = min(cpu_count(), _MOST_THREADS)
        self._pool = ThreadPoolExecutor(self._threads)
        self._marks: dict[int, Any] = {}
        self.close = self._pool.shutdown

    def give(self, piece: Piece) -> np.ndarray:
        source = super().give(piece)
        place = self._places[piece.buffer][: len(source)]
        if piece.buffer in self._marks:
            self._copies.wait(self._marks.pop(piece.buffer))
        step = max(_LEAST_BYTES, -(-len(source) // self._threads))
        spans = [slice(at, at + step) for at in range(0, len(source), step)]
        list(self._pool.map(lambda span: np.copyto(place[span], source[span]), spans))
        return place

    def copied(self, piece: Piece, mark: Any) -> None:
        self._marks[piece.buffer] = mark


class Stage:
    """The streams and device buffers that all transfer modes share: `copies` and `work` run
    concurrently."""

    def __init__(self, backend: Backend, nbytes: int) -> None:
        self.backend = backend
        self.copies: StreamBackend = backend.new_stream()
        self.work: StreamBackend = backend.new_stream()
        self.buffers: tuple[Buffer, ...] = tuple(backend.allocate(nbytes) for _ in range(BUFFERS))
        backend.synchronize()  # allocation fills them

    def release(self) -> None:
        """Wait for work in flight, and free the buffers."""
        with suppress(KernelFault):  # reported already
            for stream in (self.copies, self.work):
                stream.synchronize()
        self.backend.free(*self.buffers)


class TransferMode(Protocol):
    """A method to transfer the whole array to the device and reduce it; one `run` does so once."""

    def run(self) -> tuple[Any, Any]:
        """Enqueue all copies and kernels; the marks before and after them. Raises KernelFault."""

    def poison(self) -> None:
        """Overwrite the results of earlier runs with poison."""

    def results(self) -> tuple[Array, Array]:
        """Wait, and download the results of all pieces and of the whole. Raises KernelFault."""

    def damage(self) -> str | None:
        """A description of out-of-bounds writes by the runs; None if there are none."""


class Copying:
    """Copies without kernels: an upper limit of the bandwidth of modes with these buffers."""

    def __init__(self, stage: Stage, pieces: Sequence[Piece], feed: Feed) -> None:
        self._stage, self._pieces, self._feed = stage, pieces, feed

    def run(self) -> tuple[Any, Any]:
        stream = self._stage.copies
        start = stream.mark()
        for piece in self._pieces:
            stream.copy_in(self._stage.buffers[piece.buffer], self._feed.give(piece))
        return start, stream.mark()

    def poison(self) -> None:
        pass

    def results(self) -> tuple[Array, Array]:
        self._stage.copies.synchronize()
        return np.empty(0), np.empty(0)

    def damage(self) -> None:
        return None


class Streamed:
    """Copies and kernels overlapped, piece by piece; the results of pieces are kept in order and
    folded at the end."""

    def __init__(
        self, stage: Stage, pieces: Sequence[Piece], feed: Feed, plans: Mapping[int, Plan],
        programs: Programs,
    ) -> None:  # fmt: skip
        self._stage, self._pieces, self._feed = stage, pieces, feed
        work = stage.work
        self._reduction = reduction = next(iter(plans.values())).problem.reduction
        self._bounds = {
            (buffer, count): Bound(work, plans[count], programs, stage.buffers[buffer])
            for buffer, count in dict.fromkeys((piece.buffer, piece.count) for piece in pieces)
        }
        folds = build_all(work, _fold_sources(reduction))
        self._kept = work.allocate(len(pieces) * reduction.result_size)
        self._out = work.allocate(reduction.result_size)
        keep, fold = folds["keep_result"], folds["fold_results"]
        self._keepers = [
            work.launcher(keep, 1, 1, [self._bound(piece).out, self._kept, piece.number])
            for piece in pieces
        ]
        self._fold = work.launcher(fold, 1, 1, [self._kept, self._out, len(pieces)])

    def _bound(self, piece: Piece) -> Bound:
        return self._bounds[piece.buffer, piece.count]

    def run(self) -> tuple[Any, Any]:
        copies, work, free = self._stage.copies, self._stage.work, dict[int, Any]()
        start = copies.mark()
        for piece, keep in zip(self._pieces, self._keepers, strict=True):
            data = self._feed.give(piece)
            if piece.buffer in free:
                copies.follow(free[piece.buffer])
            copies.copy_in(self._stage.buffers[piece.buffer], data)
            arrived = copies.mark()
            self._feed.copied(piece, arrived)
            work.follow(arrived)
            self._bound(piece).run()
            keep()
            free[piece.buffer] = work.mark()
        self.fold()
        return start, work.mark()

    def fold(self) -> None:
        """Enqueue the fold of the kept results."""
        self._fold()

    def poison(self) -> None:
        for bound in self._bounds.values():
            bound.poison()
        for buffer in (self._kept, self._out):
            self._stage.work.poison(buffer)
        self._stage.work.synchronize()

    def results(self) -> tuple[Array, Array]:
        kind, work = self._reduction.result_dtype, self._stage.work
        return work.download(self._kept, kind, len(self._pieces)), work.download(self._out, kind, 1)

    def damage(self) -> str | None:
        return next(filter(None, (bound.damage() for bound in self._bounds.values())), None)


class Mapped:
    """One launch that reads the pinned array in host memory."""

    def __init__(self, stage: Stage, pinned: Buffer, plan: Plan, programs: Programs) -> None:
        self._work = stage.work
        self._bound = Bound(stage.work, plan, programs, pinned)
        self.damage = self._bound.damage

    def run(self) -> tuple[Any, Any]:
        start = self._work.mark()
        self._bound.run()
        return start, self._work.mark()

    def poison(self) -> None:
        self._bound.poison()
        self._work.synchronize()

    def results(self) -> tuple[Array, Array]:
        result = self._bound.results()
        return result, result


def _fold_sources(reduction: Reduction) -> list[Source]:
    """The kernels that keep the result of a piece and that fold the kept results."""
    path = Path(str(files("cudareduce.bench.stream") / "fold.cu"))
    text = prelude(reduction, "last", 32, 1, 1)
    text += f'#line 1 "{path}"\n{path.read_text(encoding="utf-8")}'
    return [Source(text, name, path) for name in ("keep_result", "fold_results")]


#: Elements with which every block of a large launch has some.
_ELEMENTS = 2**20


def why_not_mapped(device: TimedBackend, case: Case, n: int) -> str | None:
    """Why a kernel does not read mapped memory, tried on up to 2^20 of `n` elements in a context of
    its own; None if it does. Raises OutOfMemory and EnvironmentProblem."""
    values = make("ones", case.reduction, min(n, _ELEMENTS))
    place = pages(values.nbytes)
    place[: values.nbytes] = values.view(np.uint8)
    with device.another() as other:
        plan = case.plan(len(values), 1, other.limits())
        pinned = other.pin(place)
        try:
            Bound(other, plan, programs_of(other, {case: plan})[case], pinned).run()
            other.synchronize()
        except KernelFault as fault:
            return f"does not read the host's memory where it lies ({fault})"
        finally:
            other.free(pinned)
    return None
