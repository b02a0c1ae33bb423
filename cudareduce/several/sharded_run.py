"""Run kernels on a sharded array: verify each alone and combined, time them, make records.

Kernels are verified on one GPU first: one that hangs or faults would take its rank with it.
"""

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
from cudareduce.several.engines import Stage, raise_if_gave_up
from cudareduce.several.inputs import from_storage, random_values, to_storage
from cudareduce.several.nccl import NcclCommunicator, communicator, load
from cudareduce.several.run import host_clock_us, with_times
from cudareduce.several.sharded_engines import (
    Combination,
    Host,
    Local,
    ShardedCalls,
    TimedShard,
    check_result,
    clear_mail,
    is_cold,
    prepare_shard,
)
from cudareduce.several.sharded_engines import Nccl as NcclWay
from cudareduce.several.sharded_inputs import ShardedArray, shard_range
from cudareduce.several.timing import (
    SAMPLES,
    TURNS,
    UNCOUNTED,
    Batch,
    Enqueue,
    Entrant,
    Judge,
    Stopwatch,
    align_program,
    measure_in_turns,
    no_check,
)
from cudareduce.several.verification import LATE_S, REPEATS, STUMBLE, Finding, call_pairs
from cudareduce.several.windows import Allocate, device_windows, layout, mapped_windows
from cudareduce.verify.verdict import Verdict, skipped

#: The largest shard that is verified alone; longer ones are verified combined.
_MOST = 2**22


