"""`bench --gpus`: one array sharded over several ranks, a GPU each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cudareduce.backends import gpu_count
from cudareduce.bench.cases import cases
from cudareduce.bench.command import verdict_codes
from cudareduce.bench.memory import why_too_large
from cudareduce.bench.request import BenchRequest, bench_settings, chosen, opened
from cudareduce.bench.session import Session
from cudareduce.errors import EnvironmentProblem, UsageError, worst_exit_code
from cudareduce.launch.case import Case
from cudareduce.library.registry import Choice, load_registry
from cudareduce.problem.operators import OPERATORS, Reduction
from cudareduce.report.publish import publish
from cudareduce.report.sections import sections
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.results.store import run_texts
from cudareduce.several.communicator import Communicator
from cudareduce.several.launcher import gpu_of, has_own_gpu, require_equal, run_on_gpus
from cudareduce.several.rendezvous import Placement, find_placement
from cudareduce.several.sharded_inputs import OPS
from cudareduce.several.sharded_run import (
    Outcome,
    ShardedRecorder,
    progress_steps,
    run_sharded,
    verify_alone,
)
from cudareduce.several.timing import IN_A_LOOP, SAMPLES
from cudareduce.verify.verdict import Verdict, skipped

#: Bytes that ranks on the emulator need per element.
_ELEMENT_BYTES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedRequest:
    """The bench request, the number of ranks, and where they meet."""

    bench: BenchRequest
    gpus: int
    meet: str | None = None


def bench_sharded(request: ShardedRequest) -> int:
    """Start the ranks, or be one of them. Returns the exit code. Raises UsageError,
    EnvironmentProblem and RankLost."""
    request = replace(request, bench=_with_ops(request.bench))
    _refuse(request)
    if find_placement(os.environ) is None:
        _check_room(request)
    return run_on_gpus(request.gpus, request.bench.argv, request.meet, partial(_take_part, request))


def _with_ops(bench: BenchRequest) -> BenchRequest:
    """Replace `--op all` by the operators that sharded arrays support."""
    if not OPERATORS.keys() <= set(bench.problem.op or ()):
        return bench
    return replace(bench, problem=replace(bench.problem, op=OPS))


def _refuse(request: ShardedRequest) -> None:
    """Raise UsageError for options that sharded arrays do not support."""
    bench = request.bench
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
        if n < request.gpus:
            raise UsageError(f"--n {n}: give at least an element for each of {request.gpus} ranks")
    for op in problem.op or ():
        if op not in OPS:
            raise UsageError(f"--op {op}: --gpus takes {', '.join(OPS)}")


def _check_room(request: ShardedRequest) -> None:
    """Raise EnvironmentProblem if the emulator's ranks need more memory than this host has."""
    too_large = why_too_large(max(request.bench.problem.n or (1,)) * _ELEMENT_BYTES)
    if too_large and not gpu_count():
        raise EnvironmentProblem(
            f"what ranks make of so many elements {too_large}; give a smaller --n"
        )


def _take_part(request: ShardedRequest, comm: Communicator, here: Placement) -> int:
    """The part of one rank. Returns its exit code."""
    first = comm.rank == 0
    machine = replace(
        request.bench.machine, device=gpu_of(here),
        quiet=request.bench.machine.quiet or not first,
    )  # fmt: skip
    bench = replace(request.bench, machine=machine)
    settings = bench_settings(bench)
    registry = load_registry(bench.selection.folders)
    choices = list(map(_leaving_partials, chosen(bench, registry, machine.quiet)))
    if first:
        bench.outputs.check(*(choice.kernel.path for choice in choices))
    with opened(machine, settings) as session:
        require_equal(comm, _asked(choices, session))
        timed = has_own_gpu(comm, here, session.spec, quiet=machine.quiet)
        records = _records(session, choices, comm, timed=timed)
        device = session.backend.info()
    if first:
        protocol = _protocol(request, timed=timed)
        run = Run(tool(bench.argv), device, protocol, tuple(records))
        publish(bench.outputs, sections(run), run_texts(run))
    return int(comm.broadcast(worst_exit_code(verdict_codes(records))))


def _leaving_partials(choice: Choice) -> Choice:
    """The choice without kernels for argmin and argmax that keep no value beside the index."""
    places = [kernel for kernel in choice.among if kernel.finish == "one_word" and
              "argmax" in kernel.ops]  # fmt: skip
    return replace(choice, among=tuple(k for k in choice.among if k not in places))


def _records(
    session: Session, choices: Sequence[Choice], comm: Communicator, *, timed: bool
) -> list[Record]:
    """The records of all reductions and sizes."""
    settings, found = session.settings, []
    for n in settings.sizes:
        recorder = ShardedRecorder(n, comm.size, session.backend.name)
        # `auto` chooses for the size of a shard
        session.settings = replace(settings, sizes=(-(-n // comm.size),))
        for reduction, some in cases(session, choices).items():
            found += recorder.records(_tried(session, reduction, some, n, comm, timed=timed))
    return found


def _tried(
    session: Session, reduction: Reduction, some: Sequence[tuple[Case, Verdict | None]], n: int,
    comm: Communicator, *, timed: bool,
) -> list[Outcome]:  # fmt: skip
    known = {case: verdict or _why_not(case) for case, verdict in some}
    taken = [replace(case, only=None) for case, verdict in known.items() if verdict is None]
    alone = dict(zip(taken, verify_alone(session, taken, comm), strict=True))
    wrong = [Outcome(case, "", None, verdict) for case, verdict in {**known, **alone}.items()
             if verdict and verdict.outcome != "pass"]  # fmt: skip
    right = [case for case, verdict in alone.items() if verdict.outcome == "pass"]
    rounds = session.settings.rounds
    what = "measuring" if timed else "verifying"
    name = f"{what} {reduction.op.name} of {reduction.dtype.name} on {comm.size} ranks"
    with session.phase(name, progress_steps(rounds, timed=timed)) as bar:
        return wrong + run_sharded(
            reduction, right, n, rounds, comm, session.backend, bar.step, timed=timed
        )


def _why_not(case: Case) -> Verdict | None:
    """A skip verdict for kernels without front matter, which have no type `Out`; else None."""
    if case.kernel.partials is None:
        return None
    why = "has no header: with one its answer is of the type Out, which others are added to"
    return skipped("unfit", why)


def _asked(choices: Sequence[Choice], session: Session) -> list[Any]:
    """What must be equal on all ranks."""
    settings = session.settings
    return [
        [choice.kernel.id + choice.kernel.sha for choice in choices], list(settings.sizes),
        [f"{r.op.name} {r.dtype.name} {r.acc.name}" for r in settings.reductions],
        settings.rounds, settings.block, settings.items, session.backend.name,
    ]  # fmt: skip


def _protocol(request: ShardedRequest, *, timed: bool) -> dict[str, Any]:
    """The `protocol` of the result file."""
    return {
        "kernels": list(request.bench.selection.kernels or ("all",)), "ranks": request.gpus,
        "rounds": request.bench.timing.rounds if timed else None, "samples": SAMPLES,
        "loop": IN_A_LOOP,
    }  # fmt: skip
