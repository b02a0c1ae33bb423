"""`bench --gpus`: arrays sharded over ranks, a GPU each; with `--from`, streamed in shards.

A kernel reduces each rank's shard to a partial result. The kernel's last block, a second kernel,
NCCL or the host combines the partial results of all ranks. Kernels are verified on one GPU first,
since a kernel that hangs or faults ends its rank.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, cycle
from typing import Any, Generic, TypeVar

import numpy as np

from cudareduce.backends.protocol import (
    Backend,
    BackendName,
    Buffer,
    Launch,
    Program,
    Source,
    TimedBackend,
    require_built,
)
from cudareduce.backends.selection import gpu_count
from cudareduce.bench.cases import make_cases
from cudareduce.bench.command import verdict_codes
from cudareduce.bench.preconditions import with_races
from cudareduce.bench.records import case_fields
from cudareduce.bench.request import (
    BenchRequest,
    bench_settings,
    external_files,
    open_session,
    select_kernels,
)
from cudareduce.bench.runner import prepare_and_verify_edges
from cudareduce.bench.session import Session
from cudareduce.bench.stream.command import StreamBenchRequest, bench_streams
from cudareduce.bench.stream.run import SingleRank
from cudareduce.catalog.registry import Choice, load_registry
from cudareduce.collectives.collective import time_on_host
from cudareduce.collectives.communicator import (
    Communicator,
    Placement,
    agree,
    connect,
    find_placement,
)
from cudareduce.collectives.engines import Stage, build_programs, raise_if_gave_up
from cudareduce.collectives.inputs import (
    SHARDED_OPS,
    UFUNCS,
    ShardedArray,
    random_values,
    shard_range,
)
from cudareduce.collectives.kernels import device_text, helper_source, shared_source
from cudareduce.collectives.launcher import gpu_of, has_own_gpu, require_equal, start_ranks
from cudareduce.collectives.nccl import NcclCommunicator, load_nccl, open_communicator
from cudareduce.collectives.timing import (
    INPUT_SETS,
    LOOP_CALLS,
    SAMPLES,
    WARM_UP_ROUNDS,
    Batch,
    Stopwatch,
    TimedCall,
    with_times,
)
from cudareduce.collectives.verification import (
    DELAY_CLOCKS,
    REPEATS,
    call_pairs,
    verify_pairs,
    verify_repeats,
)
from cudareduce.collectives.windows import layout, open_windows
from cudareduce.errors import BuildError, EnvironmentProblem, UsageError, worst_exit_code
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, Programs, unit_source
from cudareduce.launch.plan import Plan
from cudareduce.launch.prelude import Stage as PassStage
from cudareduce.launch.prelude import Unit, prelude
from cudareduce.libraries.contract import AbsentError
from cudareduce.machine import why_too_large
from cudareduce.progress import Progress, phase
from cudareduce.reduction.inputs import Array, as_numbers, stored
from cudareduce.reduction.operators import OPERATORS, Reduction
from cudareduce.report.publish import Outputs, publish
from cudareduce.report.sections import sections
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.results.store import run_texts
from cudareduce.verify.verdict import RIGHT, Verdict, skipped

#: Names of the combinations in tables. `local` combines nothing: it is the time of the shards.
LOCAL, FUSED, BEHIND, NCCL, HOST = "local", "peer:fused", "peer:behind", "nccl", "host"
#: For each final stage of a plan, the stage whose output is a partial result.
_UNFINISHED: dict[PassStage, PassStage] = {"only": "first", "last": "middle"}
#: Test sizes: shards of one element, of part of a tile, and of several tiles.
_LENGTHS = (1000, 4099, 100_003)
#: The largest array that is verified before timing (timed calls verify longer ones), and largest
#: shard that is verified on one GPU first.
_MOST_VERIFIED = 2**22
#: The mail: a word for the call number, then two halves with the slots of each rank. A partial
#: result of up to 16 bytes takes four slots of the LL protocol.
_SLOT_BYTES, _SLOTS = 8, 4
#: Shards of this size evict themselves from L2 before they are read again: three times the largest
#: L2, 126 MB on a B200.
_COLD_BYTES = 3 * 126e6
#: A case and the name of a combination; the name is empty for all.
Key = tuple[Case, str]
Compiled = TypeVar("Compiled")


def shard_record(
    case: Case, engine: str, verdict: Verdict = RIGHT, *, n: int, ranks: int, backend: BackendName,
    **fields: Any,
) -> Record:  # fmt: skip
    """The record of a combination of a case on `n` elements, without times."""
    cold = n * case.reduction.dtype.size / ranks >= _COLD_BYTES
    plain = Record(
        op=case.reduction.op.name, dtype=case.reduction.dtype.name, acc=case.reduction.acc.name,
        n=n, rows=1, backend=backend, timing="cold" if cold else "warm", region="total",
        pattern="exact", ranks=ranks, engine=engine, **case_fields(case, verdict, None),
    )  # fmt: skip
    return replace(plain, **fields)


def measure_sharded(
    reduction: Reduction, cases: Sequence[Case], n: int, rounds: int, comm: Communicator,
    backend: Backend, *, timed: bool, quiet: bool,
) -> list[Record]:  # fmt: skip
    """Verify and time all combinations of all cases on `n` elements. Returns their records, the
    same on all ranks. Raises RankLost, BuildError, OutOfMemory, KernelFault and
    EnvironmentProblem."""
    parts = layout(comm.size, 0, _SLOT_BYTES * (1 + 2 * comm.size * _SLOTS))
    what = f"{'measuring' if timed else 'verifying'} {reduction.op.name} of {reduction.dtype.name}"
    steps = 1 + (rounds + WARM_UP_ROUNDS if timed else 0)
    record = partial(shard_record, n=n, ranks=comm.size, backend=backend.name)
    with (
        open_windows(comm, backend, parts) as windows,
        _open_nccl(comm, timed=timed) as (member, absent),
        phase(f"{what} on {comm.size} ranks", steps, quiet=quiet) as bar,
    ):
        stage = Stage(backend, comm, windows, "all-reduce", reduction)
        alone = min(n, _MOST_VERIFIED) if timed else n
        records, refusals = verify_sharded(stage, cases, n, alone, member)
        bar.step()
        refusals |= {(case, NCCL): absent for case in cases if absent}
        right = [key for key, r in records.items() if r.verdict == "pass"]
        timed_backend = backend.timed()
        if timed and timed_backend and right:
            fitting = [case for case in cases if any(case == other for other, _ in right)]
            with prepare_shard(stage, fitting, n, INPUT_SETS, member) as shard:
                refusals |= shard.refusals
                batches = _time_combinations(shard, timed_backend, right, rounds, bar)
                measured = {
                    key: with_times(records.get(key) or record(*key), timed_batches,
                                    n * reduction.dtype.size)
                    for key, timed_batches in batches.items()
                }  # fmt: skip
                for case, combinations in shard.combinations.items():
                    if (case, HOST) in right:
                        host_us = time_on_host(stage, combinations[HOST][0].run)
                        measured[case, HOST] = replace(records[case, HOST], host_us=host_us)
            records = measured | {key: r for key, r in records.items() if key not in measured}
        local_us = {case: r.time_us for (case, name), r in records.items() if name == LOCAL}
        complete = [
            replace(r, local_us=local_us.get(case)) if r.time_us else r
            for (case, name), r in records.items()
            if not {(case, name), (case, "")} & refusals.keys()
        ]
        return complete + [record(*key, skipped("unfit", why)) for key, why in refusals.items()]


@contextmanager
def _open_nccl(comm: Communicator, *, timed: bool) -> Iterator[tuple[NcclCommunicator | None, str]]:
    """This rank's NCCL communicator while the block runs, or the reason why there is none. Without
    `timed`, neither."""
    with ExitStack() as opened:
        member, why = None, ""
        try:
            if timed:
                library = agree(comm, lambda: load_nccl(None))
                member = opened.enter_context(open_communicator(library, comm))
        except AbsentError as error:
            why = str(error)
        yield member, why


def verify_sharded(
    stage: Stage, cases: Sequence[Case], n: int, alone: int, member: NcclCommunicator | None
) -> tuple[dict[Key, Record], dict[Key, str]]:
    """Verify each combination of each case at sizes up to `alone`. Returns the records, for `n`
    elements, and the reasons for missing combinations at the largest size."""
    records: dict[Key, Record] = {}
    refusals: dict[Key, str] = {}
    ranks, pairs = stage.comm.size, call_pairs(stage.comm.size)
    for size in sorted({ranks, ranks + 1, *(m for m in _LENGTHS if ranks < m < alone), alone}):
        with prepare_shard(stage, cases, size, 1, member, DELAY_CLOCKS) as shard:
            refusals = shard.refusals
            for case, combinations in shard.combinations.items():
                for name, (combination,) in combinations.items():
                    before = records.get((case, name))
                    if name == LOCAL or (before and before.verdict == "fail"):
                        continue
                    calls, distinct = ShardCalls(shard, combination), None
                    launches = ((before and before.tried_launches) or 0) + 2 * pairs
                    clear_mail(stage)
                    wrong = verify_pairs(stage.comm, calls, pairs)
                    if not wrong:
                        distinct, wrong = verify_repeats(stage.comm, calls, same_bits=True)
                        launches += REPEATS
                    records[case, name] = shard_record(
                        case, name, Verdict("fail", wrong) if wrong else RIGHT, n=n, ranks=ranks,
                        backend=stage.backend.name, distinct=distinct, tried_launches=launches,
                        launches=None if distinct is None else REPEATS,
                        version=combination.version,
                    )  # fmt: skip
    return records, refusals


@dataclass(frozen=True, slots=True)
class Combination:
    """The launches of one call: a kernel on the shard, then the combination of partial results.
    `waiting` are the programs that wait for other ranks; `version` is set for a library."""

    launches: tuple[Launch, ...]
    waiting: tuple[Program, ...] = ()
    version: str | None = None

    def run(self) -> None:
        """Enqueue all launches; a combination on the host waits for the GPU. Raises KernelFault and
        RankLost."""
        for launch in self.launches:
            launch()


@dataclass(frozen=True)
class Shard:
    """This rank's shard of an array of `n` elements, in GPU memory.

    `own` are its indices, `inputs` one array per alternating input, `partial` this rank's partial
    result, `partials` those of all ranks. `combinations` holds, by case and name, one combination
    per input; `refusals` the reasons for missing ones.
    """

    stage: Stage
    n: int
    own: range
    inputs: tuple[Buffer, ...]
    partial: Buffer
    partials: Buffer
    result: Buffer
    combinations: dict[Case, dict[str, list[Combination]]] = field(default_factory=dict)
    refusals: dict[Key, str] = field(default_factory=dict)


@contextmanager
def prepare_shard(
    stage: Stage, cases: Sequence[Case], n: int, turns: int,
    member: NcclCommunicator | None = None, delay_clocks: int = 0,
) -> Iterator[Shard]:  # fmt: skip
    """Allocate this rank's shard with `turns` inputs and compile the combinations of all cases,
    while the block runs. `member` is this rank's NCCL communicator. Raises OutOfMemory and
    RankLost."""
    backend, reduction, ranks = stage.backend, stage.reduction, stage.comm.size
    own, size = shard_range(n, stage.comm.rank, ranks), reduction.acc_size
    sizes = (*[len(own) * reduction.dtype.size] * turns, size, size * ranks, reduction.result_size)
    with ExitStack() as opened:
        buffers = []
        for nbytes in sizes:
            buffers.append(backend.allocate(nbytes))
            opened.callback(backend.free, buffers[-1])
        *inputs, partial_result, partials, result = buffers
        shard = Shard(stage, n, own, tuple(inputs), partial_result, partials, result)
        for case in cases:
            plan = _plan(stage, case, len(own))
            kernels = (
                plan if isinstance(plan, str) else build_kernels(stage, case, plan, delay_clocks)
            )
            if isinstance(plan, str) or isinstance(kernels, str):
                shard.refusals[case, ""] = str(kernels)
                continue
            why_not = _any_reason(stage, kernels.why_not_fused)
            if why_not:
                shard.refusals[case, FUSED] = why_not
                kernels = replace(kernels, fused={})
            by_input = [_combinations(shard, plan, kernels, source, opened, member)
                      for source in shard.inputs]  # fmt: skip
            shard.combinations[case] = {
                name: [each[name] for each in by_input] for name in by_input[0]
            }
        yield shard


def _plan(stage: Stage, case: Case, length: int) -> Plan | str:
    """The plan of this rank's shard, or the reason why a rank has none. Lengths of shards differ by
    up to one element, so some ranks may have a plan when others have none."""
    plan: Plan | str
    try:
        plan = case.plan(length, 1, stage.backend.limits())
        if plan.outputs != 1:
            plan = "computes more than one value"
    except UsageError as error:
        plan = str(error).removeprefix(f"{case.kernel.id} ")
    return _any_reason(stage, plan if isinstance(plan, str) else "") or plan


def _any_reason(stage: Stage, why_not: str) -> str:
    """The first reason that is not empty, in the order of ranks; the same on all ranks."""
    return next((why for why in stage.comm.all_gather(why_not) if why), "")


def _combinations(
    shard: Shard, plan: Plan, kernels: Kernels[Program], source: Buffer, opened: ExitStack,
    member: NcclCommunicator | None,
) -> dict[str, Combination]:  # fmt: skip
    """The combinations on one input, by name."""
    stage, reduction, backend = shard.stage, shard.stage.reduction, shard.stage.backend

    def bound(programs: Programs, out: Buffer) -> Launch:
        launches = Bound(backend, plan, programs, source, out=out)
        opened.callback(launches.release)
        return launches.run

    local = bound(kernels.alone, shard.partial)
    combinations = {LOCAL: Combination((local,))}
    if kernels.fused:
        fused = bound(kernels.fused, shard.result)
        combinations[FUSED] = Combination((fused,), tuple(kernels.fused.values()))
    # after `Bound`, which sets COUNT to the length of the shard
    for program in (*kernels.fused.values(), kernels.behind, kernels.gathered):
        program.set_constant("WINDOWS", *stage.windows.words())
        program.set_constant("MAIL", stage.windows.layout.mail)
        program.set_constant("BEGIN", shard.own.start)
        if reduction.op.needs_count:
            program.set_constant("COUNT", shard.n)
    behind = backend.launcher(kernels.behind, 1, 1, [shard.partial, shard.result])
    combinations[BEHIND] = Combination((local, behind), (kernels.behind,))
    timed = backend.timed()
    if member and timed and reduction.op.name in UFUNCS:
        call = member.launch(
            "all-reduce", replace(reduction, dtype=reduction.acc), shard.partial.address,
            shard.result.address, 1, timed.stream_handle,
        )  # fmt: skip
        combinations[NCCL] = Combination((local, call), version=member.nccl.version)
    gathered = backend.launcher(kernels.gathered, 1, 1, [shard.partials, shard.result, shard.n])
    exchange = partial(_exchange_on_host, shard)
    combinations[HOST] = Combination((local, exchange, gathered, backend.synchronize))
    return combinations


def _exchange_on_host(shard: Shard) -> None:
    """All-gather the partial results through the hosts."""
    backend, size = shard.stage.backend, shard.stage.reduction.acc_size
    own = backend.download(shard.partial, "uint8", size).tobytes()
    together = b"".join(shard.stage.comm.all_gather_bytes(own))
    backend.write(shard.partials, np.frombuffer(together, np.uint8))


@dataclass(frozen=True, slots=True)
class Kernels(Generic[Compiled]):
    """The kernels of a plan, as sources or compiled: `alone` stores a partial result, `fused` also
    combines the partial results of all ranks in its last block, `behind` combines them as a second
    kernel, `gathered` combines what the host has gathered. `fused` is empty if `why_not_fused`
    gives a reason."""

    alone: dict[Unit, Compiled]
    fused: dict[Unit, Compiled]
    behind: Compiled
    gathered: Compiled
    why_not_fused: str = ""

    @property
    def all(self) -> list[Compiled]:
        return [*self.alone.values(), *self.fused.values(), self.behind, self.gathered]


def kernel_sources(
    case: Case, plan: Plan, ranks: int, delay_clocks: int = 0
) -> Kernels[Source]:  # fmt: skip
    """The sources of a plan. With `delay_clocks`, the late rank pauses for that many clocks between
    sending and waiting."""
    # in a fused kernel an assignment to `Out` sends the partial result to all ranks
    indexed = "true" if case.reduction.op.indexed else "false"
    out = shared_source(ranks, delay_clocks) + f"constexpr bool INDEXED = {indexed};\n"
    out += device_text("sharded.cuh")
    why_not = ""
    if len(plan.passes) > 1:
        why_not = "takes several launches"
    elif plan.preset or plan.folds_on_host:
        why_not = "has no block that computes the whole sum"
    alone, fused = {}, {}
    for step in plan.passes:
        # of several passes only the last computes the result
        unfinished = step.stage == "only" and len(plan.passes) > 1
        stage = step.stage if unfinished else _UNFINISHED.get(step.stage, step.stage)
        alone[step.unit] = unit_source(case, (stage, step.text))
        if not why_not:
            fused[step.unit] = unit_source(case, ("first", 0), out)
    head = prelude(case.reduction, "first", 32, 1, 1, out=out)
    behind = helper_source(head, "exchange.cu", "exchange_partials")
    return Kernels(alone, fused, behind, helper_source(head, "gathered.cu", "gathered"), why_not)


def build_kernels(
    stage: Stage, case: Case, plan: Plan, delay_clocks: int
) -> Kernels[Program] | str:
    """Compile the kernels of a plan. Returns a reason if the kernel cannot store a partial
    result."""
    sources = kernel_sources(case, plan, stage.comm.size, delay_clocks)
    built = iter(build_programs(stage, sources.all))
    alone, error = _split_errors(sources.alone, built)
    if error:
        return f"does not compile with a partial result as its output: {error}"
    fused, error = _split_errors(sources.fused, built)
    why_not = sources.why_not_fused
    if error:
        why_not = f"does not compile with a result type that is assigned once: {error}"
    behind, gathered = require_built(built)
    return Kernels(alone, {} if why_not else fused, behind, gathered, why_not)


def _split_errors(
    units: Iterable[Unit], built: Iterator[Program | BuildError]
) -> tuple[dict[Unit, Program], str]:
    """Take the programs of `units` from `built`. Returns them by unit, and the first compiler
    error, or an empty text."""
    programs, first_error = {}, ""
    for unit in units:
        program = next(built)
        if isinstance(program, BuildError):
            first_error = first_error or _first_error(program)
        else:
            programs[unit] = program
    return programs, first_error


def _first_error(error: BuildError) -> str:
    """The first error message of a compiler's output."""
    lines = str(error).splitlines()
    return next((line.partition("error: ")[2] for line in lines if "error: " in line), lines[0])


