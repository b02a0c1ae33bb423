"""`collective`: verify and time collectives with every engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cudareduce.backends import gpu_count, open_backend
from cudareduce.bench.command import verdict_codes
from cudareduce.bench.memory import why_too_large
from cudareduce.errors import EnvironmentProblem, UsageError, worst_exit_code
from cudareduce.problem.operators import reduction_of
from cudareduce.progress import phase, say
from cudareduce.report.publish import Outputs, publish
from cudareduce.report.sections import sections
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.results.store import run_texts
from cudareduce.several.collectives import MOST_RANKS, Collective
from cudareduce.several.engines import AutoEngine, record_choice
from cudareduce.several.kernels import ExchangeKernel, kernels_of, load_kernels
from cudareduce.several.launcher import Member, Ranks, require_equal, run_ranks
from cudareduce.several.libraries import KINDS, Wanted, select_libraries
from cudareduce.several.nccl import load, version_in
from cudareduce.several.run import Trial, link_notes, progress_steps, run_trial
from cudareduce.several.timing import IN_A_LOOP, SAMPLES

#: Default number of ranks without GPUs.
_RANKS = 2
#: Bytes that each rank needs per element of each rank's input.
_ELEMENT_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRequest:
    """`n` elements per rank of each size and type, the engines to use, folders of the user's
    kernels, and files of NCCL."""

    collective: Collective
    n: tuple[int, ...]
    op: str
    dtype: tuple[str, ...]
    engine: tuple[str, ...]
    nccl: tuple[Path, ...]
    rounds: int
    folders: tuple[Path, ...]
    among: Ranks
    outputs: Outputs


def collective(request: CollectiveRequest) -> int:
    """Start the ranks, or be one of them. Returns the exit code: 3 if an engine is wrong. Raises
    UsageError, EnvironmentProblem and RankLost."""
    if 0 in request.n:
        raise UsageError("--n 0: there is nothing to exchange")
    chosen, auto = _kernels(request), _auto_kernels(request)
    request.outputs.check()
    what = [request.collective, request.n, request.op, request.dtype, _by_host(request),
            request.rounds, [kernel.sha for kernel in (*chosen, *auto)]]  # fmt: skip
    return run_ranks(
        request.among, partial(_count, request), what, partial(_take_part, request, chosen, auto)
    )


def _count(request: CollectiveRequest) -> int:
    """The number of ranks to start here."""
    count = request.among.ranks or most_ranks()
    check_room(max(request.n), count)
    for file in request.nccl:  # once, before ranks start: an error, not a row of the table
        version_in(file)
    return count


def most_ranks() -> int:
    """One rank per GPU up to MOST_RANKS, and at least two."""
    return min(MOST_RANKS, max(_RANKS, gpu_count()))


def check_room(n: int, ranks: int) -> None:
    """Raise EnvironmentProblem if verification needs more memory than this host has."""
    too_large = why_too_large(ranks * ranks * n * _ELEMENT_BYTES)
    if too_large:
        raise EnvironmentProblem(
            f"--n {n}: {ranks} ranks that each compute what all put in: that {too_large}; give "
            "fewer elements"
        )


def _kernels(request: CollectiveRequest) -> list[ExchangeKernel]:
    """The requested kernels: those that are named, else all correct ones."""
    ours = kernels_of(load_kernels(request.folders), request.collective)
    known = {f"peer:{name}": kernel for name, kernel in ours.items()}
    if not request.engine:
        return [kernel for kernel in known.values() if kernel.wrong is None]
    for name in request.engine:
        if name not in (*known, "peer", AutoEngine.name, *KINDS, "host"):
            raise UsageError(
                f"--engine: there is no {name!r} for {request.collective}: "
                f"{', '.join([*known, AutoEngine.name, *KINDS, 'host'])}"
            )
    if request.nccl and not {"nccl", "nccl-symm"} & set(request.engine):
        raise UsageError("--nccl has no effect without nccl or nccl-symm among --engine: add one")
    some = [kernel for name, kernel in known.items() if name in request.engine]
    if "peer" in request.engine:
        some += [k for k in known.values() if k.wrong is None and k not in some]
    return some


def _auto_kernels(request: CollectiveRequest) -> list[ExchangeKernel]:
    """The kernels that `peer:auto` chooses from, if it is requested."""
    if AutoEngine.name not in request.engine:
        return []
    ours = kernels_of(load_kernels(), request.collective)
    return [kernel for kernel in ours.values() if kernel.wrong is None]


def _take_part(
    request: CollectiveRequest,
    chosen: list[ExchangeKernel],
    auto: list[ExchangeKernel],
    rank: Member,
) -> int:
    """The part of one rank. Returns its exit code."""
    libraries, missing = libraries_of(request, timed=rank.timed)
    require_equal(rank.comm, [str(library) for library in libraries])
    say(missing, rank.quiet)
    trial = Trial(
        collective=request.collective, kernels=tuple(chosen), auto=tuple(auto),
        libraries=libraries, by_host=_by_host(request), sizes=request.n, timed=rank.timed,
        rounds=request.rounds,
    )  # fmt: skip
    records: list[Record] = []
    notes: list[str] = []
    steps = len(request.dtype) * progress_steps(trial)
    what = "measuring" if trial.timed else "verifying"
    with open_backend(rank.spec) as backend, phase(what, steps, quiet=rank.quiet) as bar:
        for name in request.dtype:
            reduction = reduction_of(request.op, name)
            found, links = run_trial(trial, reduction, rank.comm, backend, bar.step)
            records += [record_choice(record, [k.short for k in auto]) for record in found]
            notes += link_notes(links)
        device = backend.info()
    if rank.first:
        run = Run(tool(request.among.argv), device, _protocol(request, trial, notes),
                  tuple(records))  # fmt: skip
        publish(request.outputs, sections(run), run_texts(run))
    return worst_exit_code(verdict_codes(records))


def libraries_of(request: CollectiveRequest, *, timed: bool) -> tuple[tuple[Wanted, ...], str]:
    """The requested libraries, else NCCL if it is installed and times are measured; and a remark if
    it is not."""
    if request.engine or request.nccl:
        return select_libraries(request.engine or ("nccl",), request.nccl), ""
    if not timed:
        return (), ""
    try:
        load(None)
    except EnvironmentProblem as problem:
        return (), f"NCCL is not among the engines: {problem}."
    return select_libraries(("nccl",), ()), ""


def _protocol(request: CollectiveRequest, trial: Trial, notes: list[str]) -> dict[str, Any]:
    """The `protocol` of the result file."""
    return {
        "collective": request.collective,
        "engines": list(request.engine),
        "timing": "warm",
        "rounds": request.rounds if trial.timed else None,
        "samples": SAMPLES,
        "loop": IN_A_LOOP,
        "remarks": notes,
    }


def _by_host(request: CollectiveRequest) -> bool:
    return not request.engine or "host" in request.engine
