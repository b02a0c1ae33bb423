"""`check --library NAME=OLD,NEW`: two versions of NCCL or CUB against each other.

Each experiment times both versions in the same rounds of fresh processes. As for kernels, the gate
measures rows in doubt for longer and confirms slower rows in another experiment.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from cudareduce.backends import choose_backend, gpu_count, open_backend
from cudareduce.bench.group import Group
from cudareduce.bench.library_records import Asked, LibraryRecords
from cudareduce.bench.records import Recorder
from cudareduce.bench.settings import Settings
from cudareduce.budget import Deadline
from cudareduce.collectives.launcher import check_room, most_ranks, start
from cudareduce.collectives.names import COLLECTIVES, OPS
from cudareduce.collectives.nccl import version_in
from cudareduce.collectives.rendezvous import find_placement
from cudareduce.compare.check import check_rows
from cudareduce.compare.report import Report, publish_comparison
from cudareduce.compare.request import CheckRequest, Versions, load_thresholds
from cudareduce.compare.verdicts import Remeasured, Rules
from cudareduce.errors import EnvironmentProblem, UsageError
from cudareduce.libraries.cccl import TreeListing, compile_library, find_nvcc, tree_headers
from cudareduce.libraries.job import Job
from cudareduce.libraries.session import LibraryWorkers
from cudareduce.library.registry import load_registry
from cudareduce.machine.device import DeviceInfo
from cudareduce.progress import phase
from cudareduce.reduction.operators import Reduction, reduction_of
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.results.store import load as load_run
from cudareduce.results.store import to_json
from cudareduce.temporary import temporary_folder

#: Suffixes of the two CUB libraries, and shapes besides --n at which a library is verified.
_OLD, _NEW = "@old", "@new"
_EDGES = ((1, 1), (33, 1), (1025, 1), (65537, 1))


@dataclass(frozen=True, slots=True)
class Experiment:
    """One collective or call of CUB, timed with both versions at some sizes."""

    kernel: str
    op: str
    dtype: str
    sizes: tuple[int, ...]
    rounds: int


def check_library(request: CheckRequest) -> int:
    """Measure, compare, publish; returns the exit code. Raises UsageError, EnvironmentProblem."""
    library, judging = request.library, request.judging
    assert library is not None
    request.outputs.check(*judging.read)
    if library.old.resolve() == library.new.resolve():
        raise UsageError(f"--library {library}: old and new are the same: name two versions")
    with temporary_folder() as folder:
        kind = NcclVersions if library.name == "nccl" else CubVersions
        versions: NcclVersions | CubVersions = kind(request, library, Path(folder))
        rules = Rules(
            load_thresholds(judging.thresholds, judging.threshold, versions.kernels),
            paired=True, same_code=False,
        )  # fmt: skip
        measurement = VersionMeasurement(request, versions)
        measure = measurement.measure
        outcome = check_rows(request, rules, None, measure, measure, Deadline())

    assert outcome.measured is not None
    old, new = outcome.measured.old, outcome.measured.new
    skips = tuple(dict.fromkeys(
        f"{r.kernel}: skipped: {r.reason}" for r in (*old, *new) if r.verdict == "skip"
    ))  # fmt: skip
    if not outcome.rows:
        raise EnvironmentProblem(f"nothing was compared: {skips[0]}")
    (before, after), device = versions.labels, measurement.device
    report = Report(
        title=f"{after} against {before}, {device.name}",
        outcome=replace(outcome, measured=None), rules=rules, notes=skips,
        head=(f"old: {before}, {library.old}", f"new: {after}, {library.new}"),
        against=tuple(request.again),
    )  # fmt: skip
    protocol = {"timing": new[0].timing, "rounds": request.default_rounds}
    now = Run(tool(request.argv), device, protocol, new)
    return publish_comparison(
        report, judging, request.outputs, load_registry(), texts={"json": lambda: to_json(now)},
        quiet=request.quiet,
    )  # fmt: skip


class VersionMeasurement:
    """Measures both versions. `device` is known after the first measurement."""

    device: DeviceInfo

    def __init__(self, request: CheckRequest, versions: NcclVersions | CubVersions) -> None:
        self._request, self._versions = request, versions

    def measure(self, suspects: Sequence[Record] | None, times: int) -> Remeasured:
        """Measure everything, or the problems of `suspects`, with `times` times the rounds."""
        request, sizes = self._request, dict[tuple[str, str, str], set[int]]()
        if suspects is None:
            for kernel, reduction in product(self._versions.kernels, request.reductions):
                sizes[kernel, reduction.op.name, reduction.dtype.name] = set(request.sizes)
        for r in suspects or ():
            sizes.setdefault((r.kernel, r.op, r.dtype), set()).add(r.n)
        rounds = times * request.default_rounds
        runs = [
            self._versions.run(Experiment(*problem, tuple(sorted(some)), rounds))
            for problem, some in sizes.items()
        ]
        self.device = runs[0].device
        sides = [self._versions.split(record) for run in runs for record in run.records]
        old, new = (tuple(r for side, r in sides if side == name) for name in ("old", "new"))
        return Remeasured(old=old, new=new)


class NcclVersions:
    """Two files of NCCL, on all GPUs of this host."""

    def __init__(self, request: CheckRequest, library: Versions, folder: Path) -> None:
        old, new = (f"NCCL {version_in(file)}" for file in (library.old, library.new))
        self.labels = old, new
        self.kernels = request.kernels or ("all-reduce", "reduce-scatter")
        self._request, self._library, self._file = request, library, folder / "run.json"
        for name in self.kernels:
            if name not in COLLECTIVES:
                raise UsageError(f"--library nccl takes {', '.join(COLLECTIVES)}, and not {name!r}")
        if 0 in request.sizes or not {r.op.name for r in request.reductions} <= set(OPS):
            raise UsageError(f"--library nccl takes --op {', '.join(OPS)}, and --n of 1 or more")
        launcher, gpus = find_placement(os.environ), gpu_count()
        if launcher is not None:
            raise UsageError(
                f"check --library starts its ranks itself: run it without {launcher.launcher}"
            )
        if gpus < 2:
            raise EnvironmentProblem(
                f"check --library nccl takes two GPUs of one host, and the driver sees {gpus}: run "
                "it where there are more"
            )
        check_room(max(request.sizes), most_ranks())

    def run(self, experiment: Experiment) -> Run:
        """Both versions on ranks of this host. Raises EnvironmentProblem if they write no
        result."""
        request, library = self._request, self._library
        self._file.unlink(missing_ok=True)
        code = start(most_ranks(), [
            "collective", experiment.kernel, "--op", experiment.op, "--dtype", experiment.dtype,
            "--n", ",".join(map(str, experiment.sizes)), "--rounds", str(experiment.rounds),
            "--engine", "nccl", "--nccl", f"{library.old},{library.new}", "--backend", "cuda",
            "--json", str(self._file), *(["--no-cache"] if request.no_cache else []),
            *(["--quiet"] if request.quiet else []),
        ], printing=False)  # fmt: skip
        if not self._file.exists():
            raise EnvironmentProblem(
                f"the ranks that measure ended with code {code}: see what they printed, and run "
                f"cudareduce collective {experiment.kernel}"
            )
        return load_run(self._file)

    def split(self, record: Record) -> tuple[str, Record]:
        """The side of a record, and the record under the name that both sides have."""
        side = {"nccl:1": "old", "nccl:2": "new"}.get(record.engine or "", "")
        return side, replace(record, engine="nccl")


class CubVersions:
    """Two CCCL trees, compiled here and timed in one process on one GPU."""

    def __init__(self, request: CheckRequest, library: Versions, folder: Path) -> None:
        old, new = (f"CUB {tree_headers(path).text}" for path in (library.old, library.new))
        self.labels = old, new
        listing = TreeListing("", tree=library.old, suffix="")
        known = sorted({peer.name for peer in listing.libraries() if not peer.as_called})
        for name in request.kernels:
            if name not in ("cub", *known):
                raise UsageError(f"--library cub takes {', '.join(known)}, and not {name!r}")
        names = [name for name in request.kernels if name != "cub"] or known
        self.kernels = tuple(f"peer:{name}" for name in names)
        if 0 in request.sizes:
            raise UsageError("--library cub takes --n of 1 or more")
        self._request, self._library = request, library
        self._spec, _ = choose_backend("cuda", request.device, not request.no_cache)
        self._folder = self._spec.cache or folder
        if find_nvcc() is None:
            raise EnvironmentProblem(
                "nvcc was not found, which compiles CUB: install a CUDA toolkit or "
                "pip install 'cudareduce[compile]'"
            )
        with open_backend(self._spec) as backend:
            self._device, self._limits = backend.info(), backend.limits()
            self._backend = backend.name
        self._compile_all()

    def _compile_all(self) -> None:
        """Compile every reduction with both trees. Raises UsageError if one does not compile."""
        request, library = self._request, self._library
        jobs = list(product((library.old, library.new), request.reductions))
        with (
            phase("compiling", len(jobs), quiet=request.quiet) as bar,
            ThreadPoolExecutor(max_workers=os.cpu_count()) as pool,
        ):
            for _ in pool.map(self._compile, *zip(*jobs, strict=True)):
                bar.step()

    def _compile(self, tree: Path, reduction: Reduction) -> None:
        major, minor = (self._device.cc or "0.0").split(".")
        try:
            compile_library(
                reduction, 10 * int(major) + int(minor), self._folder, tree_headers(tree)
            )
        except RuntimeError as error:
            problem = f"{reduction.op.name} of {reduction.dtype.name}"
            raise UsageError(f"cub: {tree}: {problem} {error}") from None

    def run(self, experiment: Experiment) -> Run:
        """Both versions in the same rounds of one fresh process."""
        request, library = self._request, self._library
        reduction = reduction_of(experiment.op, experiment.dtype)
        name = experiment.kernel.removeprefix("peer:")
        listings = tuple(
            TreeListing("", (name + suffix,), tree=tree, suffix=suffix)
            for tree, suffix in ((library.old, _OLD), (library.new, _NEW))
        )
        peers = [peer for listing in listings for peer in listing.libraries()]
        settings = Settings(
            reductions=(reduction,), sizes=experiment.sizes, rounds=experiment.rounds,
            time_limit_s=request.time_limit,
        )  # fmt: skip
        recorder = Recorder(self._backend, self._device.peak_gb_s, settings, load_registry())
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

    def split(self, record: Record) -> tuple[str, Record]:
        """The side of a record, and the record under the name that both sides have."""
        name, _, side = record.kernel.partition("@")
        return side, replace(record, kernel=name)
