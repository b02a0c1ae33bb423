"""Kernels by themselves, before ranks run them together.

One that hangs or faults would take its rank with it, and what an array over ranks holds does not
tell all that may be wrong with a kernel.


From what was tried to records: times beside those of the shares alone.

Is the answer right, on every rank, at every call? Inputs change between calls that follow one
another, and one rank in turn comes late, as with arrays that ranks exchange.

One array of each length over all ranks: every way verified, then timed in the same rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, cycle
from pathlib import Path
from statistics import median

import numpy as np

from cudareduce.backend import Backend, BackendName, Launch
from cudareduce.bench.edges import at_edges
from cudareduce.bench.races import with_races
from cudareduce.bench.records import chosen_of
from cudareduce.bench.session import Session
from cudareduce.errors import KernelFault
from cudareduce.gpu.peer_memory import IpcMemory
from cudareduce.intervals import known
from cudareduce.launch.case import Case
from cudareduce.peers.contract import AbsentError
from cudareduce.problem.operators import Reduction
from cudareduce.results.record import Record
from cudareduce.several.communicator import Communicator, agree
from cudareduce.several.engines import Stage, look_for_those_who_gave_up
from cudareduce.several.inputs import at_random, read, stored
from cudareduce.several.nccl import NcclCommunicator, communicator, load
from cudareduce.several.run import by_host_clock, taken
from cudareduce.several.sharded_engines import (
    Host,
    Local,
    Share,
    Timed,
    Way,
    cleared,
    cold,
    judged,
    on_share,
)
from cudareduce.several.sharded_engines import Nccl as NcclWay
from cudareduce.several.sharded_inputs import Content, share
from cudareduce.several.timing import (
    SAMPLES,
    TURNS,
    UNCOUNTED,
    Batch,
    Enqueue,
    Entrant,
    Judge,
    Stopwatch,
    aligning,
    in_turn,
    unjudged,
)
from cudareduce.several.verification import LATE_S, REPEATS, STUMBLE, Finding, pairs
from cudareduce.several.windows import Allocate, device_windows, layout, mapped_windows
from cudareduce.verify.verdict import Verdict, skipped

#: Elements of a share at most that is verified by itself; the exchange verifies longer ones.
_MOST = 2**22


def by_themselves(session: Session, cases: Sequence[Case], comm: Communicator) -> list[Verdict]:
    """The verdict on each case at the edges and at the session's sizes, from rank 0 to all: as on
    one GPU, where a user's file is in child processes. Raises RankLost, and on rank 0 may raise
    KeyboardInterrupt."""
    own = [] if comm.rank else _verdicts(session, cases)
    told = comm.broadcast([[v.outcome, v.reason, v.cause] for v in own])
    return [Verdict(outcome, reason, cause=cause) for outcome, reason, cause in told]


def _verdicts(session: Session, cases: Sequence[Case]) -> list[Verdict]:
    prepared, at = at_edges(session, cases)
    sizes = [(n, 1) for n in session.settings.sizes if n <= _MOST]
    found = session.verify(
        prepared, dict.fromkeys(cases, sizes), with_races(session, at), skip_others=True
    )
    if found.interrupted:
        raise KeyboardInterrupt
    return [found.verdicts[case] for case in cases]


@dataclass(frozen=True, slots=True)
class SpreadRecorder:
    """What records of one array have in common: its `n` elements lie on so many `ranks`."""

    n: int
    ranks: int
    backend: BackendName

    def records(self, found: Sequence[Tried]) -> list[Record]:
        """A record of each way, those of a kernel one after the other."""
        alone = {one.case: one for one in found if one.way == Local.name}
        return [self._record(one, alone.get(one.case)) for one in found]

    def _record(self, one: Tried, alone: Tried | None) -> Record:
        case, finding = one.case, one.finding
        wrong = finding.wrong if finding else None
        of_all = Verdict("fail", wrong) if wrong else Verdict("pass")
        verdict = one.untried or of_all
        shares = self.n * case.reduction.dtype.size / self.ranks
        plain = Record(
            kernel=case.kernel.id, op=case.reduction.op.name, dtype=case.reduction.dtype.name,
            acc=case.reduction.acc.name, n=self.n, rows=1, block=case.block, items=case.items,
            grid=None, passes=None, backend=self.backend, scope=case.kernel.scope,
            timing="cold" if cold(shares) else "warm", region="total", pattern="exact",
            verdict=verdict.outcome, reason=verdict.reason, suite=case.suite, name=case.name,
            source_sha=case.kernel.sha, cause=verdict.cause,
            distinct=finding.distinct if finding else None,
            launches=REPEATS if finding and finding.distinct is not None else None,
            tried_launches=finding.calls if finding else None,
            chosen=chosen_of(case.kernel), ranks=self.ranks, engine=one.way,
            version=finding.version if finding else None,
        )  # fmt: skip
        if verdict.outcome != "pass" or not one.batches:
            return replace(plain, host_us=one.host_us)
        record = taken(plain, one.batches, self.n * case.reduction.dtype.size)
        times = known(tuple(batch.median_us for batch in alone.batches)) if alone else ()
        return replace(record, local_us=median(times) if times and record.time_us else None)


#: Lengths at which shares are one element, a part of a tile and several tiles, in elements beside
#: those that are asked for.
_LENGTHS = (1000, 4099, 100_003)


def lengths(ranks: int, asked: int) -> list[int]:
    """Those that are tried where `asked` is what is asked for."""
    return sorted({ranks, ranks + 1, *(n for n in _LENGTHS if ranks < n < asked), asked})


def examined(
    stage: Stage, cases: list[Case], asked: int, member: NcclCommunicator | None = None
) -> tuple[dict[tuple[Case, str], Finding], dict[tuple[Case, str], str]]:
    """What came of each way of each case, up to a length of `asked`, and why there is none. Raises
    RankLost, BuildError and OutOfMemory."""
    findings: dict[tuple[Case, str], Finding] = {}
    refusals: dict[tuple[Case, str], str] = {}
    for n in lengths(stage.comm.size, asked):
        with on_share(stage, cases, n, 1, member, STUMBLE) as on:
            refusals = on.refusals
            for case, ways in on.ways.items():
                for (way,) in ways:
                    before = findings.get((case, way.name))
                    if way.name == Local.name or (before and before.wrong):
                        continue
                    made = before.calls if before else 0
                    findings[case, way.name] = _examined(stage, on, way, n, made)
    return findings, refusals


def _examined(stage: Stage, on: Share, way: Way, n: int, made: int) -> Finding:
    cleared(stage)
    wrong, calls = None, 2 * pairs(stage.comm.size)
    for turn in range(calls):  # all calls, as others wait for this rank in each
        found = _wrong(stage, on, way, n, turn)
        wrong = wrong or found
    told = [text for text in stage.comm.all_gather(wrong) if text]
    if told:
        cleared(stage)
        return Finding(way.name, n, told[0], None, None, made + calls, way.version)
    same, distinct, wrong = _repeated(stage, on, way, n)
    return Finding(way.name, n, wrong, same, distinct, made + calls + REPEATS, way.version)


def _wrong(stage: Stage, on: Share, way: Way, n: int, turn: int) -> str | None:
    """Why one call is wrong on this rank; None if it is right."""
    rank, ranks = stage.comm.rank, stage.comm.size
    late = turn // 2 % ranks  # in two that follow one another
    floats = stage.reduction.dtype.kind == "float"
    # of NaN among others each library has its own opinion
    library = way.version is not None and stage.reduction.op.name in ("min", "max")
    nan_of = late if floats and turn == 2 * pairs(ranks) - 1 and not library else None
    content = Content(stage.reduction, n, ranks, turn, nan_of)
    if rank == late:
        time.sleep(LATE_S)
    try:
        got = _answer(stage, on, way, content.of(rank), late)
    except KernelFault as fault:
        return f"{fault}, at n = {n}"
    why = judged(got, content.answer)
    return f"rank {rank}, n = {n}, call {turn + 1}: {why}" if why else None


def _repeated(stage: Stage, on: Share, way: Way, n: int) -> tuple[bool, int, str | None]:
    """Whether all ranks had the same bits, how many answers there were to one input, and why they
    are wrong if they are."""
    reduction, rank = stage.reduction, stage.comm.rank
    rounded = reduction.dtype.kind == "float" and reduction.op.name in ("sum", "mean")
    content = Content(reduction, n, stage.comm.size, 0)
    values = content.of(rank)
    if rounded:
        own = share(n, rank, stage.comm.size)
        values = stored(at_random(rank, len(own)), reduction.dtype)
    exact, bound = _exact(stage, values, n) if rounded else (0.0, 0.0)
    bits, why = [], None
    for _ in range(REPEATS):  # all calls, as others wait for this rank in each
        try:
            answer = _answer(stage, on, way, values, 0)
        except KernelFault as fault:
            why = f"{fault}, at n = {n}"
            continue
        bits.append(answer.tobytes().hex())
        if not rounded:
            why = why or judged(answer, content.answer)
        elif not abs(float(answer) - exact) <= bound:
            why = f"n = {n}: further off than any order of additions explains"
    every = stage.comm.all_gather([bits, why])
    same = all(some == every[0][0] for some, _ in every)
    wrong = next((text for _, text in every if text), None if same else "ranks have other bits")
    return same, len({one for some, _ in every for one in some}), wrong


def _exact(stage: Stage, values: np.ndarray, n: int) -> tuple[float, float]:
    """The exact sum or mean of all ranks' numbers, and how far off one in any order may be."""
    reduction = stage.reduction
    held = read(values, reduction.dtype).astype(np.float64)
    sums = stage.comm.all_gather([float(held.sum()), float(np.abs(held).sum())])
    exact, size = sum(s for s, _ in sums), sum(a for _, a in sums)
    bound = n * reduction.acc.epsilon * size
    if reduction.op.name == "mean":
        exact, bound = exact / n, bound / n + reduction.acc.epsilon * abs(exact / n)
    return exact, bound


