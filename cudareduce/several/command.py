"""`collective`: arrays of several ranks, combined by every engine there is, verified and timed."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cudareduce.backends import BackendSpec, choose_backend, gpu_count, open_backend
from cudareduce.bench.memory import why_too_large
from cudareduce.errors import EnvironmentProblem, UsageError
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
from cudareduce.several.meeting import Meeting
from cudareduce.several.place import MOST_RANKS, OWN, Place, meeting_file, place
from cudareduce.several.records import notes_of
from cudareduce.several.start import start
from cudareduce.several.stopwatch import IN_A_LOOP, SAMPLES
from cudareduce.several.trial import Trial, steps_of, tried

#: Ranks where nobody says how many, and there are no GPUs to count.
_RANKS = 2
#: What a rank holds of each element that a rank puts in, at least.
_ELEMENT_BYTES = 8
_SHARED = "Ranks share a GPU, and take turns on it: answers are checked, nothing is timed."


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRequest:
    """What is asked: `n` elements a rank of each size, in these types, by these engines, some of
    them in a user's `folders`, among `ranks` ranks, which `meet` somewhere. `argv` is the command
    line, which each rank is started with."""

    collective: Collective
    n: tuple[int, ...]
    op: str
    dtype: tuple[str, ...]
    engine: tuple[str, ...]
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
        count = request.ranks or min(MOST_RANKS, max(_RANKS, gpu_count()))
        check_room(max(request.n), count)
        return start(count, request.argv)
    if request.ranks not in (None, here.size):
        raise UsageError(
            f"--ranks {request.ranks}: {here.launcher} has started {here.size}; leave --ranks out"
        )
    with meet(here, _where(here, request)) as meeting:
        return _take_part(request, chosen, meeting, here)


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
        if name not in (*known, "peer", "host"):
            raise UsageError(
                f"--engine: there is no {name!r} for {request.collective}: "
                f"{', '.join([*known, 'host'])}"
            )
    some = [kernel for name, kernel in known.items() if name in request.engine]
    if "peer" in request.engine:
        some += [k for k in known.values() if k.wrong is None and k not in some]
    return some


def _where(here: Place, request: CollectiveRequest) -> str:
    """Where the ranks meet, if nobody says: a file that bears the job's name."""
    if request.meet:
        return request.meet
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
    _agree(request, chosen, meeting, spec)
    lonely = all(meeting.everybody(here.local_rank < gpus))
    if spec.timed and not lonely:
        remarks = (*remarks, _SHARED)
    for remark in remarks if first else ():
        say(remark, request.quiet)
    trial = Trial(
        collective=request.collective, kernels=tuple(chosen), by_host=_by_host(request),
        sizes=request.n, timed=spec.timed and lonely, rounds=request.rounds,
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
    wrong = any(record.verdict == "fail" for record in records)
    return int(meeting.share(3 if wrong else 0))


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
        "timing": "warm",
        "rounds": request.rounds if trial.timed else None,
        "samples": SAMPLES,
        "loop": IN_A_LOOP,
        "remarks": notes,
    }


def _agree(
    request: CollectiveRequest, chosen: list[Exchange], meeting: Meeting, spec: BackendSpec
) -> None:
    """A UsageError where ranks were asked for different things: they would not meet in a call."""
    texts = [kernel.sha for kernel in chosen]
    asked = [request.collective, request.n, request.op, request.dtype, _by_host(request),
             request.rounds, spec.name, texts]  # fmt: skip
    if len({json.dumps(each) for each in meeting.everybody(asked)}) > 1:
        raise UsageError(
            "ranks were asked for different things: start all with the same command, and the "
            "same kernels"
        )


def _by_host(request: CollectiveRequest) -> bool:
    return not request.engine or "host" in request.engine
