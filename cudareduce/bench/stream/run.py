"""Streams one array through the device with every kernel and transfer mode: verification of all
results, then rounds of timing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any, Literal

import numpy as np

from cudareduce.backends.protocol import Buffer, TimedBackend
from cudareduce.bench.cases import make_cases
from cudareduce.bench.records import bandwidth, case_fields, conditions_of
from cudareduce.bench.session import Session
from cudareduce.bench.stream.pipeline import (
    BUFFERS,
    Copying,
    Feed,
    Mapped,
    Piece,
    Stage,
    StagingFeed,
    Streamed,
    TransferMode,
    UnfilledFeed,
    schedule,
    why_not_mapped,
)
from cudareduce.bench.stream.source import (
    FOLDED,
    Content,
    Streaming,
    cached_share,
    chunks,
    cut_points,
    pages,
    read_content,
)
from cudareduce.catalog.registry import Choice
from cudareduce.errors import KernelFault, OutOfMemory, UsageError
from cudareduce.intervals import noise_pct
from cudareduce.launch.case import Case, Prepared, Shape
from cudareduce.launch.plan import Plan, Problem
from cudareduce.machine import Conditions, why_too_large
from cudareduce.reduction.inputs import Array
from cudareduce.reduction.operators import Reduction
from cudareduce.reduction.patterns import GIVEN
from cudareduce.reduction.reference import Reference
from cudareduce.report.numbers import bytes_text
from cudareduce.results.record import COPYING, Record
from cudareduce.timing.rounds import Timing, over
from cudareduce.verify.verdict import RIGHT, Effort, Verdict, judge, skipped, worse

#: Kernels are verified on pieces of up to this many elements before they stream.
_QUICK = 2**22
#: Patterns that `verify` streams by default: rounded sums, and exact ones.
_PATTERNS = ("random", "exact")
#: The row number of copies without a kernel; kernels count from 0.
_COPY = -1
#: The values of the record field `way`.
ModeName = Literal["pinned", "mapped", "pageable"]


class SingleRank:
    """The interface to other ranks for a run on a single GPU."""

    #: How many ranks there are; None without several.
    ranks: int | None = None
    #: True on the rank that prints and writes.
    first = True

    def share(self, n: int) -> range:
        """The elements of `n` that this rank streams."""
        return range(n)

    def slowest(self, run: Callable[[], float]) -> float:
        """Run on all ranks at once; the longest time. Raises what `run` does, and RankLost."""
        return run()

    def common(self, rows: Set[int]) -> Set[int]:
        """The rows that are still running on all ranks. Raises RankLost."""
        return rows

    def agreed(self, records: tuple[Record, ...]) -> tuple[Record, ...]:
        """Records with the worst verdict of all ranks. Raises RankLost."""
        return records

    def code(self, own: int) -> int:
        """The exit code of all ranks. Raises RankLost."""
        return own


SINGLE_RANK = SingleRank()


class Judge:
    """Judges the results of the pieces of an array, each within the bound of its plan, and of the
    whole, with one rounding more for each piece."""

    def __init__(
        self, content: Content, pieces: Sequence[Piece], plans: Mapping[int, Plan], pattern: str
    ) -> None:
        self._pieces, self._pattern = pieces, pattern
        self._plans = [plans[piece.count] for piece in pieces]
        self._right = [content.of(piece.start, piece.end) for piece in pieces]
        n = pieces[-1].end
        self._right_whole = content.of(0, n)
        self._acc = content.reduction.acc
        self._out_of_range = any(map(self._is_out_of_range, (*self._right, self._right_whole)))
        depth = max(plan.depth for plan in self._plans) + len(pieces)
        self._whole = replace(self._plans[0], problem=Problem(content.reduction, n), depth=depth)
        effort = Effort(frozenset({(n, 1)}), frozenset({pattern}), frozenset(), len(pieces))
        self._judged = replace(RIGHT, effort=effort)

    def verdict(self, parts: Array, whole: Array) -> Verdict:
        """The verdict on the results of all pieces and of the whole; a failure names the first
        wrong piece."""
        if self._out_of_range:
            name = self._acc.name
            return skipped("unfit", f"its elements leave the range of {name}: --acc takes another")
        for piece, plan, right in zip(self._pieces, self._plans, self._right, strict=True):
            verdict = judge(plan, parts[piece.number : piece.number + 1], right, self._pattern)
            if verdict is not None and verdict.outcome == "fail":
                count, place = len(self._pieces), ""
                if count > 1:
                    place = f"elements {piece.start} to {piece.end - 1}, piece " \
                            f"{piece.number + 1} of {count}: "  # fmt: skip
                return worse(replace(verdict, reason=place + verdict.reason), self._judged)
        verdict = judge(self._whole, whole, self._right_whole, self._pattern)
        return worse(verdict or RIGHT, self._judged)

    def _is_out_of_range(self, right: Reference) -> bool:
        """True if finite elements may combine to a value beyond the accumulator's range."""
        if self._acc.kind != "float" or right.magnitude is None:
            return False
        return bool((np.finfo(self._acc.storage).max < right.magnitude).any()
                    and np.isfinite(right.magnitude).all())  # fmt: skip


