"""`collective`: arrays of several ranks, combined by every engine there is, verified and timed."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cudareduce.backends import BackendSpec, choose_backend, gpu_count, open_backend
from cudareduce.bench.command import verdict_codes
from cudareduce.bench.memory import why_too_large
from cudareduce.errors import EnvironmentProblem, UsageError, worst_exit_code
from cudareduce.host import cpu_count
from cudareduce.problem.operators import reduction_of
from cudareduce.progress import phase, say
from cudareduce.report.publish import Outputs, publish
from cudareduce.report.sections import sections
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.results.store import run_texts
from cudareduce.several.arrival import meet
from cudareduce.several.collectives import Collective
from cudareduce.several.exchange import Exchange, load_exchanges, of_collective
from cudareduce.several.library_engines import KINDS, Wanted, wanted
from cudareduce.several.meeting import Meeting
from cudareduce.several.nccl import load
from cudareduce.several.place import MOST_RANKS, OWN, Place, meeting_file, place
from cudareduce.several.records import notes_of
from cudareduce.several.start import start
from cudareduce.several.stopwatch import IN_A_LOOP, SAMPLES
from cudareduce.several.trial import Trial, steps_of, tried

#: Ranks where nobody says how many, and there are no GPUs to count.
_RANKS = 2
#: What a rank holds of each element that a rank puts in, at least.
_ELEMENT_BYTES = 8
#: What is said where times would be of no use.
SHARED = "Ranks share a GPU, and take turns on it: answers are checked, nothing is timed."


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRequest:
    """What is asked: `n` elements a rank of each size, in these types, by these engines, some of
    them in a user's `folders`, or files of `nccl`, among `ranks` ranks, which `meet` somewhere.
    `argv` is the command line, which each rank is started with."""

    collective: Collective
    n: tuple[int, ...]
    op: str
    dtype: tuple[str, ...]
    engine: tuple[str, ...]
    nccl: tuple[Path, ...]
    ranks: int | None
    backend: str
    rounds: int
    meet: str | None
    folders: tuple[Path, ...]
    no_cache: bool
    quiet: bool
    argv: tuple[str, ...]
    outputs: Outputs


def collective(request: CollectiveRequest) -> int:
    """Start the ranks, or be one of them; 3 if an engine is wrong. Ranks that are lost, and
    engines that are not known, are errors on all of them."""
    if 0 in request.n:
        raise UsageError("--n 0: there is nothing to exchange")
    chosen = _kernels(request)
    request.outputs.check()
    here = place(os.environ)
    if here is None:
        count = request.ranks or most_ranks()
        check_room(max(request.n), count)
        for file in request.nccl:  # here, and once: in ranks it would be a row of the table
            load(file)
        return start(count, request.argv)
    if request.ranks not in (None, here.size):
        raise UsageError(
            f"--ranks {request.ranks}: {here.launcher} has started {here.size}; leave --ranks out"
        )
    with meet(here, meeting_place(here, request.meet)) as meeting:
        return _take_part(request, chosen, meeting, here)


def most_ranks() -> int:
    """One for each GPU, as many as can meet; where there are no two of them, two all the same."""
    return min(MOST_RANKS, max(_RANKS, gpu_count()))


def check_room(n: int, ranks: int) -> None:
    """An EnvironmentProblem where this host does not hold what ranks verify with: else the system
    would end one of them."""
    too_large = why_too_large(ranks * ranks * n * _ELEMENT_BYTES)
    if too_large:
        raise EnvironmentProblem(
            f"--n {n}: {ranks} ranks that each compute what all put in: that {too_large}; give "
            "fewer elements"
        )


def _kernels(request: CollectiveRequest) -> list[Exchange]:
    """The kernels of ours that are asked for: all that are right, or those that are named."""
    ours = of_collective(load_exchanges(request.folders), request.collective)
    known = {f"peer:{name}": kernel for name, kernel in ours.items()}
    if not request.engine:
        return [kernel for kernel in known.values() if kernel.wrong is None]
    for name in request.engine:
        if name not in (*known, "peer", *KINDS, "host"):
            raise UsageError(
                f"--engine: there is no {name!r} for {request.collective}: "
                f"{', '.join([*known, *KINDS, 'host'])}"
            )
    if request.nccl and not {"nccl", "nccl-symm"} & set(request.engine):
        raise UsageError("--nccl has no effect without nccl or nccl-symm among --engine: add one")
    some = [kernel for name, kernel in known.items() if name in request.engine]
    if "peer" in request.engine:
        some += [k for k in known.values() if k.wrong is None and k not in some]
    return some


def meeting_place(here: Place, asked: str | None) -> str:
    """Where the ranks meet: if nobody says, at a file that bears the job's name."""
    if asked:
        return asked
    if here.launcher == OWN.name:
        return here.job
    return meeting_file(here)


