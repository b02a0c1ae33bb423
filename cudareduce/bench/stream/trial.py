"""One array, made or read, through the device by all rows: first each for its answers, then in
rounds for its time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Literal

import numpy as np

from cudareduce.backend import Backend, Buffer
from cudareduce.bench.cases import cases
from cudareduce.bench.memory import why_too_large
from cudareduce.bench.records import bandwidth, chosen_of, conditions_of, effort_of
from cudareduce.bench.session import Session
from cudareduce.bench.settings import Settings
from cudareduce.bench.stream.measure import (
    ALONE,
    Judge,
    Measured,
    Together,
    Unwatched,
    Watched,
    measured,
)
from cudareduce.bench.stream.pipeline import (
    BUFFERS,
    Checked,
    Copying,
    Feed,
    Held,
    Idle,
    Mapped,
    Piece,
    Stage,
    Staged,
    Streamed,
    schedule,
    why_not_mapped,
)
from cudareduce.bench.stream.source import (
    FOLDED,
    Content,
    Streaming,
    cached_share,
    chunks,
    found,
    made,
    pages,
    parts,
)
from cudareduce.errors import KernelFault, OutOfMemory, UsageError
from cudareduce.launch.case import Case, Prepared, Shape
from cudareduce.launch.plan import Plan
from cudareduce.library.registry import Choice
from cudareduce.machine.device import Conditions
from cudareduce.reduction.operators import Reduction
from cudareduce.reduction.patterns import GIVEN
from cudareduce.report.numbers import bytes_text
from cudareduce.results.record import COPYING, Record
from cudareduce.verify.verdict import RIGHT, Verdict, skipped, worse

#: Elements on which all patterns are tried within a second.
_QUICK = 2**22
#: How an array comes to the kernel.
WayName = Literal["pinned", "mapped", "pageable"]


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel by one way: the pieces of the array, and why it is not tried, or what is known of
    the kernel on such lengths. `prepared` is None where it is not tried."""

    case: Case
    way: WayName
    chunk: int | None
    pieces: tuple[Piece, ...]
    verdict: Verdict
    prepared: Prepared | None = None

    @property
    def plans(self) -> dict[int, Plan]:
        """The plan of each length."""
        assert self.prepared is not None
        return {p.count: self.prepared.plans[p.count, 1] for p in self.pieces}


@dataclass(frozen=True, slots=True)
class Rows:
    """All of one problem; `interrupted`: Ctrl-C came while kernels were verified."""

    rows: tuple[Row, ...]
    interrupted: bool = False


def rows_of(
    session: Session, choices: Sequence[Choice], reduction: Reduction, n: int,
    chunks: Sequence[int], streaming: Streaming,
) -> Rows:  # fmt: skip
    """Rows of every kernel, those of the package and of others alike: verified on whole chunks and
    on the parts of the last, where they run as they do elsewhere."""
    sizes = tuple(dict.fromkeys((*chunks, n)))
    settings = replace(session.settings, reductions=(reduction,), instead=(), sizes=sizes)
    with closing(Session(session.backend, session.spec, settings, session.phase)) as own:
        planned = [
            row for choice in choices
            for row in _of_choice(own, choice, reduction, n, chunks, streaming)
        ]  # fmt: skip
        open_rows = [row for row in planned if row.verdict.outcome == "pass"]
        lengths = _lengths(open_rows)
        shapes = {case: [*some, *_pieces(case, open_rows)] for case, some in lengths.items()}
        prepared, unbuilt = own.prepare(list(shapes), shapes)
        found = own.verify(prepared, lengths, unbuilt)
    known = {one.case: one for one in prepared}
    rows = tuple(_joined(row, known, found.verdicts) for row in planned)
    return Rows(rows, found.interrupted)


def _of_choice(
    session: Session, choice: Choice, reduction: Reduction, n: int, chunks: Sequence[int],
    streaming: Streaming,
) -> Iterator[Row]:  # fmt: skip
    """Rows of one kernel, of `auto` each with what it takes for a chunk, or for the whole."""
    size = reduction.dtype.size
    (some,) = cases(session, [choice]).values()

    def row(way: WayName, chunk: int | None) -> Row:
        at = chunk or n
        case, verdict = next((one, v) for one, v in some if one.at(at))
        case = replace(case, only=None)
        pieces = schedule(n, chunk, size) if chunk else (Piece(0, 0, n),)
        reason = _why_not(case, reduction, at)
        if verdict is None and reason:
            verdict = skipped("unfit", reason)
        return Row(case, way, chunk, pieces, verdict or RIGHT)

    yield from (row("pinned", chunk) for chunk in chunks)
    if streaming.file is None:
        yield row("mapped", None)
    yield row("pageable", max(chunks))


