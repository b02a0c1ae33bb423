"""`check --nccl OLD,NEW`: two libraries of NCCL against each other, in the same rounds.

Each measurement is a job of ranks begun anew, of which both libraries are engines. What it leaves
in doubt is measured longer by the next, and what looks slower is so only if another one says it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

from cudareduce.backends import gpu_count
from cudareduce.budget import Deadline
from cudareduce.errors import EnvironmentProblem, UsageError
from cudareduce.gate.compare import Row, Rules, compare
from cudareduce.gate.judgement import Judgement, publish_judgement
from cudareduce.gate.policy import Sides, confirm, decide
from cudareduce.gate.request import BUDGET_S, Judging
from cudareduce.gate.rerun import DEFAULT_ROUNDS
from cudareduce.gate.thresholds import load_thresholds
from cudareduce.library.registry import load_registry
from cudareduce.problem.sizes import counted
from cudareduce.progress import say
from cudareduce.report.publish import Outputs
from cudareduce.results.record import Record, Run
from cudareduce.results.store import load as load_run
from cudareduce.several.collectives import OPS, Collective
from cudareduce.several.command import check_room, most_ranks
from cudareduce.several.libraries.apart import version_in
from cudareduce.several.meet.place import place
from cudareduce.several.meet.start import start
from cudareduce.temporary import temporary_folder

#: The two as engines, in the order of their files, and what both are called where they are judged.
_OLD, _NEW, _BOTH = "nccl:1", "nccl:2", "nccl"


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclRequest:
    """Two files of `nccl`, old and new, to measure on all GPUs at these problems."""

    nccl: tuple[Path, ...]
    collective: tuple[Collective, ...]
    n: tuple[int, ...]
    op: tuple[str, ...]
    dtype: tuple[str, ...]
    rounds: int | None
    budget: float | None
    no_cache: bool
    quiet: bool
    judging: Judging
    outputs: Outputs


@dataclass(frozen=True, slots=True)
class Asked:
    """What one job of ranks measures."""

    collective: str
    op: str
    dtype: str
    sizes: tuple[int, ...]
    rounds: int


#: Measures it with both libraries, by ranks begun anew.
Measure = Callable[[Asked], Run]


def check_nccl(request: NcclRequest, measure: Measure | None = None) -> int:
    """Measure, judge, publish; the exit code. Raises UsageError and, without two GPUs,
    EnvironmentProblem."""
    request.outputs.check(*request.judging.read)
    versions = [version_in(file) for file in request.nccl]
    if 0 in request.n or not set(request.op) <= set(OPS):
        raise UsageError(f"--nccl takes --op {', '.join(OPS)}, and --n of 1 or more")
    thresholds = load_thresholds(
        request.judging.thresholds, request.judging.threshold, request.collective
    )
    rules = Rules(thresholds, paired=True, same_code=False)
    if measure is None:
        _check_machine(request)
        measure = partial(_by_ranks, request)
    rounds = request.rounds or DEFAULT_ROUNDS
    runs = [
        measure(Asked(*what, request.n, rounds))
        for what in product(request.collective, request.op, request.dtype)
    ]
    rows = _decided(compare(*_sides(runs), rules), measure, rules, request)
    if not rows:
        raise EnvironmentProblem(f"nothing was compared: {next(_skips(runs))}")
    old, new = (f"NCCL {version}" for version in versions)
    judgement = Judgement(
        title=f"{new} against {old}, {runs[0].device.name}", rows=tuple(rows), rules=rules,
        head=(f"old: {old}, {request.nccl[0]}", f"new: {new}, {request.nccl[1]}"),
        notes=tuple(dict.fromkeys(_skips(runs))),
        against=("--nccl", ",".join(map(str, request.nccl))),
    )  # fmt: skip
    return publish_judgement(
        judgement, request.judging, request.outputs, load_registry(), quiet=request.quiet
    )


def _decided(
    rows: Sequence[Row], measure: Measure, rules: Rules, request: NcclRequest
) -> list[Row]:
    """The rows, once what is in doubt has been measured longer, and what looks slower again."""
    rounds = request.rounds or DEFAULT_ROUNDS

    def longer(some: Sequence[Row], times: int) -> Sides:
        which = f"{counted(len(some), 'row')} in doubt or slower: measuring again"
        say(f"{which}, with {times} times the rounds, by ranks begun anew", request.quiet)
        return _sides([measure(asked) for asked in _again(some, times * rounds)])

    budget = Deadline(BUDGET_S if request.budget is None else request.budget)
    rows = decide(rows, longer, rules, budget)
    return confirm(rows, lambda some: compare(*longer(some, 2), rules), rules)


def _again(rows: Iterable[Row], rounds: int) -> list[Asked]:
    """What measures these rows again."""
    sizes: dict[tuple[str, str, str], list[int]] = {}
    for r in (row.record for row in rows):
        sizes.setdefault((r.kernel, r.op, r.dtype), []).append(r.n)
    return [Asked(*what, tuple(sorted(some)), rounds) for what, some in sizes.items()]


def _sides(runs: Sequence[Run]) -> Sides:
    """What the old and the new library did, under one name."""
    records = [record for run in runs for record in run.records]
    old, new = (_of(records, engine) for engine in (_OLD, _NEW))
    return old, new


def _of(records: Sequence[Record], engine: str) -> list[Record]:
    return [replace(record, engine=_BOTH) for record in records if record.engine == engine]


def _skips(runs: Iterable[Run]) -> Iterator[str]:
    """Why something of a collective is not compared."""
    for r in (r for run in runs for r in run.records if r.verdict == "skip"):
        yield f"{r.kernel}: skipped: {r.reason}"


def _check_machine(request: NcclRequest) -> None:
    """A UsageError where a launcher has started this, an EnvironmentProblem where there are no two
    GPUs, or the host has too little memory."""
    here, gpus = place(os.environ), gpu_count()
    if here is not None:
        raise UsageError(f"check --nccl starts its ranks itself: run it without {here.launcher}")
    if gpus < 2:
        raise EnvironmentProblem(
            f"check --nccl takes two GPUs of one host, and the driver sees {gpus}: run it where "
            "there are more"
        )
    check_room(max(request.n), most_ranks())


def _by_ranks(request: NcclRequest, asked: Asked) -> Run:
    """What ranks of this host have measured. Raises EnvironmentProblem where they have not."""
    with temporary_folder() as folder:
        file = Path(folder, "run.json")
        code = start(most_ranks(), [
            "collective", asked.collective, "--op", asked.op, "--dtype", asked.dtype,
            "--n", ",".join(map(str, asked.sizes)), "--rounds", str(asked.rounds),
            "--engine", "nccl", "--nccl", ",".join(map(str, request.nccl)), "--backend", "cuda",
            "--json", str(file), *(["--no-cache"] if request.no_cache else []),
            *(["--quiet"] if request.quiet else []),
        ], printing=False)  # fmt: skip
        if not file.exists():
            raise EnvironmentProblem(
                f"the ranks that measure have ended with code {code}: see what they have said, and "
                f"cudareduce collective {asked.collective}"
            )
        return load_run(file)
