"""In which pieces an array goes through the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cudareduce.backend import Backend, Buffer, Lane, Launch, Program, Source, TimedBackend
from cudareduce.bench.stream.source import pages
from cudareduce.errors import BuildError, KernelFault
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, Programs, programs_of
from cudareduce.launch.plan import Plan
from cudareduce.launch.prelude import prelude
from cudareduce.machine.host import cpu_count
from cudareduce.reduction.inputs import Array, make
from cudareduce.reduction.operators import Reduction

#: How many buffers there are on the device: one is filled while the kernel reads another, and the
#: third gives the host time to enqueue.
BUFFERS = 3
#: The last chunk is halved down to so many bytes: its kernel has no copy to hide behind.
_LAST_BYTES = 8 << 20
#: Where a piece begins, of 16 bytes each: kernels load as much at once.
_PACK_BYTES = 16


@dataclass(frozen=True, slots=True)
class Piece:
    """Elements that are copied at once, and summed at once: `count` from `start` on, through the
    buffer number `buffer`; `number` is its place among all."""

    number: int
    start: int
    count: int

    @property
    def buffer(self) -> int:
        """Which of the device's buffers it goes through."""
        return self.number % BUFFERS

    @property
    def end(self) -> int:
        """The element behind its last."""
        return self.start + self.count


def schedule(n: int, chunk: int, size: int) -> tuple[Piece, ...]:
    """The pieces of `n` elements of `size` bytes in their order: whole chunks of so many elements,
    what is left, and the last of all in halves, down to 8 MiB."""
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


#: One thread of the host copies at 10 GB/s or so, and a link takes several times that.
_MOST_THREADS = 16
#: What a thread copies at once, in bytes: less is not worth a thread's while.
_LEAST_BYTES = 1 << 20


class Feed(Protocol):
    """Gives the bytes of pieces, in their order."""

    def give(self, piece: Piece) -> np.ndarray:
        """Those of a piece, which stay as they are until its copy has ended."""

    def given(self, piece: Piece, mark: Any) -> None:
        """The copy of a piece ends with this mark."""


class Held:
    """The array itself, `array` as bytes, of elements of `size` bytes."""

    def __init__(self, array: np.ndarray, size: int) -> None:
        self._array, self._size = array, size

    def give(self, piece: Piece) -> np.ndarray:
        return self._array[piece.start * self._size : piece.end * self._size]

    def given(self, piece: Piece, mark: Any) -> None:
        pass


class Idle:
    """Whatever lies in some places, for who wants no more than that it is copied."""

    def __init__(self, places: Sequence[np.ndarray], size: int) -> None:
        self._places, self._size = places, size

    def give(self, piece: Piece) -> np.ndarray:
        return self._places[piece.buffer][: piece.count * self._size]

    def given(self, piece: Piece, mark: Any) -> None:
        pass