def _why_not(case: Case, reduction: Reduction, n: int) -> str | None:
    """Why a kernel's answers for chunks give none for the whole."""
    op, kernel = reduction.op, case.kernel
    if op.expression or op.name not in FOLDED:
        return f"streams are folded by {', '.join(FOLDED)}, not by {op.title}"
    if reduction.map or kernel.map:
        return "maps are not streamed: reduce an array of what it makes"
    if kernel.finish == "host":
        return "leaves partials for the host to fold"
    if kernel.shape(n, 1) != (n, 1):
        return "leaves an answer for each row of its own"
    return "overwrites its input" if kernel.in_place else None


def _lengths(rows: Sequence[Row]) -> dict[Case, list[Shape]]:
    """What each case is verified on beforehand: the lengths of its pieces, as far as that is
    quick; of all of them each answer is judged later."""
    found: dict[Case, dict[Shape, None]] = {}
    for row in rows:
        own = found.setdefault(row.case, {})
        own |= {(min(piece.count, _QUICK), 1): None for piece in row.pieces}
    return {case: list(some) for case, some in found.items()}


def _pieces(case: Case, rows: Sequence[Row]) -> list[Shape]:
    """All that a case is launched on."""
    mine = (row for row in rows if row.case == case)
    return list(dict.fromkeys((piece.count, 1) for row in mine for piece in row.pieces))


def _joined(row: Row, prepared: Mapping[Case, Prepared], verdicts: Mapping[Case, Verdict]) -> Row:
    """The row with what is known of its case."""
    if row.verdict.outcome != "pass":
        return row
    verdict = verdicts[row.case]
    one = prepared.get(row.case)
    if one is None or verdict.outcome != "pass":
        return replace(row, verdict=verdict)
    missing = next((p for p in row.pieces if (p.count, 1) not in one.plans), None)
    if missing:
        why = one.refusals.get((missing.count, 1), "does not take the length of a piece")
        return replace(row, verdict=worse(verdict, skipped("unfit", why)))
    # errors are those of the array itself
    verdict = replace(verdict, error=None, bound=None, ulp=None)
    return replace(row, verdict=verdict, prepared=one)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRecorder:
    """What records of one array have in common: it lies in a `source`, and `chunk` elements are the
    most that are copied at once; each of so many `ranks`, if there are, has a share of it."""

    backend: str
    settings: Settings
    reduction: Reduction
    n: int
    source: str
    pattern: str
    chunk: int
    ranks: int | None = None

    def records(self, tried: Tried) -> list[Record]:
        """Copying alone, where it was timed, then every row."""
        found = []
        times = tried.measured.timings
        copying = times.get(COPY)
        nbytes = self.n * self.reduction.dtype.size
        ceiling = nbytes / copying.median_us / 1e3 if copying else None
        conditions = conditions_of(tried.measured.conditions)
        if copying:
            found.append(replace(
                self._copying(), **bandwidth(copying, nbytes, None, ceiling), **conditions
            ))  # fmt: skip
        for k, row in enumerate(tried.rows):
            record = self._record(row)
            if k in times and row.verdict.outcome == "pass":
                figures = bandwidth(times[k], nbytes, None, ceiling)
                record = replace(record, **figures, **conditions)
            found.append(record)
        return found

    def _copying(self) -> Record:
        chunk_bytes = self.chunk * self.reduction.dtype.size
        return Record(
            kernel=COPYING, block=None, items=None, grid=None, passes=None, scope="copy",
            verdict="pass", reason="", way="copy", chunk_bytes=chunk_bytes, **self._shared(),
        )  # fmt: skip

    def _record(self, row: Row) -> Record:
        """A row without times."""
        case, verdict = row.case, row.verdict
        plan = row.plans[row.pieces[0].count] if row.prepared else None
        size = self.reduction.dtype.size
        return Record(
            kernel=case.kernel.id, block=case.block, items=case.items,
            grid=max((step.grid for step in plan.passes), default=0) if plan else None,
            passes=len(plan.passes) if plan else None, scope=case.kernel.scope,
            verdict=verdict.outcome, reason=verdict.reason, error=verdict.error,
            bound=verdict.bound, error_ulp=verdict.ulp,
            pct_bound=100 * (verdict.error or 0.0) / verdict.bound if verdict.bound else None,
            distinct=verdict.distinct, launches=verdict.launches, suite=case.suite,
            name=case.name, source_sha=case.kernel.sha, cause=verdict.cause,
            chosen=chosen_of(case.kernel),
            conditions=verdict.conditions if verdict.outcome == "pass" else (),
            way=row.way, chunk_bytes=row.chunk * size if row.chunk else None,
            **effort_of(verdict), **self._shared(),
        )  # fmt: skip

    def _shared(self) -> dict[str, Any]:
        return {
            "op": self.reduction.op.name, "dtype": self.reduction.dtype.name,
            "acc": self.reduction.acc.name, "n": self.n, "rows": 1, "backend": self.backend,
            "timing": "cold", "region": "total", "pattern": self.pattern, "source": self.source,
            "ranks": self.ranks,
        }  # fmt: skip


