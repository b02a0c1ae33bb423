"""One array, made or read, through the device by all rows: first each for its answers, then in
rounds for its time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from cudareduce.backend import Backend, Buffer
from cudareduce.bench.memory import why_too_large
from cudareduce.bench.session import Session
from cudareduce.bench.stream.asked import Streaming
from cudareduce.bench.stream.content import Content, found, made, parts
from cudareduce.bench.stream.feeds import Feed, Held, Idle, Staged
from cudareduce.bench.stream.files import cached_share
from cudareduce.bench.stream.judge import Judge
from cudareduce.bench.stream.mapped import why_not_mapped
from cudareduce.bench.stream.measure import Measured, Unwatched, Watched, measured
from cudareduce.bench.stream.memory import pages
from cudareduce.bench.stream.rows import Row
from cudareduce.bench.stream.schedule import BUFFERS, schedule
from cudareduce.bench.stream.together import Together
from cudareduce.bench.stream.ways import Checked, Copying, Mapped, Stage, Streamed
from cudareduce.errors import KernelFault, OutOfMemory
from cudareduce.machine.device import Conditions
from cudareduce.problem.operators import Reduction
from cudareduce.problem.patterns import GIVEN
from cudareduce.report.numbers import bytes_text
from cudareduce.verify.verdict import Verdict, skipped, worse

#: The row of copies alone, beside those of kernels, which are counted from 0.
COPY = -1
_NOTHING = Measured(timings={}, conditions=Conditions(), rounds=0, interrupted=False)


class _TimeSpent(Exception):
    """The run's time has passed, and what is under way is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of rows: verdicts on all, and times by the numbers of rows; `remarks` say how the
    array lay in memory."""

    rows: tuple[Row, ...]
    measured: Measured = _NOTHING
    remarks: tuple[str, ...] = ()
    tried: bool = False
    interrupted: bool = False


@dataclass(slots=True)
class _Scene:
    """The array and where it lies: its `elements` as they are stored, as `data` in bytes, pinned as
    `given`, and `beside`, the same where it may move."""

    stage: Stage
    elements: np.ndarray
    data: np.ndarray
    given: Buffer | None
    beside: np.ndarray | None
    places: tuple[np.ndarray, ...]
    remarks: list[str] = field(default_factory=list)


def tried(
    session: Session, reduction: Reduction, n: int, rows: Sequence[Row], streaming: Streaming,
    patterns: Sequence[str], together: Together,
) -> Tried:  # fmt: skip
    """Run every row on an array of each pattern, or on that of the file, and time them if the
    backend can and rounds are asked for. Where memory does not hold it all are skips. Raises
    KernelFault where the device does not go on."""
    open_rows = [k for k, row in enumerate(rows) if row.prepared]
    if not open_rows:
        return Tried(rows=tuple(rows))
    size, chunk = reduction.dtype.size, max(row.chunk or 0 for row in rows)
    try:
        with _scene(session, reduction, n, chunk, streaming) as scene, ExitStack() as stack:
            if scene.beside is None:
                rows = _without_pageable(rows, n * size)
            trial = _Trial(session, reduction, n, list(rows), scene, streaming, stack)
            return trial.run(patterns, chunk, together)
    except OutOfMemory as error:
        skip = skipped("machine", str(error))
        return Tried(rows=tuple(_left_out(row, skip) for row in rows))


class _Trial:
    """Rows of one problem on one scene."""

    def __init__(
        self, session: Session, reduction: Reduction, n: int, rows: list[Row], scene: _Scene,
        streaming: Streaming, stack: ExitStack,
    ) -> None:  # fmt: skip
        self._session, self._reduction, self._n = session, reduction, n
        self._rows, self._scene, self._streaming = rows, scene, streaming
        self._stack = stack
        self._watched: dict[int, Watched] = {}

    def run(self, patterns: Sequence[str], chunk: int, together: Together) -> Tried:
        """Answers on all patterns, then times on the last."""
        interrupted, found, why_not = False, _NOTHING, ""
        ways = self._ways()
        try:
            for pattern in (GIVEN,) if self._streaming.file else patterns:
                self._answers(ways, pattern)
            timed = self._session.backend.timed()
            own = {k for k, w in self._watched.items() if w.verdict.outcome == "pass"}
            right = {k: self._watched[k] for k in sorted(together.common(own))}
            if timed and self._session.settings.rounds and right:
                found = self._times(right, chunk, together)
        except KeyboardInterrupt:
            interrupted, why_not = True, "interrupted before it was tried"
        except _TimeSpent:
            why_not = self._session.why_cut()
        rows = tuple(self._standing(k, row, why_not) for k, row in enumerate(self._rows))
        return Tried(
            rows=rows, measured=found, remarks=tuple(self._scene.remarks),
            tried=found is not _NOTHING, interrupted=interrupted or found.interrupted,
        )  # fmt: skip

    def _ways(self) -> dict[int, Checked]:
        """A way for every row that is tried."""
        timed = self._session.backend.timed()
        for k, row in enumerate(self._rows):
            if row.prepared and row.way == "mapped" and timed:
                why = why_not_mapped(timed, row.case, self._n)
                self._rows[k] = _left_out(row, skipped("machine", why)) if why else row
        return {k: self._way(row) for k, row in enumerate(self._rows) if row.prepared}

    def _way(self, row: Row) -> Checked:
        scene, size = self._scene, self._reduction.dtype.size
        assert row.prepared is not None
        programs = row.prepared.programs
        if row.way == "mapped":
            assert scene.given is not None
            return Mapped(scene.stage, scene.given, row.plans[self._n], programs)
        feed: Feed = Held(scene.data, size)
        if row.way == "pageable":
            assert scene.beside is not None
            feed = Held(scene.beside, size)
        elif self._streaming.file:
            staged = Staged(scene.data, size, scene.places, scene.stage.copies)
            self._stack.callback(staged.close)
            feed = staged
        return Streamed(scene.stage, row.pieces, feed, row.plans, programs)

    def _answers(self, ways: Mapping[int, Checked], pattern: str) -> None:
        """Run each way once, on the array of a pattern."""
        content = self._content(pattern)
        beside = self._scene.beside
        if beside is not None and not self._streaming.file:
            np.copyto(beside, self._scene.data)
        with self._session.phase(f"streaming {pattern} input", len(ways)) as progress:
            for k, way in ways.items():
                row = self._rows[k]
                if row.prepared is None:
                    continue
                self._in_time()
                progress.now(f"{row.case.kernel.id} {row.way}")
                if k in self._watched:
                    self._rows[k] = self._standing(k, row)
                    self._watched.pop(k)
                watched = Watched(way, Judge(content, row.pieces, row.plans, pattern))
                try:
                    watched.run(None)
                    self._watched[k] = watched
                except KernelFault as fault:
                    self._faulted(k, fault)
                progress.step()

    def _faulted(self, k: int, fault: KernelFault) -> None:
        """A row that ended so is wrong. A GPU goes on with nothing after that."""
        self._rows[k] = _left_out(self._rows[k], Verdict("fail", str(fault)))
        if self._session.backend.timed():
            name = f"{self._rows[k].case.kernel.id} {self._rows[k].way}"
            skip = skipped("machine", f"the GPU does not go on after {name}: leave that out")
            self._watched.clear()
            self._rows = [
                row if row.verdict.outcome == "fail" else _left_out(row, skip)
                for row in self._rows
            ]  # fmt: skip

    def _in_time(self) -> None:
        """Raises _TimeSpent once it is."""
        if self._session.settings.deadline.passed:
            raise _TimeSpent

    def _content(self, pattern: str) -> Content:
        """Make the array, or look at what a file holds."""
        ends = {piece.end for row in self._rows for piece in row.pieces}
        elements, reduction = self._scene.elements, self._reduction
        what = "reading the file" if self._streaming.file else f"making {pattern} input"
        with self._session.phase(what, parts(self._n, ends)) as progress:

            def step() -> None:
                progress.step()
                self._in_time()

            if self._streaming.file:
                return found(elements, reduction, ends, step)
            seed = self._session.settings.timed_seed
            return made(elements, reduction, pattern, seed, ends, step)

    def _times(self, right: Mapping[int, Watched], chunk: int, together: Together) -> Measured:
        """Rounds of what is right, and of copies alone."""
        session, scene, size = self._session, self._scene, self._reduction.dtype.size
        timed = session.backend.timed()
        assert timed is not None
        feed: Feed = Held(scene.data, size)
        if self._streaming.file:
            feed = Idle(scene.places, size)
            share = cached_share(scene.data)
            if share is not None:
                scene.remarks.append(f"{100 * share:.0f} % of the file lies in the page cache")
        copying = Copying(scene.stage, schedule(self._n, chunk, size), feed)
        rows: dict[int, Watched | Unwatched] = {COPY: Unwatched(scene.stage, copying), **right}
        rounds, deadline = session.settings.rounds, session.settings.deadline
        rows[COPY].run(timed)  # the first is not as the others are
        with session.phase("measuring rounds of all rows", rounds) as progress:
            return measured(timed, timed.monitor(), rows, rounds, deadline, progress.step, together)

    def _standing(self, k: int, row: Row, why_not: str = "") -> Row:
        """The row with what its runs have shown, or why there are none."""
        if k in self._watched:
            verdict = self._watched[k].verdict
            return replace(row, verdict=worse(row.verdict, verdict))
        if row.prepared and why_not:
            return replace(row, verdict=worse(row.verdict, skipped("time", why_not)))
        return row


def _left_out(row: Row, verdict: Verdict) -> Row:
    """A row that is not tried, or not any more."""
    return replace(row, verdict=worse(row.verdict, verdict), prepared=None)


def _without_pageable(rows: Sequence[Row], nbytes: int) -> list[Row]:
    """Rows of which those that take a second array are skips."""
    why = f"takes a second array in the host's memory, {bytes_text(nbytes)}"
    skip = skipped("machine", why)
    return [_left_out(row, skip) if row.way == "pageable" and row.prepared else row for row in rows]


@contextmanager
def _scene(
    session: Session, reduction: Reduction, n: int, chunk: int, streaming: Streaming
) -> Iterator[_Scene]:
    """The array where it is to lie, empty unless it is a file's, and buffers on the device. Raises
    OutOfMemory."""
    backend, size = session.backend, reduction.dtype.size
    nbytes, chunk_bytes = n * size, chunk * size
    pinned_bytes = BUFFERS * chunk_bytes if streaming.file else nbytes
    too_large = why_too_large(pinned_bytes)
    if too_large:
        raise OutOfMemory(f"{too_large}: give a smaller --n or --chunk")
    with ExitStack() as stack:
        given: Buffer | None = None
        beside: np.ndarray | None = None
        if streaming.file:
            places, _, told = _pinned(backend, stack, BUFFERS * [chunk_bytes])
            data = beside = streaming.file.mapped()
        else:
            if not why_too_large(2 * nbytes):
                beside = pages(nbytes)[:nbytes]
            (data,), (given,), told = _pinned(backend, stack, [nbytes])
            places = ()
        stage = Stage(backend, chunk_bytes, BUFFERS)
        stack.callback(stage.release)  # before what is pinned
        elements = data.view(reduction.dtype.storage)
        remarks = [told] if backend.timed() else []
        yield _Scene(stage, elements, data, given, beside, places, remarks)


def _pinned(
    backend: Backend, stack: ExitStack, sizes: Sequence[int]
) -> tuple[tuple[np.ndarray, ...], tuple[Buffer, ...], str]:
    """Memory of the host that is kept in place, as the host sees it and as the device does, and how
    long that took."""
    places = [pages(nbytes) for nbytes in sizes]
    began = perf_counter()
    buffers = []
    for place in places:
        buffers.append(backend.pin(place))
        stack.callback(backend.free, buffers[-1])
    took = f"{bytes_text(sum(sizes))} of the host's memory pinned in {perf_counter() - began:.1f} s"
    views = (place[:nbytes] for place, nbytes in zip(places, sizes, strict=True))
    return tuple(views), tuple(buffers), took