def clear_mail(stage: Stage) -> None:
    """Clear the mail and status of all ranks, so that calls count from 1 again."""
    parts, backend = stage.windows.layout, stage.backend
    stage.comm.barrier()
    backend.zero(stage.windows.part(parts.mail, parts.nbytes - parts.mail))
    backend.zero(stage.windows.status)
    backend.synchronize()
    stage.comm.barrier()


@dataclass(frozen=True, slots=True)
class ShardCalls:
    """`VerifiedCalls` of one combination on a sharded array."""

    shard: Shard
    combination: Combination

    @property
    def n(self) -> int:
        return self.shard.n

    def exact(self, turn: int, turns: int) -> tuple[Array, Array]:
        reduction, comm = self.shard.stage.reduction, self.shard.stage.comm
        # libraries differ in how min and max treat NaN
        library = self.combination.version and reduction.op.name in ("min", "max")
        nan = reduction.dtype.kind == "float" and turn == turns - 1 and not library
        nan_rank = turn // 2 % comm.size if nan else None
        array = ShardedArray(reduction, self.n, comm.size, turn, nan_rank)
        return array.of(comm.rank), array.result

    def repeated(self) -> tuple[Array, Any, float | None]:
        stage, reduction = self.shard.stage, self.shard.stage.reduction
        if reduction.dtype.kind != "float" or reduction.op.name not in ("sum", "mean"):
            array = ShardedArray(reduction, self.n, stage.comm.size, 0)
            return array.of(stage.comm.rank), array.result, None
        values = stored(random_values(stage.comm.rank, len(self.shard.own)), reduction.dtype)
        wide = as_numbers(values, reduction.dtype).astype(np.float64)
        sums = stage.comm.all_gather([float(wide.sum()), float(np.abs(wide).sum())])
        exact, magnitude = sum(s for s, _ in sums), sum(a for _, a in sums)
        bound = self.n * reduction.acc.epsilon * magnitude  # for any summation order
        if reduction.op.name == "mean":
            exact /= self.n
            bound = bound / self.n + reduction.acc.epsilon * abs(exact)
        return values, exact, bound

    def run(self, values: Array, late: int) -> np.generic:
        shard, stage, backend = self.shard, self.shard.stage, self.shard.stage.backend
        backend.write(shard.inputs[0], values)
        backend.poison(shard.result)
        for program in self.combination.waiting:
            program.set_constant("WINDOWS", *stage.windows.words(late))
        self.combination.run()
        backend.synchronize()
        raise_if_gave_up(stage)
        result: np.generic = backend.download(shard.result, stage.reduction.result_dtype, 1)[0]
        return result

    def result(self, output: np.generic) -> np.generic:
        return output

    def why_wrong(self, output: np.generic, values: Array, expected: Array) -> str | None:
        return check_result(output, expected)


