"""`check --library NAME=OLD,NEW`: two versions of NCCL or CUB against each other.

Each experiment times both versions in the same rounds of fresh processes. Rows in doubt are
measured again for longer, and a row is SLOWER only if another experiment confirms it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

from cudareduce.backend import Backend
from cudareduce.backends import BackendSpec, choose_backend, gpu_count, open_backend
from cudareduce.bench.group import Group
from cudareduce.bench.library_records import Asked, LibraryRecords
from cudareduce.bench.records import Recorder
from cudareduce.bench.settings import Settings
from cudareduce.budget import Deadline
from cudareduce.errors import EnvironmentProblem, UsageError
from cudareduce.gate.command import judged_again
from cudareduce.gate.compare import Row, Rules, compare, without_blame
from cudareduce.gate.decide import (
    MOST_DOUBLINGS,
    slower_rows,
    uncertain_rows,
    with_confirmation,
    with_longer,
)
from cudareduce.gate.measure import DEFAULT_ROUNDS
from cudareduce.gate.report import ComparisonReport, publish_comparison
from cudareduce.gate.request import BUDGET_S, Judging, load_thresholds
from cudareduce.library.registry import load_registry
from cudareduce.machine.device import DeviceInfo
from cudareduce.peers.cccl import TreeListing, compile_library, find_nvcc, tree_headers
from cudareduce.peers.job import Job
from cudareduce.peers.session import LibraryWorkers
from cudareduce.problem.operators import reduction_of
from cudareduce.problem.sizes import counted
from cudareduce.progress import phase, say
from cudareduce.report.publish import Outputs
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.results.store import load as load_run
from cudareduce.results.store import to_json
from cudareduce.several.collectives import COLLECTIVES, OPS
from cudareduce.several.command import check_room, most_ranks
from cudareduce.several.launcher import start
from cudareduce.several.nccl import version_in
from cudareduce.several.rendezvous import find_placement
from cudareduce.temporary import temporary_folder

#: Suffixes of the two CUB peers, and shapes besides --n at which a library is verified.
_OLD, _NEW = "@old", "@new"
_EDGES = ((1, 1), (33, 1), (1025, 1), (65537, 1))


class Versions(NamedTuple):
    """Two versions of the library `name`: files of NCCL, or CCCL source trees."""

    name: str
    old: Path
    new: Path

    def __str__(self) -> str:
        return f"{self.name}={self.old},{self.new}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryRequest:
    """The versions to compare and the problems to compare them on. `kernels` are collectives, or
    calls of CUB; empty selects the default."""

    library: Versions
    kernels: tuple[str, ...]
    n: tuple[int, ...]
    op: tuple[str, ...]
    dtype: tuple[str, ...]
    rounds: int | None
    budget: float | None
    device: int
    time_limit: float | None
    no_cache: bool
    quiet: bool
    judging: Judging
    outputs: Outputs
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Experiment:
    """One collective or call of CUB, timed with both versions at some sizes."""

    kernel: str
    op: str
    dtype: str
    sizes: tuple[int, ...]
    rounds: int


#: Runs an experiment in fresh processes.
Measure = Callable[[Experiment], Run]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How to compare two versions: their names in tables, the kernels, how to measure an
    experiment, and how to split its records into old and new ones."""

    labels: tuple[str, str]
    kernels: tuple[str, ...]
    measure: Measure
    split: Callable[[Record], tuple[str, Record]]


def check_library(request: LibraryRequest, measure: Measure | None = None) -> int:
    """Measure, judge, publish; returns the exit code. Tests pass a `measure` of their own. Raises
    UsageError and EnvironmentProblem."""
    library = request.library
    request.outputs.check(*request.judging.read)
    if library.old.resolve() == library.new.resolve():
        raise UsageError(f"--library {library}: old and new are the same: name two versions")
    with temporary_folder() as folder:
        prepare = {"nccl": _compare_nccl, "cub": _compare_cub}[library.name]
        return _judge(request, prepare(request, Path(folder), measure))


def _judge(request: LibraryRequest, comparison: Comparison) -> int:
    thresholds = load_thresholds(
        request.judging.thresholds, request.judging.threshold, comparison.kernels
    )
    rules = Rules(thresholds, paired=True, same_code=False)
    rounds = request.rounds or DEFAULT_ROUNDS
    runs = [
        comparison.measure(Experiment(*problem, request.n, rounds))
        for problem in product(comparison.kernels, request.op, request.dtype)
    ]
    old, new = _sides(runs, comparison)
    rows = _decide(compare(old, new, rules), comparison, rules, request)
    skips = list(dict.fromkeys(_skips(runs, comparison)))
    if not rows:
        raise EnvironmentProblem(f"nothing was compared: {skips[0]}")
    labels, library = comparison.labels, request.library
    device = runs[0].device
    judgement = ComparisonReport(
        title=f"{labels[1]} against {labels[0]}, {device.name}", rows=tuple(rows), rules=rules,
        head=(f"old: {labels[0]}, {library.old}", f"new: {labels[1]}, {library.new}"),
        notes=tuple(skips),
        against=("--library", str(library), *judged_again(request.judging)),
    )  # fmt: skip
    now = Run(tool(request.argv), device, {"timing": new[0].timing, "rounds": rounds}, tuple(new))
    return publish_comparison(
        judgement, request.judging, request.outputs, load_registry(),
        texts={"json": lambda: to_json(now)}, quiet=request.quiet,
    )  # fmt: skip


