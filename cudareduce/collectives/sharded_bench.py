"""`bench --gpus`: one array over several ranks, a GPU each; with `--from`, streamed in shards.

Kernels are verified on one GPU first: one that hangs or faults would take its rank with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from cudareduce.backends import gpu_count
from cudareduce.bench.cases import cases
from cudareduce.bench.command import verdict_codes
from cudareduce.bench.edges import at_edges
from cudareduce.bench.memory import why_too_large
from cudareduce.bench.races import with_races
from cudareduce.bench.request import BenchRequest, bench_settings, chosen, opened
from cudareduce.bench.session import Session
from cudareduce.bench.stream.command import StreamBenchRequest, bench_streams
from cudareduce.bench.stream.run import SingleRank
from cudareduce.collectives.communicator import Communicator
from cudareduce.collectives.inputs import SHARDED_OPS, shard_range
from cudareduce.collectives.launcher import gpu_of, has_own_gpu, require_equal, start
from cudareduce.collectives.rendezvous import Placement, connect, find_placement
from cudareduce.collectives.sharded import run_sharded, shard_record
from cudareduce.collectives.timing import IN_A_LOOP, SAMPLES
from cudareduce.errors import EnvironmentProblem, UsageError, worst_exit_code
from cudareduce.launch.case import Case
from cudareduce.library.registry import Choice, load_registry
from cudareduce.reduction.operators import OPERATORS
from cudareduce.report.publish import Outputs, publish
from cudareduce.report.sections import sections
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.results.store import run_texts
from cudareduce.verify.verdict import Verdict, skipped

#: Bytes that ranks on the emulator need per element.
_ELEMENT_BYTES = 24
#: The largest shard that is verified alone; longer ones are verified combined.
_MOST_ALONE = 2**22
#: From best to worst: the worst rank's verdict counts.
_VERDICTS = ("pass", "skip", "fail")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedRequest:
    """The bench request, the number of ranks, and where they meet. With `source` the array is
    streamed in chunks."""

    bench: BenchRequest
    source: str | None = None
    chunk: tuple[int, ...] = ()
    gpus: int
    meet: str | None = None


def bench_sharded(request: ShardedRequest) -> int:
    """Start the ranks, or be one of them. Returns the exit code. Raises UsageError,
    EnvironmentProblem and RankLost."""
    bench, machine = request.bench, request.bench.machine
    if request.source is None:
        if OPERATORS.keys() <= set(bench.problem.op or ()):  # --op all
            bench = replace(bench, problem=replace(bench.problem, op=SHARDED_OPS))
        _refuse_options(bench, request.gpus)
    elif machine.max_time is not None or machine.device:
        raise UsageError("--gpus takes all ranks through all rounds: leave out --max-time and "
                         "--device")  # fmt: skip
    placement = find_placement(os.environ)
    if placement is None:
        too_large = why_too_large(max(bench.problem.n or (1,)) * _ELEMENT_BYTES)
        if too_large and request.source is None and not gpu_count():
            raise EnvironmentProblem(
                f"what ranks make of so many elements {too_large}; give a smaller --n"
            )
        return start(request.gpus, bench.argv)
    if request.gpus != placement.size:
        raise UsageError(
            f"--gpus {request.gpus}: {placement.launcher} started {placement.size} ranks; give that"
        )
    with connect(placement, request.meet) as comm:
        if request.source is None:
            return int(comm.broadcast(_bench_shard(bench, comm, placement)))
        stream = StreamBenchRequest(bench=bench, source=request.source, chunk=request.chunk)
        return int(comm.broadcast(_stream_shard(stream, comm, placement)))


def _stream_shard(request: StreamBenchRequest, comm: Communicator, placement: Placement) -> int:
    """The part of one rank, with `--from`. Returns its exit code."""
    bench = request.bench
    selection, problem = bench.selection, bench.problem
    require_equal(comm, [
        selection.kernels, selection.block, selection.items, problem.n, problem.op, problem.dtype,
        problem.acc, bench.timing.pattern, bench.timing.rounds, bench.machine.backend,
        request.source, request.chunk,
    ])  # fmt: skip
    own = replace(bench, machine=replace(bench.machine, device=gpu_of(placement)))
    if comm.rank:
        own = replace(own, machine=replace(own.machine, quiet=True), outputs=Outputs())
    return bench_streams(replace(request, bench=own), StreamRanks(comm))


def _refuse_options(bench: BenchRequest, gpus: int) -> None:
    """Raise UsageError for options that sharded arrays do not support."""
    timing, problem = bench.timing, bench.problem
    given = {
        "--peers": bool(bench.peers), "--sms": bool(bench.selection.sms), "--graph": timing.graph,
        "--energy": timing.energy, "--timing": timing.timing != ("cold",),
        "--region": timing.region != "total", "--baseline-kernel": bool(timing.baseline_kernel),
        "--rows": problem.rows != 1, "--map": bool(bench.selection.map),
        "--op-expr": bool(problem.op_expr), "--pattern": timing.pattern != "random",
        "--max-time": bench.machine.max_time is not None, "--columns": bool(bench.columns),
        "--device": bench.machine.device != 0,
    }  # fmt: skip
    names = [name for name, there in given.items() if there]
    if names:
        raise UsageError(f"--gpus measures one array on several GPUs: leave out "
                         f"{' and '.join(names)}")  # fmt: skip
    for n in problem.n or ():
        if n < gpus:
            raise UsageError(f"--n {n}: give at least an element for each of {gpus} ranks")
    for op in problem.op or ():
        if op not in SHARDED_OPS:
            raise UsageError(f"--op {op}: --gpus takes {', '.join(SHARDED_OPS)}")


def _bench_shard(bench: BenchRequest, comm: Communicator, placement: Placement) -> int:
    """The part of one rank. Returns its exit code."""
    quiet = bench.machine.quiet or comm.rank > 0
    machine = replace(bench.machine, device=gpu_of(placement), quiet=quiet)
    bench = replace(bench, machine=machine)
    settings = bench_settings(bench)
    registry = load_registry(bench.selection.folders)
    choices = list(map(_leaving_partials, chosen(bench, registry, quiet)))
    if comm.rank == 0:
        bench.outputs.check(*(choice.kernel.path for choice in choices))
    with opened(machine, settings) as session:
        require_equal(comm, [
            [choice.kernel.id + choice.kernel.sha for choice in choices], list(settings.sizes),
            [f"{r.op.name} {r.dtype.name} {r.acc.name}" for r in settings.reductions],
            settings.rounds, settings.block, settings.items, session.backend.name,
        ])  # fmt: skip
        timed = has_own_gpu(comm, placement, session.spec, quiet=quiet)
        records: list[Record] = []
        for n in settings.sizes:
            # `auto` chooses for the size of a shard
            session.settings = replace(settings, sizes=(-(-n // comm.size),))
            records += _records(session, choices, n, comm, timed=timed, quiet=quiet)
        device = session.backend.info()
    if comm.rank == 0:
        protocol = {
            "kernels": list(bench.selection.kernels or ("all",)), "ranks": comm.size,
            "rounds": bench.timing.rounds if timed else None, "samples": SAMPLES,
            "loop": IN_A_LOOP,
        }  # fmt: skip
        run = Run(tool(bench.argv), device, protocol, tuple(records))
        publish(bench.outputs, sections(run), run_texts(run))
    return worst_exit_code(verdict_codes(records))


def _leaving_partials(choice: Choice) -> Choice:
    """The choice without kernels for argmin and argmax that keep no value beside the index."""
    among = tuple(
        kernel for kernel in choice.among
        if not (kernel.finish == "one_word" and "argmax" in kernel.ops)
    )  # fmt: skip
    return replace(choice, among=among)


def _records(
    session: Session, choices: Sequence[Choice], n: int, comm: Communicator, *, timed: bool,
    quiet: bool,
) -> list[Record]:  # fmt: skip
    """The records of all reductions at one size."""
    records: list[Record] = []
    backend = session.backend
    for reduction, group in cases(session, choices).items():
        known = {case: verdict or _why_no_partials(case) for case, verdict in group}
        untried = [replace(case, only=None) for case, verdict in known.items() if verdict is None]
        alone = dict(zip(untried, verify_alone(session, untried, comm), strict=True))
        right = [case for case, verdict in alone.items() if verdict.outcome == "pass"]
        for case, verdict in (known | alone).items():
            if verdict and verdict.outcome != "pass":
                records.append(shard_record(case, "", n, comm.size, backend.name, verdict))
        if right:
            records += run_sharded(reduction, right, n, session.settings.rounds, comm, backend,
                                   timed=timed, quiet=quiet)  # fmt: skip
    return records


def _why_no_partials(case: Case) -> Verdict | None:
    """A skip verdict for kernels without front matter, which have no type `Out`; else None."""
    if case.kernel.partials is None:
        return None
    why = "has no header: with one its answer is of the type Out, which others are added to"
    return skipped("unfit", why)


def verify_alone(session: Session, cases: Sequence[Case], comm: Communicator) -> list[Verdict]:
    """Verify each case on rank 0 at edge sizes and the session's sizes, and broadcast the verdicts.
    Raises RankLost, and KeyboardInterrupt on rank 0."""
    own: list[Verdict] = []
    if comm.rank == 0:
        prepared, at = at_edges(session, cases)
        sizes = [(n, 1) for n in session.settings.sizes if n <= _MOST_ALONE]
        verified = session.verify(
            prepared, dict.fromkeys(cases, sizes), with_races(session, at), skip_others=True
        )
        if verified.interrupted:
            raise KeyboardInterrupt
        own = [verified.verdicts[case] for case in cases]
    verdicts = comm.broadcast([[v.outcome, v.reason, v.cause] for v in own])
    return [Verdict(outcome, reason, cause=cause) for outcome, reason, cause in verdicts]


class StreamRanks(SingleRank):
    """The communicator, as streaming uses it."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self.ranks, self.first = comm.size, comm.rank == 0

    def share(self, n: int) -> range:
        return shard_range(n, self._comm.rank, self._comm.size)

    def slowest(self, run: Callable[[], float]) -> float:
        self._comm.barrier()
        return float(max(self._comm.all_gather(run())))

    def common(self, rows: Set[int]) -> Set[int]:
        gathered: list[list[int]] = self._comm.all_gather(sorted(rows))
        return set.intersection(*map(set, gathered))

    def agreed(self, records: tuple[Record, ...]) -> tuple[Record, ...]:
        require_equal(self._comm, [[r.kernel, r.source_sha] for r in records])
        own = [[r.verdict, r.reason] for r in records]
        by_row: list[Any] = list(zip(*self._comm.all_gather(own), strict=True))
        return tuple(map(_with_worst, records, by_row))

    def code(self, own: int) -> int:
        return int(worst_exit_code(set(self._comm.all_gather(own)) - {0}))


def _with_worst(record: Record, verdicts: list[tuple[str, str]]) -> Record:
    rank = max(range(len(verdicts)), key=lambda k: _VERDICTS.index(verdicts[k][0]))
    verdict, reason = verdicts[rank]
    if verdict == record.verdict:
        return record
    return replace(record, verdict=verdict, reason=f"rank {rank}: {reason}", time_us=None)
