"""`check --library NAME=OLD,NEW`: two versions of NCCL or CUB against each other.

Both versions are timed in the same rounds of fresh processes. As for kernels, uncertain rows are
measured again with more rounds, and slower rows are confirmed in another process.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path

from cudareduce.backends.selection import choose_backend, gpu_count, open_backend
from cudareduce.bench.library_records import LibraryRecords, LibraryTask
from cudareduce.bench.records import Group, Recorder
from cudareduce.bench.settings import Settings
from cudareduce.budget import Deadline
from cudareduce.catalog.registry import load_registry
from cudareduce.collectives.check import JobMeasurement, JobRanks, Pairs, device_of, jobs_of
from cudareduce.collectives.communicator import find_placement
from cudareduce.collectives.launcher import check_memory, default_ranks
from cudareduce.collectives.names import COLLECTIVES, OPS
from cudareduce.collectives.nccl import version_in
from cudareduce.compare.check import check
from cudareduce.compare.report import publish_comparison
from cudareduce.compare.request import CheckRequest, Versions, load_thresholds
from cudareduce.compare.verdicts import INTERRUPTED, Measured, Rules
from cudareduce.errors import EnvironmentProblem, UsageError
from cudareduce.libraries.cccl import TreeListing, compile_library, find_nvcc, tree_headers
from cudareduce.libraries.job import Job as LibraryJob
from cudareduce.libraries.session import LibraryWorkers
from cudareduce.progress import phase
from cudareduce.reduction.operators import Reduction, reduction_of
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.results.store import to_json
from cudareduce.temporary import temporary_folder

#: Suffixes of the two CUB libraries, and shapes besides --n at which a library is verified.
_OLD, _NEW = "@old", "@new"
_EDGES = ((1, 1), (33, 1), (1025, 1), (65537, 1))


def check_library(request: CheckRequest) -> int:
    """Compare two versions of NCCL or CUB and publish the result. Returns the exit code. Raises
    UsageError, EnvironmentProblem, and
    KeyboardInterrupt if Ctrl-C came before the first result."""
    library, judging = request.library, request.judging
    assert library is not None
    request.outputs.check(*judging.read)
    if library.old.resolve() == library.new.resolve():
        raise UsageError(f"--library {library}: old and new are the same: name two versions")
    with temporary_folder() as folder:
        versions: NcclVersions | CubVersions
        if library.name == "nccl":
            versions = NcclVersions(request, library)
        else:
            versions = CubVersions(request, library, Path(folder))
        rules = Rules(
            load_thresholds(judging.thresholds, judging.threshold, versions.kernels),
            paired=True, same_code=False,
        )  # fmt: skip
        report = check(request, rules, None, versions)

    assert report.measured is not None
    old, new = report.measured.old, report.measured.new
    skips = tuple(dict.fromkeys(
        f"{r.kernel}: skipped: {r.reason}" for r in (*old, *new) if r.verdict == "skip"
    ))  # fmt: skip
    if not report.rows:
        if report.cut and report.cut.exit_code == INTERRUPTED.exit_code:
            raise KeyboardInterrupt
        raise EnvironmentProblem(
            f"nothing was compared: {report.cut.why if report.cut else skips[0]}"
        )
    (before, after), device = versions.labels, versions.device
    report = replace(
        report, title=f"{after} against {before}, {device.name}", measured=None, notes=skips,
        head=(f"old: {before}, {library.old}", f"new: {after}, {library.new}"),
    )  # fmt: skip
    protocol = {"timing": versions.timing, "rounds": request.default_rounds}
    now = Run(tool(request.argv), device, protocol, new)
    return publish_comparison(
        report, judging, request.outputs, load_registry(), texts={"json": lambda: to_json(now)},
        quiet=request.quiet,
    )  # fmt: skip


class NcclVersions:
    """Measures two files of NCCL on all GPUs of this host. `labels` names the versions, `kernels`
    the collectives."""

    timing = "warm"

    def __init__(self, request: CheckRequest, library: Versions) -> None:
        old, new = (f"NCCL {version_in(file)}" for file in (library.old, library.new))
        self.labels = old, new
        self.kernels = request.kernels or ("all-reduce", "reduce-scatter")
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
                "it on a host with more"
            )
        ranks = default_ranks()
        check_memory(max(request.sizes), ranks)
        self.device = device_of(ranks, request)
        pairs = Pairs(
            old={(name, "nccl:1"): "nccl" for name in self.kernels},
            new={(name, "nccl:2"): "nccl" for name in self.kernels},
            options=("--nccl", f"{library.old},{library.new}"),
        )
        jobs = jobs_of(request, ranks, dict.fromkeys(self.kernels, ("nccl",)))
        self.deadline = Deadline()
        self.measure = self.confirm = JobMeasurement(
            request, Run({}, self.device, {}, ()), jobs, request.default_rounds, self.device,
            self.deadline, JobRanks(), pairs,
        ).measure  # fmt: skip


class CubVersions:
    """Measures two CCCL source trees, compiled here and timed in one process on one GPU. `labels`
    names the versions, `kernels` the calls."""

    timing = "cold"

    def __init__(self, request: CheckRequest, library: Versions, folder: Path) -> None:
        old, new = (f"CUB {tree_headers(path).text}" for path in (library.old, library.new))
        self.labels = old, new
        listing = TreeListing("", tree=library.old, suffix="")
        known = sorted({call.name for call in listing.libraries() if not call.as_called})
        for name in request.kernels:
            if name not in ("cub", *known):
                raise UsageError(f"--library cub takes {', '.join(known)}, and not {name!r}")
        names = [name for name in request.kernels if name != "cub"] or known
        self.kernels = tuple(f"peer:{name}" for name in names)
        if 0 in request.sizes:
            raise UsageError("--library cub takes --n of 1 or more")
        self._request, self._library, self.deadline = request, library, Deadline()
        self._spec, _ = choose_backend("cuda", request.device, not request.no_cache)
        self._folder = self._spec.cache or folder
        if find_nvcc() is None:
            raise EnvironmentProblem(
                "nvcc was not found, which compiles CUB: install a CUDA toolkit or "
                "pip install 'cudareduce[compile]'"
            )
        with open_backend(self._spec) as backend:
            self.device, self._limits = backend.info(), backend.limits()
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
        major, minor = (self.device.cc or "0.0").split(".")
        try:
            compile_library(
                reduction, 10 * int(major) + int(minor), self._folder, tree_headers(tree)
            )
        except RuntimeError as error:
            problem = f"{reduction.op.name} of {reduction.dtype.name}"
            raise UsageError(f"cub: {tree}: {problem} {error}") from None

    def measure(self, suspects: Sequence[Record] | None, times: int) -> Measured:
        """Measure both versions in the same rounds, each kernel and reduction in a fresh
        process."""
        request, sizes = self._request, dict[tuple[str, str, str], set[int]]()
        if suspects is None:
            for kernel, reduction in product(self.kernels, request.reductions):
                sizes[kernel, reduction.op.name, reduction.dtype.name] = set(request.sizes)
        for r in suspects or ():
            sizes.setdefault((r.kernel, r.op, r.dtype), set()).add(r.n)
        rounds, records, cut = times * request.default_rounds, list[Record](), None
        try:
            for (kernel, op, dtype), lengths in sizes.items():
                records += self._run(kernel, reduction_of(op, dtype), sorted(lengths), rounds)
        except KeyboardInterrupt:
            cut = INTERRUPTED
        old, new = (
            tuple(replace(r, kernel=r.kernel.removesuffix(suffix))
                  for r in records if r.kernel.endswith(suffix))
            for suffix in (_OLD, _NEW)
        )  # fmt: skip
        return Measured(old=old, new=new, cut=cut)

    confirm = measure  # each measurement is a fresh process

    def _run(
        self, kernel: str, reduction: Reduction, sizes: Sequence[int], rounds: int
    ) -> list[Record]:
        """Measure both versions of a call in one process; their records."""
        request, library = self._request, self._library
        name = kernel.removeprefix("peer:")
        listings = tuple(
            TreeListing("", (name + suffix,), tree=tree, suffix=suffix)
            for tree, suffix in ((library.old, _OLD), (library.new, _NEW))
        )
        calls = [call for listing in listings for call in listing.libraries()]
        settings = Settings(
            reductions=(reduction,), sizes=tuple(sizes), rounds=rounds,
            time_limit_s=request.time_limit,
        )  # fmt: skip
        recorder = Recorder(self._backend, self.device.peak_gb_s, settings, load_registry())
        records: list[Record] = []
        with (
            LibraryWorkers(request.time_limit) as processes,
            phase(f"measuring {name}", len(sizes) * rounds, quiet=request.quiet) as bar,
        ):
            for k, n in enumerate(sizes):
                job = LibraryJob(
                    spec=self._spec, listings=listings, reduction=reduction,
                    shapes=(*(() if k else _EDGES), (n, 1)), folder=str(self._folder),
                    methods=settings.methods, rounds=rounds,
                )  # fmt: skip
                outcome = processes.outcome(job, Deadline(), bar.step)
                asked = LibraryTask(Group(reduction=reduction, n=n, verdicts={}), (n, 1))
                records += LibraryRecords(recorder, calls, job, self._limits).of(asked, outcome)
        return records