def check_result(result: np.generic, expected: Array) -> str | None:
    """Why a result is wrong, or None. NaN equals NaN."""
    if result == expected or (result != result and expected != expected):
        return None
    return f"the result is {result}, not {expected}"


def _time_combinations(
    shard: Shard, backend: TimedBackend, right: Sequence[Key], rounds: int, bar: Progress
) -> dict[Key, tuple[Batch, ...]]:
    """Time the correct combinations that run on the GPU, and each kernel without combination."""
    stage, comm = shard.stage, shard.stage.comm
    arrays = [ShardedArray(stage.reduction, shard.n, comm.size, turn) for turn in range(INPUT_SETS)]
    for source, array in zip(shard.inputs, arrays, strict=True):
        backend.write(source, array.of(comm.rank))
    clear_mail(stage)
    hooks = TimedShard(shard, backend, [array.result for array in arrays])
    calls: dict[Key, TimedCall] = {}
    for case, combinations in shard.combinations.items():
        for name, turns in combinations.items():
            if turns[0].version:  # a library's first call may synchronise, which the gate blocks
                turns[0].run()
            if name == LOCAL or ((case, name) in right and name != HOST):
                # batches and loops have an even number of calls: each begins with the first input
                enqueue = partial(_next_launch, cycle(turns))
                calls[case, name] = TimedCall(enqueue, hooks, collective=name != LOCAL)
    backend.synchronize()
    try:
        return Stopwatch(stage, backend, count(1)).rounds(calls, rounds, bar)
    finally:
        hooks.close()