#: Those that `verify` tries where nobody says: rounded sums, and exact ones.
_PATTERNS = ("random", "exact")


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """Records of a run, how its rounds went, and what to say of them; `tried`: timing was begun.
    `interrupted`: Ctrl-C ended it, and it holds what there was by then."""

    records: tuple[Record, ...] = ()
    stories: tuple[Mapping[str, Any], ...] = ()
    remarks: tuple[str, ...] = ()
    tried: bool = False
    interrupted: bool = False


def streamed(
    session: Session, choices: Sequence[Choice], streaming: Streaming, together: Together = ALONE
) -> Streams:
    """Every kernel on every array that the session's settings name, or on one's share of them. What
    does not go together is a UsageError, KernelFault what the device does not go on after."""
    settings = session.settings
    if settings.rows != 1:
        raise UsageError(f"--rows {settings.rows}: an array is streamed as one row; leave it out")
    shares = settings.shares(choices)
    for reduction in shares:  # all before the first is made
        for n in settings.sizes:
            chunks(streaming, reduction, len(together.share(n)))
    done: list[Streams] = []
    for reduction, some in shares.items():
        for n in settings.sizes:
            done.append(_one(session, some, streaming, reduction, n, together))
            if done[-1].interrupted:
                return _all(done)
    return _all(done)


def _one(
    session: Session, choices: Sequence[Choice], streaming: Streaming, reduction: Reduction,
    n: int, together: Together,
) -> Streams:  # fmt: skip
    settings, own = session.settings, together.share(n)
    patterns = tuple(_patterns(session))
    streaming, length = streaming.part(own), len(own)
    counts = chunks(streaming, reduction, length)
    rows = rows_of(session, choices, reduction, length, counts, streaming)
    found = Tried(rows=rows.rows, interrupted=True)
    if not rows.interrupted:
        found = tried(session, reduction, length, rows.rows, streaming, patterns, together)
    recorder = StreamRecorder(
        backend=session.backend.name, settings=settings, reduction=reduction, n=n,
        source=streaming.source, pattern=GIVEN if streaming.file else patterns[-1],
        chunk=max(counts), ranks=together.ranks,
    )  # fmt: skip
    story = {
        "op": reduction.op.name, "dtype": reduction.dtype.name, "acc": reduction.acc.name, "n": n,
        "rows": 1, "timing": "cold", "rounds": found.measured.rounds,
    }  # fmt: skip
    return Streams(
        records=together.agreed(tuple(recorder.records(found))),
        stories=(story,) if found.tried else (),
        remarks=found.remarks,
        tried=found.tried,
        interrupted=found.interrupted,
    )


def _patterns(session: Session) -> Iterator[str]:
    """What arrays hold: that of the timing, or of the verification."""
    settings = session.settings
    if settings.rounds:
        yield settings.pattern
    elif settings.only_pattern:
        yield settings.only_pattern
    else:
        yield from _PATTERNS


def _all(done: Sequence[Streams]) -> Streams:
    return Streams(
        records=tuple(r for one in done for r in one.records),
        stories=tuple(s for one in done for s in one.stories),
        remarks=tuple(dict.fromkeys(text for one in done for text in one.remarks)),
        tried=any(one.tried for one in done),
        interrupted=any(one.interrupted for one in done),
    )