class Runs:
    """The runs of one transfer mode, and the verdict on their results; equal bits are judged
    once."""

    def __init__(self, mode: TransferMode, judge: Judge | None = None) -> None:
        self._mode, self._judge = mode, judge
        self._verdicts: dict[bytes, Verdict] = {}
        self._wholes: set[bytes] = set()
        self._count = 0

    def run(self, timed: TimedBackend | None) -> float:
        """Stream the array once and judge its result. Returns microseconds, 0 on a backend without
        timers. Raises KernelFault."""
        self._mode.poison()
        start, end = self._mode.run()
        parts, whole = self._mode.results()  # waits for the last launch, and so for all copies
        us = timed.elapsed_us(start, end) if timed else 0.0
        self._count += 1
        if self._judge is not None:
            self._wholes.add(whole.tobytes())
            key = hashlib.blake2b(parts.tobytes() + whole.tobytes()).digest()
            if key not in self._verdicts:
                self._verdicts[key] = self._judge.verdict(parts, whole)
        return us

    def verdict(self) -> Verdict:
        """The verdict on all runs so far."""
        verdict, damage = RIGHT, self._mode.damage()
        for one in (*self._verdicts.values(), *([Verdict("fail", damage)] if damage else ())):
            verdict = worse(verdict, one)
        return replace(verdict, distinct=len(self._wholes), launches=self._count)


@dataclass(slots=True)
class Row:
    """A kernel with one transfer mode, in copies of `chunk` elements; None is the whole array.
    `prepared` is None for a row that does not run or stopped, and `runs` before its first run with
    a pattern."""

    case: Case
    mode: ModeName
    chunk: int | None
    pieces: tuple[Piece, ...]
    verdict: Verdict
    prepared: Prepared | None = None
    runs: Runs | None = None

    @property
    def plans(self) -> dict[int, Plan]:
        """The plan of each length of a piece."""
        assert self.prepared is not None
        return {p.count: self.prepared.plans[p.count, 1] for p in self.pieces}

    def stop(self, verdict: Verdict) -> None:
        """Stop running this row and record the verdict."""
        self.verdict, self.prepared, self.runs = worse(self.verdict, verdict), None, None

    def add_runs(self) -> None:
        """Include the runs so far in the verdict."""
        if self.runs is not None:
            self.verdict, self.runs = worse(self.verdict, self.runs.verdict()), None


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """The records of a run, a summary of its rounds, and remarks; `timed`: rounds were measured.
    `interrupted`: Ctrl-C ended it, and these are the records until then."""

    records: tuple[Record, ...] = ()
    protocols: tuple[Mapping[str, Any], ...] = ()
    remarks: tuple[str, ...] = ()
    timed: bool = False
    interrupted: bool = False

    def __add__(self, other: Streams) -> Streams:
        return Streams(
            records=self.records + other.records,
            protocols=self.protocols + other.protocols,
            remarks=tuple(dict.fromkeys(self.remarks + other.remarks)),
            timed=self.timed or other.timed,
            interrupted=self.interrupted or other.interrupted,
        )