def _decide(
    rows: Sequence[Row], comparison: Comparison, rules: Rules, request: LibraryRequest
) -> list[Row]:
    """The rows after longer measurements of those in doubt and confirmation of slower ones."""
    budget = Deadline(BUDGET_S if request.budget is None else request.budget)
    for doubling in range(1, MOST_DOUBLINGS + 1):
        suspects = uncertain_rows(rows)
        if not suspects or budget.passed:
            break
        rows = with_longer(rows, _longer(suspects, 2**doubling, comparison, rules, request))
    rows = without_blame(rows, rules)
    suspects = slower_rows(rows)
    if not suspects:
        return rows
    return with_confirmation(rows, _longer(suspects, 2, comparison, rules, request), rules)


def _longer(
    suspects: Sequence[Row], times: int, comparison: Comparison, rules: Rules,
    request: LibraryRequest,
) -> list[Row]:  # fmt: skip
    """The rows of a measurement of these rows with so many times the rounds."""
    which = f"{counted(len(suspects), 'row')} in doubt or slower: measuring again"
    say(f"{which}, with {times} times the rounds, in fresh processes", request.quiet)
    rounds = times * (request.rounds or DEFAULT_ROUNDS)
    runs = [comparison.measure(experiment) for experiment in _again(suspects, rounds)]
    return compare(*_sides(runs, comparison), rules)


def _again(rows: Iterable[Row], rounds: int) -> list[Experiment]:
    """The experiments that measure these rows again."""
    sizes: dict[tuple[str, str, str], list[int]] = {}
    for r in (row.record for row in rows):
        sizes.setdefault((r.kernel, r.op, r.dtype), []).append(r.n)
    return [
        Experiment(*problem, tuple(sorted(some)), rounds) for problem, some in sizes.items()
    ]  # fmt: skip


def _sides(runs: Sequence[Run], comparison: Comparison) -> tuple[list[Record], list[Record]]:
    """The records of the old and of the new version, under the same identities."""
    pairs = [comparison.split(record) for run in runs for record in run.records]
    old, new = ([r for side, r in pairs if side == wanted] for wanted in ("old", "new"))
    return old, new


def _skips(runs: Iterable[Run], comparison: Comparison) -> Iterator[str]:
    """Why some problems are not compared."""
    for r in (r for run in runs for r in run.records if r.verdict == "skip"):
        yield f"{comparison.split(r)[1].kernel}: skipped: {r.reason}"


def _compare_nccl(request: LibraryRequest, folder: Path, measure: Measure | None) -> Comparison:
    """Two files of NCCL, on all GPUs of this host."""
    library = request.library
    versions = [version_in(file) for file in (library.old, library.new)]
    kernels = request.kernels or ("all-reduce", "reduce-scatter")
    for name in kernels:
        if name not in COLLECTIVES:
            raise UsageError(f"--library nccl takes {', '.join(COLLECTIVES)}, and not {name!r}")
    if 0 in request.n or not set(request.op) <= set(OPS):
        raise UsageError(f"--library nccl takes --op {', '.join(OPS)}, and --n of 1 or more")
    if measure is None:
        _check_gpus(request)
    return Comparison(
        (f"NCCL {versions[0]}", f"NCCL {versions[1]}"), kernels,
        measure or partial(_run_ranks, request, folder / "run.json"), _split_nccl,
    )  # fmt: skip


def _split_nccl(record: Record) -> tuple[str, Record]:
    side = {"nccl:1": "old", "nccl:2": "new"}.get(record.engine or "", "")
    return side, replace(record, engine="nccl")


def _check_gpus(request: LibraryRequest) -> None:
    """Raise UsageError under a launcher, EnvironmentProblem without two GPUs and enough memory."""
    launcher, gpus = find_placement(os.environ), gpu_count()
    if launcher is not None:
        raise UsageError(
            f"check --library starts its ranks itself: run it without {launcher.launcher}"
        )
    if gpus < 2:
        raise EnvironmentProblem(
            f"check --library nccl takes two GPUs of one host, and the driver sees {gpus}: run it "
            "where there are more"
        )
    check_room(max(request.n), most_ranks())


def _run_ranks(request: LibraryRequest, file: Path, experiment: Experiment) -> Run:
    """Both versions on ranks of this host. Raises EnvironmentProblem if they write no result."""
    library = request.library
    file.unlink(missing_ok=True)
    code = start(most_ranks(), [
        "collective", experiment.kernel, "--op", experiment.op, "--dtype", experiment.dtype,
        "--n", ",".join(map(str, experiment.sizes)), "--rounds", str(experiment.rounds),
        "--engine", "nccl", "--nccl", f"{library.old},{library.new}", "--backend", "cuda",
        "--json", str(file), *(["--no-cache"] if request.no_cache else []),
        *(["--quiet"] if request.quiet else []),
    ], printing=False)  # fmt: skip
    if not file.exists():
        raise EnvironmentProblem(
            f"the ranks that measure ended with code {code}: see what they printed, and run "
            f"cudareduce collective {experiment.kernel}"
        )
    return load_run(file)