def _next_launch(turns: Iterator[Combination], _: int) -> Launch:
    return next(turns).run


class TimedShard:
    """Sample hooks of a shard: save the result of each sample and check it afterwards."""

    def __init__(self, shard: Shard, backend: TimedBackend, expected: list[Array]) -> None:
        self._shard, self._backend, self._expected = shard, backend, expected
        size = shard.stage.reduction.result_size
        self._kept = [backend.allocate(size) for _ in range(SAMPLES)]

    def close(self) -> None:
        self._backend.free(*self._kept)

    def prepare(self, k: int) -> None:
        self._backend.poison(self._shard.result)

    def keep(self, k: int) -> None:
        self._backend.overwrite(self._kept[k], 0, self._shard.result)

    def wrong(self) -> str | None:
        stage = self._shard.stage
        for k, kept in enumerate(self._kept):
            result = self._backend.download(kept, stage.reduction.result_dtype, 1)[0]
            why = check_result(result, self._expected[k % INPUT_SETS])
            if why:
                return f"rank {stage.comm.rank}, sample {k + 1}: {why}"
        return None


#: Bytes that ranks on the emulator need per element.
_ELEMENT_BYTES = 24
#: Verdicts from best to worst. The worst one of all ranks counts.
_VERDICTS = ("pass", "skip", "fail")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedRequest:
    """A bench request on `gpus` ranks. `meet` is the rendezvous. With `source` the array is
    streamed in chunks of `chunk` elements."""

    bench: BenchRequest
    source: str | None = None
    chunk: tuple[int, ...] = ()
    gpus: int
    meet: str | None = None