class Staged:
    """An array that lies elsewhere, as bytes: brought to one of some `places` by threads, while
    what came before is copied from the others."""

    def __init__(
        self, array: np.ndarray, size: int, places: Sequence[np.ndarray], lane: Lane
    ) -> None:
        self._array, self._size, self._places, self._lane = array, size, places, lane
        self._threads = min(cpu_count(), _MOST_THREADS)
        self._pool = ThreadPoolExecutor(self._threads)
        self._marks: dict[int, Any] = {}

    def give(self, piece: Piece) -> np.ndarray:
        source = self._array[piece.start * self._size : piece.end * self._size]
        place = self._places[piece.buffer][: len(source)]
        if piece.buffer in self._marks:
            self._lane.wait(self._marks.pop(piece.buffer))
        step = max(_LEAST_BYTES, -(-len(source) // self._threads))
        spans = [slice(at, at + step) for at in range(0, len(source), step)]
        list(self._pool.map(lambda span: np.copyto(place[span], source[span]), spans))
        return place

    def given(self, piece: Piece, mark: Any) -> None:
        self._marks[piece.buffer] = mark

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(cancel_futures=True)


_THREADS = 32


@dataclass(frozen=True, slots=True)
class Span:
    """Marks where the work of one run begins, and where it ends."""

    start: Any
    end: Any


class Way(Protocol):
    """One row: the whole array, once for each run."""

    def run(self) -> Span:
        """Enqueue all of it. May raise KernelFault."""


class Checked(Way, Protocol):
    """One that leaves answers: of its pieces, and of the whole."""

    def poison(self) -> None:
        """Overwrite what an earlier run has left."""

    def answers(self) -> tuple[Array, Array]:
        """Wait, and bring the answers of all pieces and of the whole back. Raises KernelFault."""

    def damage(self) -> str | None:
        """What runs have written outside their buffers, in words; None if nothing."""


class Stage:
    """What all ways share: a lane for copies, one for launches, and buffers on the device."""

    def __init__(self, backend: Backend, nbytes: int, buffers: int) -> None:
        self.backend = backend
        self.copies: Lane = backend.lane()
        self.work: Lane = backend.lane()
        self.buffers: tuple[Buffer, ...] = tuple(backend.allocate(nbytes) for _ in range(buffers))
        backend.synchronize()  # they are poisoned

    def release(self) -> None:
        """Wait for what is under way, and free the buffers."""
        with suppress(KernelFault):  # which has been told
            for lane in (self.copies, self.work):
                lane.synchronize()
        self.backend.free(*self.buffers)


class Copying:
    """Copies alone: what no way through these buffers can be faster than."""

    def __init__(self, stage: Stage, pieces: Sequence[Piece], feed: Feed) -> None:
        self._stage, self._pieces, self._feed = stage, pieces, feed

    def run(self) -> Span:
        lane, start = self._stage.copies, self._stage.copies.mark()
        for piece in self._pieces:
            lane.copy_in(self._stage.buffers[piece.buffer], self._feed.give(piece))
        return Span(start, lane.mark())


class Fold:
    """The answers of pieces, kept one behind the other, and folded in that order."""

    def __init__(self, lane: Lane, reduction: Reduction, pieces: int) -> None:
        self._lane, self._reduction, self._pieces = lane, reduction, pieces
        self._kept = lane.allocate(pieces * reduction.result_size)
        self._out = lane.allocate(reduction.result_size)
        keep, self._fold_program = _programs(lane, reduction)
        self._keep_program = keep

    @property
    def own(self) -> tuple[Buffer, ...]:
        """Its buffers."""
        return self._kept, self._out

    def keeper(self, answer: Buffer, number: int) -> Launch:
        """A launch that keeps the answer of a piece."""
        return self._lane.launcher(self._keep_program, 1, 1, [answer, self._kept, number])

    @cached_property
    def fold(self) -> Launch:
        """A launch that folds what is kept."""
        return self._lane.launcher(self._fold_program, 1, 1, [self._kept, self._out, self._pieces])

    def poison(self) -> None:
        """Overwrite the answers."""
        for buffer in self.own:
            self._lane.poison(buffer)

    def answers(self) -> tuple[Array, Array]:
        """Wait, and bring them back."""
        kind, lane = self._reduction.result_dtype, self._lane
        return lane.download(self._kept, kind, self._pieces), lane.download(self._out, kind, 1)


class Streamed:
    """Copies and kernels at the same time, piece by piece."""

    def __init__(
        self, stage: Stage, pieces: Sequence[Piece], feed: Feed, plans: Mapping[int, Plan],
        programs: Programs,
    ) -> None:  # fmt: skip
        self._stage, self._pieces, self._feed = stage, pieces, feed
        reduction = next(iter(plans.values())).problem.reduction
        self._fold = Fold(stage.work, reduction, len(pieces))
        shapes = dict.fromkeys((piece.buffer, piece.count) for piece in pieces)
        self._bounds = {
            (buffer, count): Bound(stage.work, plans[count], programs, stage.buffers[buffer])
            for buffer, count in shapes
        }
        self._keepers = [
            self._fold.keeper(self._bounds[piece.buffer, piece.count].out, piece.number)
            for piece in pieces
        ]

    def run(self) -> Span:
        copies, work, free = self._stage.copies, self._stage.work, dict[int, Any]()
        start = copies.mark()
        for piece, keep in zip(self._pieces, self._keepers, strict=True):
            data = self._feed.give(piece)
            if piece.buffer in free:
                copies.follow(free[piece.buffer])
            copies.copy_in(self._stage.buffers[piece.buffer], data)
            there = copies.mark()
            self._feed.given(piece, there)
            work.follow(there)
            self._bounds[piece.buffer, piece.count].run()
            keep()
            free[piece.buffer] = work.mark()
        self._fold.fold()
        return Span(start, work.mark())

    def poison(self) -> None:
        """Overwrite what an earlier run has left."""
        for bound in self._bounds.values():
            bound.poison()
        self._fold.poison()
        self._stage.work.synchronize()

    def answers(self) -> tuple[Array, Array]:
        """Wait, and bring the answers of all pieces and of the whole back."""
        return self._fold.answers()

    def damage(self) -> str | None:
        """What runs have written outside their buffers."""
        return next(filter(None, (bound.damage() for bound in self._bounds.values())), None)


class Mapped:
    """One launch over the whole array where it lies, `given` in the host's memory."""

    def __init__(self, stage: Stage, given: Buffer, plan: Plan, programs: Programs) -> None:
        self._work = stage.work
        self._bound = Bound(stage.work, plan, programs, given)

    def run(self) -> Span:
        start = self._work.mark()
        self._bound.run()
        return Span(start, self._work.mark())

    def poison(self) -> None:
        """Overwrite what an earlier run has left."""
        self._bound.poison()
        self._work.synchronize()

    def answers(self) -> tuple[Array, Array]:
        """Wait, and bring the answer back: the whole is one piece."""
        found = self._bound.answers()
        return found, found

    def damage(self) -> str | None:
        """What runs have written outside their buffers."""
        return self._bound.damage()


def _programs(backend: Backend, reduction: Reduction) -> tuple[Program, Program]:
    """What keeps an answer and what folds those that are kept. Raises EnvironmentProblem."""
    path = Path(str(files("cudareduce.bench.stream") / "fold.cu"))
    text = prelude(reduction, "last", _THREADS, 1, 1)
    text += f'#line 1 "{path}"\n{path.read_text(encoding="utf-8")}'
    names = ("keep_answer", "fold_answers")
    built = []
    for program in backend.build([Source(text, name, path) for name in names]):
        if isinstance(program, BuildError):
            raise program
        assert program is not None  # there was no deadline
        built.append(program)
    keep, fold = built
    return keep, fold


#: Elements of which every block of a large launch finds some.
_ELEMENTS = 2**20


def why_not_mapped(device: TimedBackend, case: Case, n: int) -> str | None:
    """Why a kernel does not read mapped memory, tried on up to 2^20 of `n` elements in a context of
    its own; None if it does. Raises OutOfMemory and EnvironmentProblem."""
    values = make("ones", case.reduction, min(n, _ELEMENTS))
    place = pages(values.nbytes)
    place[: values.nbytes] = values.view(np.uint8)
    with device.another() as other:
        plan = case.plan(len(values), 1, other.limits())
        given = other.pin(place)
        try:
            Bound(other, plan, programs_of(other, {case: plan})[case], given).run()
            other.synchronize()
        except KernelFault as fault:
            return f"does not read the host's memory where it lies ({fault})"
        finally:
            other.free(given)
    return None