def _take_part(
    request: CollectiveRequest, chosen: list[Exchange], meeting: Meeting, here: Place
) -> int:
    """What one rank does; the code that all end with."""
    first = meeting.rank == 0
    gpus = gpu_count()
    spec, remarks = _device(request, here, gpus)
    lonely = all(meeting.everybody(here.local_rank < gpus))
    libraries, missing = libraries_of(request, timed=spec.timed and lonely)
    remarks = (*remarks, *missing)
    _agree(request, chosen, libraries, meeting, spec)
    if spec.timed and not lonely:
        remarks = (*remarks, SHARED)
    for remark in remarks if first else ():
        say(remark, request.quiet)
    trial = Trial(
        collective=request.collective, kernels=tuple(chosen), libraries=libraries,
        by_host=_by_host(request), sizes=request.n, timed=spec.timed and lonely,
        rounds=request.rounds,
    )  # fmt: skip
    records: list[Record] = []
    notes: list[str] = []
    steps = len(request.dtype) * steps_of(trial)
    what = "measuring" if trial.timed else "verifying"
    with open_backend(spec) as backend, phase(what, steps, quiet=request.quiet or not first) as bar:
        for name in request.dtype:
            reduction = reduction_of(request.op, name)
            found, links = tried(trial, reduction, meeting, backend, bar.step)
            records += found
            notes += notes_of(links)
        device = backend.info()
    if first:
        run = Run(tool(request.argv), device, _protocol(request, trial, notes), tuple(records))
        publish(request.outputs, sections(run), run_texts(run))
    return int(meeting.share(worst_exit_code(verdict_codes(records))))


def libraries_of(
    request: CollectiveRequest, *, timed: bool
) -> tuple[tuple[Wanted, ...], tuple[str, ...]]:
    """The libraries that are named, else NCCL where there are times and there is one; and a remark
    where there is none."""
    if request.engine or request.nccl:
        return wanted(request.engine or ("nccl",), request.nccl), ()
    if not timed:
        return (), ()
    try:
        load(None)
    except EnvironmentProblem as problem:
        return (), (f"NCCL is not among the engines: {problem}.",)
    return wanted(("nccl",), ()), ()


def _device(
    request: CollectiveRequest, here: Place, gpus: int
) -> tuple[BackendSpec, tuple[str, ...]]:
    """Where this rank computes, and what is to be said of it: ranks of a host take its GPUs in
    turn."""
    device = here.local_rank % max(1, gpus)
    spec, remarks = choose_backend(request.backend, device, not request.no_cache)
    return replace(spec, threads=max(1, cpu_count() // here.size)), remarks


def _protocol(request: CollectiveRequest, trial: Trial, notes: list[str]) -> dict[str, Any]:
    """How it was measured, and what was asked for."""
    return {
        "collective": request.collective,
        "engines": list(request.engine),
        "nccl": [str(file) for file in request.nccl],
        "timing": "warm",
        "rounds": request.rounds if trial.timed else None,
        "samples": SAMPLES,
        "loop": IN_A_LOOP,
        "remarks": notes,
    }


def _agree(
    request: CollectiveRequest, chosen: list[Exchange], libraries: Sequence[Wanted],
    meeting: Meeting, spec: BackendSpec,
) -> None:  # fmt: skip
    """A UsageError where ranks were asked for different things: they would not meet in a call."""
    texts = [kernel.sha for kernel in chosen]
    asked = [request.collective, request.n, request.op, request.dtype, _by_host(request),
             request.rounds, spec.name, texts, [str(library) for library in libraries]]  # fmt: skip
    if len({json.dumps(each) for each in meeting.everybody(asked)}) > 1:
        raise UsageError(
            "ranks were asked for different things: start all with the same command, and the "
            "same kernels"
        )


def _by_host(request: CollectiveRequest) -> bool:
    return not request.engine or "host" in request.engine