def _answer(stage: Stage, on: Share, way: Way, values: np.ndarray, late: int) -> np.generic:
    """What a call makes of this rank's values."""
    backend = stage.backend
    backend.write(on.inputs[0], values)
    backend.poison(on.answer)
    for program in way.waits:
        program.set_constant("WINDOWS", *stage.windows.words(late))
    way.run()
    backend.synchronize()
    look_for_those_who_gave_up(stage)
    got: np.generic = backend.download(on.answer, stage.reduction.result_dtype, 1)[0]
    return got


#: Why there is no such way of a case, or of its whole, without a name.
Refusals = dict[tuple[Case, str], str]
#: Of ways of cases: samples by rounds, and what a call took by the host's clock.
Figures = dict[tuple[Case, str], tuple[tuple[Batch, ...], float | None]]
#: Elements of an array that is verified by itself at most, where timed calls verify longer ones.
_ALONE = 2**22
#: Bytes of mail: two halves of what all ranks send, 16 bytes of a partial at most as four words of
#: 8, and the number of the call.
_WORD_BYTES, _WORDS = 8, 4


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of a way of a case at a length: what was found of its answers, or the verdict for
    which ranks did not try it, and its samples by rounds; of one by the host what a call took by
    the host's clock."""

    case: Case
    way: str
    finding: Finding | None
    untried: Verdict | None = None
    batches: tuple[Batch, ...] = ()
    host_us: float | None = None