def bench_sharded(request: ShardedRequest) -> int:
    """Start the ranks, or run one of them in a process that a launcher has started. Returns the
    exit code. Raises UsageError, EnvironmentProblem and RankLost."""
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
            raise EnvironmentProblem(f"the ranks' arrays {too_large}; give a smaller --n")
        return start_ranks(request.gpus, bench.argv)
    if request.gpus != placement.size:
        raise UsageError(
            f"--gpus {request.gpus}: {placement.launcher} started {placement.size} ranks; give "
            f"--gpus {placement.size}"
        )
    with connect(placement, request.meet) as comm:
        if request.source is None:
            return int(comm.broadcast(_bench_shard(bench, comm, placement)))
        stream = StreamBenchRequest(bench=bench, source=request.source, chunk=request.chunk)
        return int(comm.broadcast(_stream_shard(stream, comm, placement)))


def _stream_shard(request: StreamBenchRequest, comm: Communicator, placement: Placement) -> int:
    """Stream this rank's shard. Returns this rank's exit code."""
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
    options = {
        "--peers": bool(bench.peers), "--sms": bool(bench.selection.sms), "--graph": timing.graph,
        "--energy": timing.energy, "--timing": timing.timing != ("cold",),
        "--region": timing.region != "total", "--baseline-kernel": bool(timing.baseline_kernel),
        "--rows": problem.rows != 1, "--map": bool(bench.selection.map),
        "--op-expr": bool(problem.op_expr), "--pattern": timing.pattern != "random",
        "--max-time": bench.machine.max_time is not None, "--columns": bool(bench.columns),
        "--device": bench.machine.device != 0,
    }  # fmt: skip
    names = [name for name, is_given in options.items() if is_given]
    if names:
        raise UsageError(f"--gpus measures one array on several GPUs: leave out "
                         f"{' and '.join(names)}")  # fmt: skip
    for n in problem.n or ():
        if n < gpus:
            raise UsageError(f"--n {n}: give at least one element for each of {gpus} ranks")
    for op in problem.op or ():
        if op not in SHARDED_OPS:
            raise UsageError(f"--op {op}: --gpus takes {', '.join(SHARDED_OPS)}")