def run_streams(
    session: Session, choices: Sequence[Choice], streaming: Streaming,
    ranks: SingleRank = SINGLE_RANK,
) -> Streams:  # fmt: skip
    """Stream every reduction and size of the session's settings, or this rank's share of them, with
    every kernel. Raises UsageError, and KernelFault if the device cannot continue."""
    settings = session.settings
    if settings.rows != 1:
        raise UsageError(f"--rows {settings.rows}: an array is streamed as one row; leave it out")
    shares = settings.shares(choices)
    problems = [(reduction, n) for reduction in shares for n in settings.sizes]
    for reduction, n in problems:  # check all before the first array is generated
        chunks(streaming, reduction, len(ranks.share(n)))
    done = Streams()
    for reduction, n in problems:
        done += _stream_array(session, shares[reduction], streaming, reduction, n, ranks)
        if done.interrupted:
            break
    return done


def _stream_array(
    session: Session, choices: Sequence[Choice], streaming: Streaming, reduction: Reduction,
    n: int, ranks: SingleRank,
) -> Streams:  # fmt: skip
    settings, share = session.settings, ranks.share(n)
    streaming = streaming.part(share)
    counts = chunks(streaming, reduction, len(share))
    patterns: tuple[str, ...] = _PATTERNS
    if streaming.file:
        patterns = (GIVEN,)
    elif settings.rounds:
        patterns = (settings.pattern,)
    elif settings.only_pattern:
        patterns = (settings.only_pattern,)
    rows, interrupted = _prepare_rows(session, choices, reduction, len(share), counts, streaming)
    run = _ArrayRun(session, reduction, len(share), rows, streaming, ranks)
    if not interrupted and any(row.prepared for row in rows):
        interrupted = run.run(patterns)
    shared = {
        "op": reduction.op.name, "dtype": reduction.dtype.name, "acc": reduction.acc.name, "n": n,
        "rows": 1, "timing": "cold",
    }  # fmt: skip
    records = _records(
        rows, run.timings, run.conditions, n * reduction.dtype.size, reduction.dtype.size,
        shared | {
            "backend": session.backend.name, "region": "total", "pattern": patterns[-1],
            "source": streaming.source, "ranks": ranks.ranks,
        },
        max(counts),
    )  # fmt: skip
    return Streams(
        records=ranks.agreed(tuple(records)),
        protocols=(shared | {"rounds": run.rounds},) if run.timed else (),
        remarks=tuple(run.remarks), timed=run.timed, interrupted=interrupted,
    )  # fmt: skip


def _prepare_rows(
    session: Session, choices: Sequence[Choice], reduction: Reduction, n: int,
    chunks: Sequence[int], streaming: Streaming,
) -> tuple[list[Row], bool]:  # fmt: skip
    """The rows of all kernels, compiled and verified on short pieces; True if Ctrl-C ended that."""
    sizes = tuple(dict.fromkeys((*chunks, n)))
    settings = replace(session.settings, reductions=(reduction,), instead=(), sizes=sizes)
    with closing(Session(session.backend, session.spec, settings, session.phase)) as own:
        rows = [
            row for choice in choices
            for row in _rows_of(own, choice, reduction, n, chunks, streaming)
        ]  # fmt: skip
        short: dict[Case, dict[Shape, None]] = {}
        launched: dict[Case, dict[Shape, None]] = {}
        for row in rows:
            if row.verdict.outcome == "pass":
                for piece in row.pieces:
                    short.setdefault(row.case, {})[min(piece.count, _QUICK), 1] = None
                    launched.setdefault(row.case, {})[piece.count, 1] = None
        shapes = {case: [*some, *launched[case]] for case, some in short.items()}
        prepared, unbuilt = own.prepare(list(short), shapes)
        verified = own.verify(prepared, {case: list(some) for case, some in short.items()}, unbuilt)
    by_case = {one.case: one for one in prepared}
    for row in rows:
        if row.verdict.outcome != "pass":
            continue
        row.verdict = verified.verdicts[row.case]
        one = by_case.get(row.case)
        if one is None or row.verdict.outcome != "pass":
            continue
        missing = next((p for p in row.pieces if (p.count, 1) not in one.plans), None)
        if missing:
            why = one.refusals.get((missing.count, 1), "does not take the length of a piece")
            row.stop(skipped("unfit", why))
        else:
            # The error in the record is that of the array itself.
            row.verdict = replace(row.verdict, error=None, bound=None, ulp=None)
            row.prepared = one
    return rows, verified.interrupted


