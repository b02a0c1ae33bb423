"""`check --base` of collectives: the kernels of two trees in the same rounds.

The baseline's kernels become engines under other names in the same job of ranks, so that a round
measures both.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.gate.baseline import side_text
from cudareduce.gate.command import base_again, check_plan, thresholds_of
from cudareduce.gate.compare import Rules
from cudareduce.gate.decide import Measure, confirm_slower, measure_until_decided
from cudareduce.gate.measure import DEFAULT_ROUNDS, Remeasured
from cudareduce.gate.render import skew_notes
from cudareduce.gate.report import ComparisonReport, publish_comparison
from cudareduce.gate.request import BaseRequest
from cudareduce.gate.trees import base_folders
from cudareduce.library.front import CLOSES
from cudareduce.library.registry import EXCHANGES, kernels_folder, load_registry
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.several.collectives import COLLECTIVES, OPS
from cudareduce.several.command import check_room, most_ranks
from cudareduce.several.kernels import ExchangeKernel, kernels_in
from cudareduce.several.remeasure import (
    Job,
    RankMeasure,
    RunJob,
    device_of,
    judge_on_ranks,
    refuse_single_gpu_options,
)
from cudareduce.several.rendezvous import find_placement
from cudareduce.temporary import temporary_folder

#: Suffix of the names of baseline kernels.
_BASE = "_base"


@dataclass(frozen=True, slots=True)
class Pairs:
    """The engines of both trees by collective, the name here of each baseline engine, and the
    (collective, engine) pairs whose source is the same in both."""

    engines: Mapping[str, tuple[str, ...]]
    here: Mapping[str, str]
    same: frozenset[tuple[str, str]]


def candidate_folders(folders: Sequence[Path]) -> tuple[Path, ...]:
    """The folders of the candidate tree: the user's own, else the package's."""
    return tuple(folders) or (kernels_folder() / EXCHANGES,)


def baseline_kernels(base: str, heads: Sequence[Path], into: Path) -> dict[str, ExchangeKernel]:
    """The kernels of a folder, or of a revision that is unpacked into `into`, by name. Raises
    UsageError."""
    found = [folder / EXCHANGES for folder in base_folders(base, heads, into)]
    return kernels_in([folder if folder.is_dir() else folder.parent for folder in found])


def pair_kernels(
    here: Mapping[str, ExchangeKernel], base: Mapping[str, ExchangeKernel], twins: Path
) -> Pairs:
    """Pair the kernels of two trees by name. Copies of the baseline's kernels with other names are
    written into `twins`."""
    engines: dict[str, tuple[str, ...]] = {}
    called: dict[str, str] = {}
    for kernel in here.values():
        engines[kernel.collective] = (*engines.get(kernel.collective, ()), engine_name(kernel))
    for kernel in base.values():
        twin = engine_name(_renamed_copy(kernel, twins))
        called[twin] = engine_name(kernel)
        engines[kernel.collective] = (*engines.get(kernel.collective, ()), twin)
    same = frozenset(
        (kernel.collective, engine_name(kernel)) for name, kernel in here.items()
        if name in base and base[name].text == kernel.text
    )  # fmt: skip
    return Pairs(engines, called, same)


def measure_pairs(measure: Measure, pairs: Pairs) -> Measure:
    """A measurement that runs each record's engine beside the baseline's, and splits the results
    into both sides."""

    def measured(suspects: Sequence[Record] | None, times: int) -> Remeasured:
        return _split_sides(measure(suspects and _with_twins(suspects, pairs), times), pairs)

    return measured


def engine_name(kernel: ExchangeKernel) -> str:
    return f"peer:{kernel.short}"


def _renamed_copy(kernel: ExchangeKernel, folder: Path) -> ExchangeKernel:
    """A kernel of the baseline under another name, by a macro in front of its text."""
    name = kernel.id + _BASE
    end = kernel.text.index(CLOSES) + len(CLOSES)
    line = kernel.text.count("\n", 0, end) + 2  # the line after the front matter
    renamed = f'\n#define {kernel.id} {name}\n#line {line} "{kernel.path}"\n'
    path = folder / f"{name}.cu"
    text = kernel.text[:end] + renamed + kernel.text[end:].removeprefix("\n")
    path.write_text(text)
    return replace(kernel, id=name, path=path, text=text)


def _with_twins(suspects: Sequence[Record], pairs: Pairs) -> list[Record]:
    """These records, and one more for each baseline engine."""
    return [
        *suspects,
        *(replace(r, engine=twin) for r in suspects for twin in pairs.here
          if pairs.here[twin] == r.engine and twin in pairs.engines.get(r.kernel, ())),
    ]  # fmt: skip


def _split_sides(measured: Remeasured, pairs: Pairs) -> Remeasured:
    """The records of both trees, under the names of the candidate."""
    new = tuple(r for r in measured.new if r.engine not in pairs.here)
    codes = {(r.kernel, r.engine, r.op, r.dtype): r.cubin_sha for r in new}
    old = []
    for r in measured.new:
        name = pairs.here.get(r.engine or "")
        if name:
            same = (r.kernel, name) in pairs.same  # except for its entry point's name
            sha = codes.get((r.kernel, name, r.op, r.dtype)) if same else r.cubin_sha
            old.append(replace(r, engine=name, cubin_sha=sha))
    return replace(measured, old=tuple(old), new=new)


def check_base_ranks(request: BaseRequest) -> int:
    """Compare the collectives of two trees. Returns the exit code, the same on all ranks of a
    launcher. Raises UsageError, EnvironmentProblem and RankLost."""
    request.outputs.check(*request.judging.read)
    refuse_single_gpu_options(request.remeasuring)
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
        return judge_on_ranks(jobs, partial(_judged, request, jobs, pairs, twins))


def _check(request: BaseRequest) -> None:
    """Raise UsageError for kernels, operators and options that collectives do not take."""
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
    """The correct kernels of both trees for the requested collectives. Raises UsageError if a tree
    has none."""
    names, heads = request.remeasuring.kernels, candidate_folders(request.remeasuring.folders)
    here, base = (
        {name: k for name, k in some.items() if k.collective in names and k.wrong is None}
        for some in (kernels_in(heads), baseline_kernels(request.base, heads, into))
    )
    for which, some in (("this tree", here), (request.base, base)):
        for name in names:
            if not any(kernel.collective == name for kernel in some.values()):
                raise UsageError(f"{which} has no kernels of {name}: name a tree that has some")
    return pair_kernels(here, base, twins)


def _judged(
    request: BaseRequest, jobs: Sequence[Job], pairs: Pairs, twins: Path, run: RunJob
) -> int:
    """The part of rank 0, or of a process without a launcher. Returns the exit code."""
    remeasuring, registry = request.remeasuring, load_registry()
    thresholds = thresholds_of(
        request.judging, registry, (), (*remeasuring.kernels, *pairs.here.values())
    )
    rules = Rules(thresholds, paired=True, same_code=not request.judging.no_same_code)
    device = device_of(jobs[0].ranks, remeasuring)
    rounds, plan = remeasuring.rounds or DEFAULT_ROUNDS, check_plan(rules, remeasuring)
    now = Run(tool(request.argv), device, {"rounds": rounds}, ())
    both = replace(remeasuring, folders=(*remeasuring.folders, twins))
    ranks = RankMeasure(now, tuple(jobs), rounds, both, plan.deadline, run)
    measure = measure_pairs(ranks.measure, pairs)
    outcome = measure_until_decided(measure, None, plan)
    if not outcome.rows and not outcome.cut:
        raise UsageError("nothing was compared: give more --max-time")
    outcome = confirm_slower(outcome, measure, plan)
    names = " ".join(remeasuring.kernels)
    judgement = ComparisonReport(
        title=f"{names} against {request.base}, {device.name}", head=(side_text("new", now),),
        rows=tuple(outcome.rows), rules=rules, notes=tuple(skew_notes(outcome.rows)),
        against=tuple(base_again(request)),
        measured=outcome.measured, cut=outcome.cut,
    )  # fmt: skip
    return publish_comparison(
        judgement, request.judging, request.outputs, registry, quiet=remeasuring.quiet
    )