def _bench_shard(bench: BenchRequest, comm: Communicator, placement: Placement) -> int:
    """Verify and time the kernels as one of the ranks. Returns this rank's exit code."""
    quiet = bench.machine.quiet or comm.rank > 0
    machine = replace(bench.machine, device=gpu_of(placement), quiet=quiet)
    bench = replace(bench, machine=machine)
    settings = bench_settings(bench)
    registry = load_registry(bench.selection.folders)
    choices = list(map(without_index_only, select_kernels(bench, registry, external_files(bench))))
    if comm.rank == 0:
        bench.outputs.check(*(choice.kernel.path for choice in choices))
    with open_session(machine, settings) as session:
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
            records += _measure_size(session, choices, n, comm, timed=timed, quiet=quiet)
        device = session.backend.info()
    if comm.rank == 0:
        protocol = {
            "kernels": list(bench.selection.kernels or ("all",)), "ranks": comm.size,
            "rounds": bench.timing.rounds if timed else None, "samples": SAMPLES,
            "loop": LOOP_CALLS,
        }  # fmt: skip
        run = Run(tool(bench.argv), device, protocol, tuple(records))
        publish(bench.outputs, sections(run), run_texts(run))
    return worst_exit_code(verdict_codes(records))


def without_index_only(choice: Choice) -> Choice:
    """The choice without argmin and argmax kernels whose partial result has no value, only an
    index."""
    candidates = tuple(
        kernel for kernel in choice.candidates
        if not (kernel.finish == "one_word" and "argmax" in kernel.ops)
    )  # fmt: skip
    return replace(choice, candidates=candidates)