def _rows_of(
    session: Session, choice: Choice, reduction: Reduction, n: int, chunks: Sequence[int],
    streaming: Streaming,
) -> Iterator[Row]:  # fmt: skip
    """The rows of one kernel; `auto` selects a kernel for each chunk."""
    (group,) = make_cases(session, [choice]).values()
    modes: list[tuple[ModeName, int | None]] = [("pinned", chunk) for chunk in chunks]
    modes += [("mapped", None)] if streaming.file is None else []
    for mode, chunk in (*modes, ("pageable", max(chunks))):
        length = chunk or n
        case, verdict = next((one, v) for one, v in group if one.at(length))
        case = replace(case, only=None)
        pieces = schedule(n, chunk, reduction.dtype.size) if chunk else (Piece(0, 0, n),)
        reason = _why_not_folded(case, reduction, length)
        if verdict is None and reason:
            verdict = skipped("unfit", reason)
        yield Row(case, mode, chunk, pieces, verdict or RIGHT)


def _why_not_folded(case: Case, reduction: Reduction, n: int) -> str | None:
    """Why the results of pieces cannot be folded; None if they can."""
    op, kernel = reduction.op, case.kernel
    if op.expression or op.name not in FOLDED:
        return f"streams are folded by {', '.join(FOLDED)}, not by {op.title}"
    if reduction.map or kernel.map:
        return "maps are not streamed: reduce an array of what it makes"
    if kernel.finish == "host":
        return "leaves partials for the host to fold"
    if kernel.shape(n, 1) != (n, 1):
        return "leaves one result per row"
    return "overwrites its input" if kernel.in_place else None


class _TimeSpent(Exception):
    """The deadline of the run has passed."""


@dataclass(slots=True)
class _Memory:
    """The array in host memory and the buffers its pieces pass through. `data` is the array as
    bytes: pinned memory, which the device sees as `pinned`, or a mapped file. `pageable` holds the
    same elements in ordinary memory, None if there is no room for them; `staging` is pinned memory
    for pieces of a file."""

    stage: Stage
    data: np.ndarray
    pinned: Buffer | None
    pageable: np.ndarray | None
    staging: tuple[np.ndarray, ...]