def verify_alone(session: Session, cases: Sequence[Case], comm: Communicator) -> list[Verdict]:
    """Verify each case on rank 0 at edge sizes and the session's sizes, and broadcast the verdicts.
    Raises RankLost, and KeyboardInterrupt on rank 0."""
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
class ShardedRecorder:
    """Makes the records of one array of `n` elements on some ranks."""

    n: int
    ranks: int
    backend: BackendName

    def records(self, found: Sequence[Outcome]) -> list[Record]:
        """One record per outcome, in order."""
        alone = {one.case: one for one in found if one.way == Local.name}
        return [self._record(one, alone.get(one.case)) for one in found]

    def _record(self, one: Outcome, alone: Outcome | None) -> Record:
        case, finding = one.case, one.finding
        wrong = finding.wrong if finding else None
        of_all = Verdict("fail", wrong) if wrong else Verdict("pass")
        verdict = one.untried or of_all
        shares = self.n * case.reduction.dtype.size / self.ranks
        plain = Record(
            kernel=case.kernel.id, op=case.reduction.op.name, dtype=case.reduction.dtype.name,
            acc=case.reduction.acc.name, n=self.n, rows=1, block=case.block, items=case.items,
            grid=None, passes=None, backend=self.backend, scope=case.kernel.scope,
            timing="cold" if is_cold(shares) else "warm", region="total", pattern="exact",
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
        record = with_times(plain, one.batches, self.n * case.reduction.dtype.size)
        times = known(tuple(batch.median_us for batch in alone.batches)) if alone else ()
        return replace(record, local_us=median(times) if times and record.time_us else None)


#: Test sizes: shards of one element, of part of a tile, and of several tiles.
_LENGTHS = (1000, 4099, 100_003)


def lengths(ranks: int, asked: int) -> list[int]:
    """The sizes to verify for a requested size."""
    return sorted({ranks, ranks + 1, *(n for n in _LENGTHS if ranks < n < asked), asked})


def verify_sharded(
    stage: Stage, cases: list[Case], asked: int, member: NcclCommunicator | None = None
) -> tuple[dict[tuple[Case, str], Finding], dict[tuple[Case, str], str]]:
    """Verify each combination of each case up to the size `asked`; returns findings and refusals.
    Raises RankLost, BuildError and OutOfMemory."""
    findings: dict[tuple[Case, str], Finding] = {}
    refusals: dict[tuple[Case, str], str] = {}
    for n in lengths(stage.comm.size, asked):
        with prepare_shard(stage, cases, n, 1, member, STUMBLE) as on:
            refusals = on.refusals
            for case, ways in on.ways.items():
                for (way,) in ways:
                    before = findings.get((case, way.name))
                    if way.name == Local.name or (before and before.wrong):
                        continue
                    made = before.calls if before else 0
                    findings[case, way.name] = _examined(stage, on, way, n, made)
    return findings, refusals


def _examined(stage: Stage, on: ShardedCalls, way: Combination, n: int, made: int) -> Finding:
    clear_mail(stage)
    wrong, calls = None, 2 * call_pairs(stage.comm.size)
    for turn in range(calls):  # also after an error: other ranks wait for this one in each call
        found = _wrong(stage, on, way, n, turn)
        wrong = wrong or found
    told = [text for text in stage.comm.all_gather(wrong) if text]
    if told:
        clear_mail(stage)
        return Finding(way.name, n, told[0], None, None, made + calls, way.version)
    same, distinct, wrong = _repeated(stage, on, way, n)
    return Finding(way.name, n, wrong, same, distinct, made + calls + REPEATS, way.version)


def _wrong(stage: Stage, on: ShardedCalls, way: Combination, n: int, turn: int) -> str | None:
    """Why one call is wrong on this rank, or None."""
    rank, ranks = stage.comm.rank, stage.comm.size
    late = turn // 2 % ranks  # late in two consecutive calls
    floats = stage.reduction.dtype.kind == "float"
    # libraries differ in how min and max treat NaN
    library = way.version is not None and stage.reduction.op.name in ("min", "max")
    nan_of = late if floats and turn == 2 * call_pairs(ranks) - 1 and not library else None
    content = ShardedArray(stage.reduction, n, ranks, turn, nan_of)
    if rank == late:
        time.sleep(LATE_S)
    try:
        got = _answer(stage, on, way, content.of(rank), late)
    except KernelFault as fault:
        return f"{fault}, at n = {n}"
    why = check_result(got, content.answer)
    return f"rank {rank}, n = {n}, call {turn + 1}: {why}" if why else None


def _repeated(
    stage: Stage, on: ShardedCalls, way: Combination, n: int
) -> tuple[bool, int, str | None]:
    """Whether all ranks had the same bits, the number of distinct results, and why they are wrong,
    if they are."""
    reduction, rank = stage.reduction, stage.comm.rank
    rounded = reduction.dtype.kind == "float" and reduction.op.name in ("sum", "mean")
    content = ShardedArray(reduction, n, stage.comm.size, 0)
    values = content.of(rank)
    if rounded:
        own = shard_range(n, rank, stage.comm.size)
        values = to_storage(random_values(rank, len(own)), reduction.dtype)
    exact, bound = _exact(stage, values, n) if rounded else (0.0, 0.0)
    bits, why = [], None
    for _ in range(REPEATS):  # also after an error: other ranks wait for this one in each call
        try:
            answer = _answer(stage, on, way, values, 0)
        except KernelFault as fault:
            why = f"{fault}, at n = {n}"
            continue
        bits.append(answer.tobytes().hex())
        if not rounded:
            why = why or check_result(answer, content.answer)
        elif not abs(float(answer) - exact) <= bound:
            why = f"n = {n}: further off than any order of additions explains"
    every = stage.comm.all_gather([bits, why])
    same = all(some == every[0][0] for some, _ in every)
    wrong = next((text for _, text in every if text), None if same else "ranks have other bits")
    return same, len({one for some, _ in every for one in some}), wrong


def _exact(stage: Stage, values: np.ndarray, n: int) -> tuple[float, float]:
    """The exact sum or mean of all ranks' numbers, and the error bound for any summation order."""
    reduction = stage.reduction
    held = from_storage(values, reduction.dtype).astype(np.float64)
    sums = stage.comm.all_gather([float(held.sum()), float(np.abs(held).sum())])
    exact, size = sum(s for s, _ in sums), sum(a for _, a in sums)
    bound = n * reduction.acc.epsilon * size
    if reduction.op.name == "mean":
        exact, bound = exact / n, bound / n + reduction.acc.epsilon * abs(exact / n)
    return exact, bound


def _answer(
    stage: Stage, on: ShardedCalls, way: Combination, values: np.ndarray, late: int
) -> np.generic:
    """The result of one call on this rank's values."""
    backend = stage.backend
    backend.write(on.inputs[0], values)
    backend.poison(on.answer)
    for program in way.waits:
        program.set_constant("WINDOWS", *stage.windows.words(late))
    way.run()
    backend.synchronize()
    raise_if_gave_up(stage)
    got: np.generic = backend.download(on.answer, stage.reduction.result_dtype, 1)[0]
    return got


#: Why a case lacks a combination; the name is empty if it lacks all.
Refusals = dict[tuple[Case, str], str]
#: Samples by round, and the time by the host's clock, of each combination of a case.
Figures = dict[tuple[Case, str], tuple[tuple[Batch, ...], float | None]]
#: The largest array that is verified before timing; timed calls verify longer ones.
_ALONE = 2**22
#: The mail: the call number, and two halves with a partial of up to 16 bytes per rank, which takes
#: four 8-byte words of flag and data.
_WORD_BYTES, _WORDS = 8, 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """The finding of one combination of a case, or the verdict if it was not tried, and its samples
    by round; for the host its time by the host's clock."""

    case: Case
    way: str
    finding: Finding | None
    untried: Verdict | None = None
    batches: tuple[Batch, ...] = ()
    host_us: float | None = None


def progress_steps(rounds: int, *, timed: bool) -> int:
    """How often `run_sharded` calls `progress`."""
    return 1 + (rounds + UNCOUNTED if timed else 0)


def run_sharded(
    reduction: Reduction, cases: Sequence[Case], n: int, rounds: int, comm: Communicator,
    backend: Backend, progress: Callable[[], None], *, timed: bool,
    allocate: Allocate = IpcMemory, nccl: Path | None = None,
) -> list[Outcome]:  # fmt: skip
    """Verify and time all combinations of all cases on `n` elements, the same on all ranks. Raises
    RankLost, BuildError, OutOfMemory, KernelFault and EnvironmentProblem."""
    mail = _WORD_BYTES * (1 + 2 * comm.size * _WORDS)
    parts = layout(comm.size, 0, mail)
    windows = (
        device_windows(comm, parts, allocate) if backend.timed()
        else mapped_windows(comm, parts)
    )  # fmt: skip
    with windows as held, _nccl_member(comm, nccl, timed=timed) as (member, absent):
        stage = Stage(backend, comm, held, "all-reduce", reduction)
        alone = min(n, _ALONE) if timed else n
        findings, refusals = verify_sharded(stage, list(cases), alone, member)
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
        found = [Outcome(*key, findings.get(key), None, *figures.get(key, ((), None)))
                 for key in keys if key not in left]  # fmt: skip
        return found + [Outcome(*key, None, skipped("unfit", why)) for key, why in refusals.items()]


@contextmanager
def _nccl_member(
    comm: Communicator, nccl: Path | None, *, timed: bool
) -> Iterator[tuple[NcclCommunicator | None, str]]:
    """This rank's NCCL communicator, or why there is none; neither if nothing is timed. Raises
    RankLost."""
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
    """The samples of correct combinations and of each kernel alone, and refusals at this size."""
    backend = stage.backend.timed()
    assert backend is not None
    ranks, rank = stage.comm.size, stage.comm.rank
    contents = [ShardedArray(stage.reduction, n, ranks, turn) for turn in range(TURNS)]
    with prepare_shard(stage, cases, n, TURNS, member) as on:
        for given, content in zip(on.inputs, contents, strict=True):
            backend.write(given, content.of(rank))
        clear_mail(stage)
        for turns in (turns for ways in on.ways.values() for turns in ways):
            if turns[0].version:  # a library's first call may wait for the gate
                turns[0].run()
        backend.synchronize()
        keys = dict(_entrants(on, right))
        subject = TimedShard(stage, on, contents, SAMPLES)
        try:
            watch = Stopwatch(stage, backend, align_program(stage))
            named = {str(k): key for k, key in enumerate(keys)}
            entrants = {name: Entrant(keys[key], subject, _judge(key[1]))
                        for name, key in named.items()}  # fmt: skip
            taken = measure_in_turns(watch, entrants, rounds, count(1), progress)
        finally:
            subject.close()
        figures: Figures = {key: (taken[name], None) for name, key in named.items()}
        for case, ways in on.ways.items():
            if (case, Host.name) in right:
                host = next(turns[0] for turns in ways if turns[0].name == Host.name)
                figures[case, Host.name] = (), host_clock_us(stage, host.run)
        return figures, on.refusals


def _judge(way: str) -> Judge | None:
    return no_check if way == Local.name else None


def _entrants(
    on: ShardedCalls, right: set[tuple[Case, str]]
) -> Iterator[tuple[tuple[Case, str], Enqueue]]:
    for case, ways in on.ways.items():
        for turns in ways:
            name = turns[0].name
            if name == Local.name or ((case, name) in right and name != Host.name):
                yield (case, name), _in_turn(turns)


def _in_turn(turns: Sequence[Combination]) -> Enqueue:
    """Launches that alternate between inputs. Batches and loops have an even number of them, so
    that each begins with the first."""
    following: Iterator[Combination] = cycle(turns)

    def enqueue(_: int) -> Launch:
        return next(following).run

    return enqueue