def _measure_size(
    session: Session, choices: Sequence[Choice], n: int, comm: Communicator, *, timed: bool,
    quiet: bool,
) -> list[Record]:  # fmt: skip
    """Verify on one GPU and measure all reductions at one size; their records."""
    records: list[Record] = []
    backend = session.backend
    for reduction, group in make_cases(session, choices).items():
        known = {case: verdict or _why_no_partials(case) for case, verdict in group}
        untried = [replace(case, only=None) for case, verdict in known.items() if verdict is None]
        alone = dict(zip(untried, verify_on_rank_0(session, untried, comm), strict=True))
        right = [case for case, verdict in alone.items() if verdict.outcome == "pass"]
        for case, verdict in (known | alone).items():
            if verdict and verdict.outcome != "pass":
                records.append(
                    shard_record(case, "", verdict, n=n, ranks=comm.size, backend=backend.name)
                )
        if right:
            records += measure_sharded(reduction, right, n, session.settings.rounds, comm, backend,
                                   timed=timed, quiet=quiet)  # fmt: skip
    return records


def _why_no_partials(case: Case) -> Verdict | None:
    """A skip verdict for a kernel without front matter, whose output is not of type `Out`."""
    if case.kernel.program is None:
        return None
    why = "has no front matter, so its output is not of type Out, which combines partial results"
    return skipped("unfit", why)


def verify_on_rank_0(session: Session, cases: Sequence[Case], comm: Communicator) -> list[Verdict]:
    """Verify each case on rank 0's GPU, at edge sizes and the session's sizes; the verdicts, on all
    ranks. Raises RankLost, and KeyboardInterrupt on rank 0."""
    own: list[Verdict] = []
    if comm.rank == 0:
        prepared, at = prepare_and_verify_edges(session, cases)
        sizes = [(n, 1) for n in session.settings.sizes if n <= _MOST_VERIFIED]
        verified = session.verify(
            prepared, dict.fromkeys(cases, sizes), with_races(session, at), skip_others=True
        )
        if verified.interrupted:
            raise KeyboardInterrupt
        own = [verified.verdicts[case] for case in cases]
    verdicts = comm.broadcast([[v.outcome, v.reason, v.cause] for v in own])
    return [Verdict(outcome, reason, cause=cause) for outcome, reason, cause in verdicts]


class StreamRanks(SingleRank):
    """Splits a streamed array over the ranks of a communicator."""

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