class _ArrayRun:
    """Verifies rows on one array, then times them."""

    def __init__(
        self, session: Session, reduction: Reduction, n: int, rows: list[Row], streaming: Streaming,
        ranks: SingleRank,
    ) -> None:  # fmt: skip
        self._session, self._reduction, self._n = session, reduction, n
        self._rows, self._file, self._ranks = rows, streaming.file, ranks
        self._size = reduction.dtype.size
        self._chunk = max((row.chunk or 0 for row in rows), default=0)
        self.timings: dict[int, Timing] = {}
        self.conditions, self.rounds, self.timed = Conditions(), 0, False
        self.remarks: list[str] = []

    def run(self, patterns: Sequence[str]) -> bool:
        """Verify rows on the array of each pattern, and time them on the last if rounds are
        requested; True if Ctrl-C ended it. Rows without memory are skips. Raises KernelFault if the
        device cannot continue."""
        with ExitStack() as stack:
            try:
                memory = self._allocate(stack)
                modes = self._modes(memory, stack)
                return self._run(memory, modes, patterns)
            except OutOfMemory as error:
                for row in self._rows:
                    row.stop(skipped("machine", str(error)))
                return False

    def _run(
        self, memory: _Memory, modes: Mapping[int, TransferMode], patterns: Sequence[str]
    ) -> bool:
        interrupted, why_not = False, ""
        try:
            for pattern in patterns:
                self._verify(memory, modes, pattern)
            runs = {k: row.runs for k, row in enumerate(self._rows) if row.runs is not None}
            right = {k for k, one in runs.items() if one.verdict().outcome == "pass"}
            common = sorted(self._ranks.common(right))
            timed = self._session.backend.timed()
            if timed and self._session.settings.rounds and common:
                interrupted = self._time(timed, memory, {k: runs[k] for k in common})
        except KeyboardInterrupt:
            interrupted, why_not = True, "interrupted before it was tried"
        except _TimeSpent:
            why_not = self._session.why_cut()
        for row in self._rows:
            if row.prepared and row.runs is None and why_not:
                row.verdict = worse(row.verdict, skipped("time", why_not))
            row.add_runs()
        return interrupted

    def _allocate(self, stack: ExitStack) -> _Memory:
        """Allocate and pin memory until the stack is left. Raises OutOfMemory."""
        backend = self._session.backend
        nbytes, chunk_bytes = self._n * self._size, self._chunk * self._size
        sizes = BUFFERS * [chunk_bytes] if self._file else [nbytes]
        too_large = why_too_large(sum(sizes))
        if too_large:
            raise OutOfMemory(f"{too_large}: give a smaller --n or --chunk")
        pageable = None
        if not self._file and not why_too_large(2 * nbytes):
            pageable = pages(nbytes)[:nbytes]
        places = [pages(size) for size in sizes]
        began = perf_counter()
        buffers = []
        for place in places:
            buffers.append(backend.pin(place))
            stack.callback(backend.free, buffers[-1])
        if backend.timed():
            self.remarks.append(
                f"{bytes_text(sum(sizes))} of the host's memory pinned in "
                f"{perf_counter() - began:.1f} s"
            )
        stage = Stage(backend, chunk_bytes)
        stack.callback(stage.release)  # before the pinned memory
        if self._file:
            data = self._file.mapped()
            staging = tuple(place[:chunk_bytes] for place in places)
            return _Memory(stage, data, None, data, staging)
        return _Memory(stage, places[0][:nbytes], buffers[0], pageable, ())

    def _modes(self, memory: _Memory, stack: ExitStack) -> dict[int, TransferMode]:
        """The transfer mode of every row that runs, by its number; others are skips."""
        timed, modes = self._session.backend.timed(), dict[int, TransferMode]()
        for k, row in enumerate(self._rows):
            if row.prepared is None:
                continue
            feed = Feed(memory.data, self._size)
            if row.mode == "mapped":
                why = why_not_mapped(timed, row.case, self._n) if timed else None
                if why:
                    row.stop(skipped("machine", why))
                    continue
                assert memory.pinned is not None
                plan = row.plans[self._n]
                modes[k] = Mapped(memory.stage, memory.pinned, plan, row.prepared.programs)
                continue
            if row.mode == "pageable":
                if memory.pageable is None:
                    size = bytes_text(self._n * self._size)
                    why = f"takes a second array in the host's memory, {size}"
                    row.stop(skipped("machine", why))
                    continue
                feed = Feed(memory.pageable, self._size)
            elif self._file:
                copies = memory.stage.copies
                feed = StagingFeed(memory.data, self._size, memory.staging, copies)
                stack.callback(feed.close)
            modes[k] = Streamed(memory.stage, row.pieces, feed, row.plans, row.prepared.programs)
        return modes

    def _verify(self, memory: _Memory, modes: Mapping[int, TransferMode], pattern: str) -> None:
        """Run every row once on the array of a pattern."""
        content = self._content(memory, pattern)
        if memory.pageable is not None and not self._file:
            np.copyto(memory.pageable, memory.data)
        with self._session.phase(f"streaming {pattern} input", len(modes)) as progress:
            for k, mode in modes.items():
                row = self._rows[k]
                if row.prepared is None:
                    continue
                self._check_time()
                progress.now(f"{row.case.kernel.id} {row.mode}")
                row.add_runs()
                runs = Runs(mode, Judge(content, row.pieces, row.plans, pattern))
                try:
                    runs.run(None)
                    row.runs = runs
                except KernelFault as fault:
                    self._stop_after(row, fault)
                progress.step()

    def _stop_after(self, faulty: Row, fault: KernelFault) -> None:
        """Stop a row that faulted; on a GPU all others too, since its context is lost."""
        faulty.stop(Verdict("fail", str(fault)))
        if self._session.backend.timed():
            name = f"{faulty.case.kernel.id} {faulty.mode}"
            skip = skipped("machine", f"the GPU does not go on after {name}: leave that out")
            for row in self._rows:
                row.runs = None
                if row.verdict.outcome != "fail":
                    row.stop(skip)

    def _check_time(self) -> None:
        if self._session.settings.deadline.passed:
            raise _TimeSpent

    def _content(self, memory: _Memory, pattern: str) -> Content:
        """Fill the array, or read the file, and compute its reference results."""
        cuts = cut_points(self._n, {piece.end for row in self._rows for piece in row.pieces})
        what = "reading the file" if self._file else f"making {pattern} input"
        with self._session.phase(what, len(cuts) - 1) as progress:

            def step() -> None:
                progress.step()
                self._check_time()

            return read_content(
                memory.data.view(self._reduction.dtype.storage), self._reduction, cuts, step,
                None if self._file else pattern, self._session.settings.timed_seed,
            )  # fmt: skip

    def _time(self, timed: TimedBackend, memory: _Memory, right: Mapping[int, Runs]) -> bool:
        """Measure rounds of the right rows and of copies alone, each forward and backward, until
        the deadline; True if Ctrl-C ended them. Incomplete rounds are dropped."""
        feed = Feed(memory.data, self._size)
        if self._file:
            feed = UnfilledFeed(memory.staging, self._size)
            share = cached_share(memory.data)
            if share is not None:
                self.remarks.append(f"{100 * share:.0f} % of the file lies in the page cache")
        copying = Copying(memory.stage, schedule(self._n, self._chunk, self._size), feed)
        rows = {_COPY: Runs(copying), **right}
        rows[_COPY].run(timed)  # the first run is slower
        settings, monitor, self.timed = self._session.settings, timed.monitor(), True
        kept: list[dict[int, list[float]]] = []
        states: list[Conditions] = []
        interrupted = False
        with self._session.phase("measuring rounds of all rows", settings.rounds) as progress:
            try:
                while len(kept) < settings.rounds and not settings.deadline.passed:
                    times: dict[int, list[float]] = {number: [] for number in rows}
                    for number in (*rows, *reversed(rows)):
                        if settings.deadline.passed:
                            break
                        us = self._ranks.slowest(partial(rows[number].run, timed))
                        times[number].append(us)
                    if any(len(pair) < 2 for pair in times.values()):
                        break
                    states.append(monitor.read())
                    kept.append(times)
                    progress.step()
            except KeyboardInterrupt:
                interrupted = True
                timed.finish()
        if kept:
            self.timings = {number: _timing([times[number] for times in kept]) for number in rows}
        self.conditions, self.rounds = over(states), len(kept)
        return interrupted


