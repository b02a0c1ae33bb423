"""`check --base` of collectives: two trees of kernels of several GPUs, in the same rounds.

The kernels of the base stand beside those of this tree as engines of other names, in one job of
ranks: so nothing but their text lies between two rounds that are compared.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.gate.checking import base_again, looks_of, thresholds_of
from cudareduce.gate.compare import Rules
from cudareduce.gate.judgement import Judgement, publish_judgement
from cudareduce.gate.looks import first_look, second_look
from cudareduce.gate.notes import skew_notes
from cudareduce.gate.request import BaseRequest
from cudareduce.gate.rerun import DEFAULT_ROUNDS
from cudareduce.gate.sides import side_text
from cudareduce.library.registry import load_registry
from cudareduce.results.provenance import tool
from cudareduce.results.record import Run
from cudareduce.several.check.jobs import RunJob
from cudareduce.several.check.pairs import Pairs, base_exchanges, heads_of, in_pairs, paired
from cudareduce.several.check.remeasured import Ranks, by_ranks, device_of
from cudareduce.several.check.stored import Job, refuse_others
from cudareduce.several.collectives import COLLECTIVES, OPS
from cudareduce.several.command import check_room, most_ranks
from cudareduce.several.exchange import exchanges_of
from cudareduce.several.rendezvous import find_placement
from cudareduce.temporary import temporary_folder


def check_base_ranks(request: BaseRequest) -> int:
    """The kernels of collectives of two trees against each other; the exit code, the same on all
    ranks of a launcher. Raises UsageError, EnvironmentProblem and RankLost."""
    request.outputs.check(*request.judging.read)
    refuse_others(request.remeasuring)
    _check(request)
    here = find_placement(os.environ)
    ranks = request.ranks or (here.size if here else most_ranks())
    check_room(max(request.problems.n), ranks)
    with temporary_folder() as temporary:
        twins = Path(temporary, "twins")
        twins.mkdir()
        pairs = _pairs(request, Path(temporary, "base"), twins)
        jobs = tuple(
            Job(name, op, ranks, request.problems.dtype, tuple(sorted(request.problems.n)),
                pairs.engines[name], links=False)
            for name in request.remeasuring.kernels for op in request.problems.op
        )  # fmt: skip
        return by_ranks(jobs, partial(_judged, request, jobs, pairs, twins))


def _check(request: BaseRequest) -> None:
    """A UsageError where something is asked that is no collective, or that collectives have not."""
    problems = request.problems
    for name in request.remeasuring.kernels:
        if name not in COLLECTIVES:
            raise UsageError(
                f"{name} is a kernel of one GPU, and others named are collectives: check them apart"
            )
    for op in problems.op:
        if op not in OPS:
            raise UsageError(f"--op {op}: arrays are combined by one of {', '.join(OPS)}")
    if problems.rows != 1:
        raise UsageError("--rows is about reductions of one GPU: leave it out of collectives")
    if 0 in problems.n:
        raise UsageError("--n 0: there is nothing to exchange")


def _pairs(request: BaseRequest, into: Path, twins: Path) -> Pairs:
    """The kernels of both trees that are right, of what is asked for. A UsageError where one has
    none."""
    names, heads = request.remeasuring.kernels, heads_of(request.remeasuring.folders)
    here, base = (
        {name: k for name, k in some.items() if k.collective in names and k.wrong is None}
        for some in (exchanges_of(heads), base_exchanges(request.base, heads, into))
    )
    for which, some in (("this tree", here), (request.base, base)):
        for name in names:
            if not any(kernel.collective == name for kernel in some.values()):
                raise UsageError(f"{which} has no kernels of {name}: name a tree that has some")
    return paired(here, base, twins)


def _judged(
    request: BaseRequest, jobs: Sequence[Job], pairs: Pairs, twins: Path, run: RunJob
) -> int:
    """What rank 0 of a launcher does, or who was started alone; the exit code."""
    remeasuring, registry = request.remeasuring, load_registry()
    thresholds = thresholds_of(
        request.judging, registry, (), (*remeasuring.kernels, *pairs.here.values())
    )
    rules = Rules(thresholds, paired=True, same_code=not request.judging.no_same_code)
    device = device_of(jobs[0].ranks, remeasuring)
    rounds, looks = remeasuring.rounds or DEFAULT_ROUNDS, looks_of(rules, remeasuring)
    now = Run(tool(request.argv), device, {"rounds": rounds}, ())
    both = replace(remeasuring, folders=(*remeasuring.folders, twins))
    ranks = Ranks(now, tuple(jobs), rounds, both, looks.deadline, run)
    measure = in_pairs(ranks.measure, pairs)
    seen = first_look(measure, None, looks)
    if not seen.rows and not seen.cut:
        raise UsageError("nothing was compared: give more --max-time")
    seen = second_look(seen, measure, looks)
    names = " ".join(remeasuring.kernels)
    judgement = Judgement(
        title=f"{names} against {request.base}, {device.name}", head=(side_text("new", now),),
        rows=tuple(seen.rows), rules=rules, notes=tuple(skew_notes(seen.rows)),
        against=tuple(base_again(request)),
        measured=seen.measured, cut=seen.cut,
    )  # fmt: skip
    return publish_judgement(
        judgement, request.judging, request.outputs, registry, quiet=remeasuring.quiet
    )
