"""`check --base` of collectives: two trees of kernels of several GPUs, in the same rounds.

The kernels of the base stand beside those of this tree as engines of other names, in one job of
ranks: so nothing but their text lies between two rounds that are compared.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from cudareduce.backends import gpu_count
from cudareduce.errors import UsageError
from cudareduce.gate.bencher import Remeasured
from cudareduce.gate.checking import folders_again, looks_of, thresholds_of
from cudareduce.gate.compare import Rules
from cudareduce.gate.judgement import Judgement, publish_judgement
from cudareduce.gate.looks import first_look, second_look
from cudareduce.gate.notes import skew_notes
from cudareduce.gate.request import BaseRequest
from cudareduce.gate.rerun import DEFAULT_ROUNDS
from cudareduce.gate.sides import side_text
from cudareduce.gate.trees import base_folders
from cudareduce.library.front import CLOSES
from cudareduce.library.registry import EXCHANGES, kernels_folder, load_registry
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.several.collectives import COLLECTIVES, OPS
from cudareduce.several.command import check_room
from cudareduce.several.exchange import Exchange, exchanges_of
from cudareduce.several.jobs import RunJob
from cudareduce.several.place import MOST_RANKS, place
from cudareduce.several.remeasured import Ranks, by_ranks, device_of
from cudareduce.several.stored import Job, refuse_others
from cudareduce.temporary import temporary_folder

#: What the name of a base's kernel ends with, beside that of this tree.
_BASE = "_base"


@dataclass(frozen=True, slots=True)
class Pairs:
    """Engines of this tree and of the base, by collectives; what each of the base is called here;
    and the collectives and engines whose text is the same in both."""

    engines: Mapping[str, tuple[str, ...]]
    here: Mapping[str, str]
    same: frozenset[tuple[str, str]]


def check_base_ranks(request: BaseRequest) -> int:
    """The kernels of collectives of two trees against each other; the exit code, the same on all
    ranks of a launcher. Raises UsageError, EnvironmentProblem and RankLost."""
    request.outputs.check()
    refuse_others(request.remeasuring)
    _check(request)
    here = place(os.environ)
    ranks = request.ranks or (here.size if here else min(MOST_RANKS, max(2, gpu_count())))
    check_room(max(request.problems.n), ranks)
    with temporary_folder() as temporary:
        twins = Path(temporary, "twins")
        twins.mkdir()
        pairs = _paired(request, Path(temporary, "base"), twins)
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


def _paired(request: BaseRequest, into: Path, twins: Path) -> Pairs:
    """Write the base's kernels into `twins`, under names of their own. A UsageError where there are
    none of a collective."""
    heads = request.remeasuring.folders or (kernels_folder() / EXCHANGES,)
    found = [folder / EXCHANGES for folder in base_folders(request.base, heads, into)]
    folders = [folder if folder.is_dir() else folder.parent for folder in found]
    here, base = exchanges_of(heads), exchanges_of(folders)
    engines: dict[str, tuple[str, ...]] = {}
    called: dict[str, str] = {}
    for collective in request.remeasuring.kernels:
        mine, theirs = (
            [k for k in some.values() if k.collective == collective and k.wrong is None]
            for some in (here, base)
        )
        if not mine or not theirs:
            which = request.base if mine else "this tree"
            raise UsageError(f"{which} has no kernels of {collective}: name a tree that has some")
        beside = {_engine(_twin(kernel, twins)): _engine(kernel) for kernel in theirs}
        engines[collective] = (*map(_engine, mine), *beside)
        called |= beside
    same = frozenset(
        (kernel.collective, _engine(kernel)) for name, kernel in here.items()
        if name in base and base[name].text == kernel.text
    )  # fmt: skip
    return Pairs(engines, called, same)


def _engine(kernel: Exchange) -> str:
    return f"peer:{kernel.short}"


def _twin(kernel: Exchange, folder: Path) -> Exchange:
    """A kernel of the base under another name, which its text takes for the one it has."""
    name = kernel.id + _BASE
    end = kernel.text.index(CLOSES) + len(CLOSES)
    line = kernel.text.count("\n", 0, end) + 2  # the one behind the header
    renamed = f'\n#define {kernel.id} {name}\n#line {line} "{kernel.path}"\n'
    path = folder / f"{name}.cu"
    text = kernel.text[:end] + renamed + kernel.text[end:].removeprefix("\n")
    path.write_text(text)
    return replace(kernel, id=name, path=path, text=text)


def _judged(
    request: BaseRequest, jobs: Sequence[Job], pairs: Pairs, twins: Path, run: RunJob
) -> int:
    """What rank 0 of a launcher does, or who was started alone; the exit code."""
    remeasuring, registry = request.remeasuring, load_registry()
    thresholds = thresholds_of(request.judging, registry, (), pairs.here.values())
    rules = Rules(thresholds, paired=True, same_code=not request.judging.no_same_code)
    device = device_of(jobs[0].ranks, remeasuring)
    rounds, looks = remeasuring.rounds or DEFAULT_ROUNDS, looks_of(rules, remeasuring)
    now = Run(tool(request.argv), device, {"rounds": rounds}, ())
    both = replace(remeasuring, folders=(*remeasuring.folders, twins))
    ranks = Ranks(now, tuple(jobs), rounds, both, looks.deadline, run)

    def measure(suspects: Sequence[Record] | None, times: int) -> Remeasured:
        return _sides(ranks.measure(suspects and _with_twins(suspects, pairs), times), pairs)

    seen = first_look(measure, None, looks)
    if not seen.rows and not seen.cut:
        raise UsageError("nothing was compared: give more --max-time")
    seen = second_look(seen, measure, looks)
    sizes = ",".join(map(str, request.problems.n))
    names = " ".join(remeasuring.kernels)
    judgement = Judgement(
        title=f"{names} against {request.base}, {device.name}", head=(side_text("new", now),),
        rows=tuple(seen.rows), rules=rules, notes=tuple(skew_notes(seen.rows)),
        against=(*folders_again(remeasuring), "--base", request.base, "--n", sizes),
        measured=seen.measured, cut=seen.cut,
    )  # fmt: skip
    return publish_judgement(
        judgement, request.judging, request.outputs, registry, quiet=remeasuring.quiet
    )


def _with_twins(suspects: Sequence[Record], pairs: Pairs) -> list[Record]:
    """These records, and what each is in the base."""
    return [
        *suspects,
        *(replace(r, engine=twin) for r in suspects for twin in pairs.here
          if pairs.here[twin] == r.engine and twin in pairs.engines[r.kernel]),
    ]  # fmt: skip


def _sides(measured: Remeasured, pairs: Pairs) -> Remeasured:
    """The records of either tree, by the names of this one."""
    new = tuple(r for r in measured.new if r.engine not in pairs.here)
    codes = {(r.kernel, r.engine, r.op, r.dtype): r.cubin_sha for r in new}
    old = []
    for r in measured.new:
        name = pairs.here.get(r.engine or "")
        if name:
            same = (r.kernel, name) in pairs.same  # but for the name of its entry point
            sha = codes.get((r.kernel, name, r.op, r.dtype)) if same else r.cubin_sha
            old.append(replace(r, engine=name, cubin_sha=sha))
    return replace(measured, old=tuple(old), new=new)