def _timing(by_round: list[list[float]]) -> Timing:
    times = [us for pair in by_round for us in pair]
    return Timing(
        by_round=tuple(median(pair) for pair in by_round), samples=len(times), min_us=min(times),
        noise_pct=noise_pct(times), discarded=0,
    )  # fmt: skip


def _records(
    rows: Sequence[Row], timings: Mapping[int, Timing], conditions: Conditions, nbytes: int,
    size: int, shared: Mapping[str, Any], chunk: int,
) -> Iterator[Record]:  # fmt: skip
    """A record of copying alone, if it was timed, then of every row; `shared` are the fields of
    all."""
    copying = timings.get(_COPY)
    ceiling = nbytes / copying.median_us / 1e3 if copying else None

    def figures(number: int) -> dict[str, Any]:
        if number not in timings:
            return {}
        return {**bandwidth(timings[number], nbytes, None, ceiling), **conditions_of(conditions)}

    if copying:
        yield Record(
            kernel=COPYING, block=None, items=None, grid=None, passes=None, scope="copy",
            verdict="pass", reason="", way="copy", chunk_bytes=chunk * size, **shared,
            **figures(_COPY),
        )  # fmt: skip
    for k, row in enumerate(rows):
        plan = row.plans[row.pieces[0].count] if row.prepared else None
        yield Record(
            way=row.mode, chunk_bytes=row.chunk * size if row.chunk else None, **shared,
            **case_fields(row.case, row.verdict, plan),
            **(figures(k) if row.verdict.outcome == "pass" else {}),
        )  # fmt: skip