def _compare_cub(request: LibraryRequest, folder: Path, measure: Measure | None) -> Comparison:
    """Two CCCL trees, compiled here and timed in one process on one GPU."""
    library = request.library
    trees = [tree_headers(path) for path in (library.old, library.new)]
    known = {
        p.name for p in TreeListing("", tree=library.old, suffix="").peers() if not p.as_called
    }
    for name in request.kernels:
        if name not in ("cub", *known):
            raise UsageError(
                f"--library cub takes {', '.join(sorted(known))}, and not {name!r}"
            )  # fmt: skip
    kernels = tuple(name for name in request.kernels if name != "cub") or tuple(sorted(known))
    if 0 in request.n:
        raise UsageError("--library cub takes --n of 1 or more")
    spec, _ = choose_backend("cuda", request.device, not request.no_cache)
    if find_nvcc() is None:
        raise EnvironmentProblem(
            "nvcc was not found, which compiles CUB: install a CUDA toolkit or "
            "pip install 'cudareduce[compile]'"
        )
    with open_backend(spec) as backend:
        made = CubExperiments(request, spec, spec.cache or folder, backend)
    made.compile_all()
    return Comparison(
        (f"CUB {trees[0].text}", f"CUB {trees[1].text}"),
        tuple(f"peer:{name}" for name in kernels), measure or made.measure, _split_cub,
    )  # fmt: skip


def _split_cub(record: Record) -> tuple[str, Record]:
    name, _, side = record.kernel.partition("@")
    return side, replace(record, kernel=name)


class CubExperiments:
    """Compiles and measures CUB with two sets of headers."""

    def __init__(
        self, request: LibraryRequest, spec: BackendSpec, folder: Path, backend: Backend
    ) -> None:
        self._request, self._spec, self._folder = request, spec, folder
        self._device: DeviceInfo = backend.info()
        self._limits, self._name = backend.limits(), backend.name

    def compile_all(self) -> None:
        """Compile every reduction with both trees. Raises UsageError if one does not compile."""
        request, library = self._request, self._request.library
        major, minor = (self._device.cc or "0.0").split(".")
        reductions = [reduction_of(*one) for one in product(request.op, request.dtype)]

        def compile_one(tree: Path, number: int) -> None:
            try:
                compile_library(
                    reductions[number], 10 * int(major) + int(minor), self._folder,
                    tree_headers(tree),
                )  # fmt: skip
            except RuntimeError as error:
                reduction = reductions[number]
                raise UsageError(
                    f"cub: {tree}: {reduction.op.name} of {reduction.dtype.name} {error}"
                ) from None
            bar.step()

        jobs = list(product((library.old, library.new), range(len(reductions))))
        with (
            phase("compiling", len(jobs), quiet=request.quiet) as bar,
            ThreadPoolExecutor(max_workers=os.cpu_count()) as pool,
        ):
            list(pool.map(lambda job: compile_one(*job), jobs))

    def measure(self, experiment: Experiment) -> Run:
        """Both versions in the same rounds of one fresh process."""
        request, library = self._request, self._request.library
        reduction = reduction_of(experiment.op, experiment.dtype)
        name = experiment.kernel.removeprefix("peer:")
        listings = tuple(
            TreeListing("", (name + suffix,), tree=tree, suffix=suffix)
            for tree, suffix in ((library.old, _OLD), (library.new, _NEW))
        )
        peers = [peer for listing in listings for peer in listing.peers()]
        settings = Settings(
            reductions=(reduction,), sizes=experiment.sizes, rounds=experiment.rounds,
            time_limit_s=request.time_limit,
        )  # fmt: skip
        recorder = Recorder(self._name, self._device.peak_gb_s, settings, load_registry())
        records: list[Record] = []
        steps = len(experiment.sizes) * experiment.rounds
        with (
            LibraryWorkers(request.time_limit) as processes,
            phase(f"measuring {name}", steps, quiet=request.quiet) as bar,
        ):
            for k, n in enumerate(experiment.sizes):
                job = Job(
                    spec=self._spec, listings=listings, reduction=reduction,
                    shapes=(*(() if k else _EDGES), (n, 1)), folder=str(self._folder),
                    methods=settings.methods, rounds=experiment.rounds,
                )  # fmt: skip
                outcome = processes.outcome(job, Deadline(), bar.step)
                asked = Asked(Group(reduction=reduction, n=n, verdicts={}), (n, 1))
                records += LibraryRecords(recorder, peers, job, self._limits).of(asked, outcome)
        return Run({}, self._device, {"rounds": experiment.rounds}, tuple(records))