def steps(rounds: int, *, timed: bool) -> int:
    """How often a trial tells of its progress."""
    return 1 + (rounds + UNCOUNTED if timed else 0)


def tried(
    reduction: Reduction, cases: Sequence[Case], n: int, rounds: int, comm: Communicator,
    backend: Backend, progress: Callable[[], None], *, timed: bool,
    allocate: Allocate = IpcMemory, nccl: Path | None = None,
) -> list[Tried]:  # fmt: skip
    """All ways of all cases on an array of `n` elements, the same on all ranks. Raises RankLost,
    BuildError, OutOfMemory, KernelFault and EnvironmentProblem."""
    mail = _WORD_BYTES * (1 + 2 * comm.size * _WORDS)
    parts = layout(comm.size, 0, mail)
    windows = (
        device_windows(comm, parts, allocate) if backend.timed()
        else mapped_windows(comm, parts)
    )  # fmt: skip
    with windows as held, _member(comm, nccl, timed=timed) as (member, absent):
        stage = Stage(backend, comm, held, "all-reduce", reduction)
        alone = min(n, _ALONE) if timed else n
        findings, refusals = examined(stage, list(cases), alone, member)
        refusals |= {(case, NcclWay.name): absent for case in cases if absent}
        progress()
        right = {key for key, finding in findings.items() if not finding.wrong}
        figures: Figures = {}
        if timed and right:
            taken = [case for case in cases if any(case == other for other, _ in right)]
            figures, later = _timed(stage, taken, n, rounds, right, progress, member)
            refusals |= later
        keys = [*figures, *(key for key in findings if key not in figures)]
        left = {key for key in keys if key in refusals or (key[0], "") in refusals}
        found = [Tried(*key, findings.get(key), None, *figures.get(key, ((), None)))
                 for key in keys if key not in left]  # fmt: skip
        return found + [Tried(*key, None, skipped("unfit", why)) for key, why in refusals.items()]


