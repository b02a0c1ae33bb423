"""The ways of an array through the device: each enqueues all of its work, and marks where that
begins and ends.

Copies have a lane of their own, so that one follows the other without a gap; a kernel waits for the
copy that it reads, and a copy for the kernel that has read what it overwrites.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

from cudareduce.backend import Backend, Buffer, Lane, Launch, Program, Source
from cudareduce.bench.stream.feeds import Feed
from cudareduce.bench.stream.schedule import Piece
from cudareduce.errors import BuildError, KernelFault
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Programs
from cudareduce.launch.plan import Plan
from cudareduce.launch.prelude import prelude
from cudareduce.problem.inputs import Array
from cudareduce.problem.operators import Reduction

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