@contextmanager
def _member(
    comm: Communicator, nccl: Path | None, *, timed: bool
) -> Iterator[tuple[NcclCommunicator | None, str]]:
    """This rank's part of NCCL, of the library in that file or of the one that is found, or why
    there is none; neither where nothing is timed. Raises RankLost."""
    with ExitStack() as opened:
        member, why = None, ""
        try:
            if timed:
                library = agree(comm, partial(load, nccl))
                member = opened.enter_context(communicator(library, comm))
        except AbsentError as error:
            why = str(error)
        yield member, why


def _timed(
    stage: Stage, cases: list[Case], n: int, rounds: int, right: set[tuple[Case, str]],
    progress: Callable[[], None], member: NcclCommunicator | None,
) -> tuple[Figures, Refusals]:  # fmt: skip
    """The samples of all that is right, and of each kernel alone, of the host its own time; and why
    some of it does not go at this length."""
    backend = stage.backend.timed()
    assert backend is not None
    ranks, rank = stage.comm.size, stage.comm.rank
    contents = [Content(stage.reduction, n, ranks, turn) for turn in range(TURNS)]
    with on_share(stage, cases, n, TURNS, member) as on:
        for given, content in zip(on.inputs, contents, strict=True):
            backend.write(given, content.of(rank))
        cleared(stage)
        for turns in (turns for ways in on.ways.values() for turns in ways):
            if turns[0].version:  # what a library makes ready at its first call may wait for a gate
                turns[0].run()
        backend.synchronize()
        keys = dict(_entrants(on, right))
        subject = Timed(stage, on, contents, SAMPLES)
        try:
            watch = Stopwatch(stage, backend, aligning(stage))
            named = {str(k): key for k, key in enumerate(keys)}
            entrants = {name: Entrant(keys[key], subject, _judge(key[1]))
                        for name, key in named.items()}  # fmt: skip
            taken = in_turn(watch, entrants, rounds, count(1), progress)
        finally:
            subject.close()
        figures: Figures = {key: (taken[name], None) for name, key in named.items()}
        for case, ways in on.ways.items():
            if (case, Host.name) in right:
                host = next(turns[0] for turns in ways if turns[0].name == Host.name)
                figures[case, Host.name] = (), by_host_clock(stage, host.run)
        return figures, on.refusals


def _judge(way: str) -> Judge | None:
    """Shares alone leave no answer."""
    return unjudged if way == Local.name else None


def _entrants(
    on: Share, right: set[tuple[Case, str]]
) -> Iterator[tuple[tuple[Case, str], Enqueue]]:
    for case, ways in on.ways.items():
        for turns in ways:
            name = turns[0].name
            if name == Local.name or ((case, name) in right and name != Host.name):
                yield (case, name), _in_turn(turns)


def _in_turn(turns: Sequence[Way]) -> Enqueue:
    """Launches that take turns between inputs: an even number of them, in a batch and in a loop,
    so that each batch begins with the first."""
    following: Iterator[Way] = cycle(turns)

    def enqueue(_: int) -> Launch:
        return next(following).run

    return enqueue
