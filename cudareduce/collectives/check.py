"""`check` of collectives: against a stored run, or against the kernels of another tree.

Each measurement is a job of fresh rank processes that run `collective`, whose result files are
compared. A job can run two versions of an engine in the same rounds under different names: the
kernels of a baseline tree, or two files of NCCL. If a launcher started several ranks of `check`,
each of them starts one rank of every job: rank 0 broadcasts the command lines to the others.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path

from cudareduce.backends.selection import choose_backend, gpu_count, open_backend
from cudareduce.budget import Deadline
from cudareduce.catalog.front_matter import CLOSES
from cudareduce.catalog.registry import EXCHANGES, kernels_folder, load_registry
from cudareduce.collectives.communicator import Communicator, RankLost, connect, find_placement
from cudareduce.collectives.engines import AutoEngine
from cudareduce.collectives.kernels import ExchangeKernel, kernels_in, load_kernels, source_folders
from cudareduce.collectives.launcher import (
    OUT_OF_TIME,
    PROGRAM,
    check_memory,
    default_ranks,
    start_ranks,
    worst_of_ranks,
)
from cudareduce.collectives.names import COLLECTIVES, MOST_RANKS, OPS
from cudareduce.compare.check import report_stored, report_trees, thresholds_of
from cudareduce.compare.measure import rounds_of
from cudareduce.compare.request import CheckRequest
from cudareduce.compare.trees import base_folders, is_unchanged, revision_of
from cudareduce.compare.verdicts import INTERRUPTED, Cut, Measured
from cudareduce.errors import CudareduceError, EnvironmentProblem, UsageError
from cudareduce.machine import DeviceInfo
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.results.record import Record, Run
from cudareduce.results.store import load
from cudareduce.temporary import temporary_folder
from cudareduce.text import first_few

#: The largest --rounds.
_MOST_ROUNDS = 10_000
#: Suffix of the names of baseline kernels.
_BASE = "_base"
#: Exit codes of jobs that wrote a result: all engines right, or one wrong.
_COMPLETED = (0, 3)


def check_ranks(request: CheckRequest, stored: Run) -> int:
    """Measure stored collectives again and compare. Returns the exit code, the same on all ranks of
    a launcher. Raises as `check_stored` does, and RankLost."""
    old = _select_records(stored, request)
    jobs = _stored_jobs(old, stored, request)
    with _job_ranks(jobs) as ranks:
        if ranks.follows:
            return ranks.follow()
        registry = load_registry()
        thresholds = thresholds_of(request.judging, registry, stored.records)
        device = device_of(max(job.ranks for job in jobs), request)
        here = JobMeasurement(
            request, old, jobs, rounds_of(request, stored), device, Deadline(request.max_time),
            ranks,
        )  # fmt: skip
        return ranks.finish(report_stored(request, stored, old.records, registry, thresholds, here))


def check_base_ranks(request: CheckRequest) -> int:
    """Compare the collectives of two trees. Returns the exit code, the same on all ranks of a
    launcher. Raises UsageError, EnvironmentProblem and RankLost."""
    request.outputs.check(*request.judging.read)
    _refuse_single_gpu_options(request)
    _check_problems(request)
    placement = find_placement(os.environ)
    size = request.ranks or (placement.size if placement else default_ranks())
    check_memory(max(request.sizes), size)
    with temporary_folder() as temporary:
        engines, pairs = _pair_trees(request, Path(temporary))
        jobs = jobs_of(request, size, engines)
        with _job_ranks(jobs) as ranks:
            if ranks.follows:
                return ranks.follow()
            registry, named = load_registry(), {*request.kernels, *pairs.old.values()}
            thresholds = thresholds_of(request.judging, registry, (), named)
            device, rounds = device_of(size, request), request.default_rounds
            now, deadline = Run({}, device, {}, ()), Deadline(request.max_time)
            both = JobMeasurement(request, now, jobs, rounds, device, deadline, ranks, pairs)
            candidate = " ".join(request.kernels)
            return ranks.finish(report_trees(request, candidate, registry, thresholds, both))


def _check_problems(request: CheckRequest) -> None:
    for name in request.kernels:
        if name not in COLLECTIVES:
            raise UsageError(
                f"{name} is a kernel of one GPU, and other names are collectives: check them "
                "in separate runs"
            )
    for op in request.op or ():
        if op not in OPS:
            raise UsageError(f"--op {op}: collectives take {', '.join(OPS)}")
    if request.rows not in (None, 1):
        raise UsageError("--rows applies to reductions on one GPU: leave it out for collectives")
    if 0 in request.sizes:
        raise UsageError("--n 0: a collective takes at least one element")


def _pair_trees(request: CheckRequest, folder: Path) -> tuple[dict[str, tuple[str, ...]], Pairs]:
    """The engines of both trees for each requested collective, from the correct kernels, and their
    pairs. Raises UsageError if a tree has no kernel of a collective."""
    names = request.kernels
    folders = request.folders or (kernels_folder() / EXCHANGES,)
    head, base = (
        {name: k for name, k in kernels.items() if k.collective in names and k.wrong is None}
        for kernels in (
            kernels_in(folders), _baseline_kernels(str(request.base), folders, folder / "base")
        )
    )  # fmt: skip
    for tree, kernels in (("this tree", head), (request.base, base)):
        for name in names:
            if not any(kernel.collective == name for kernel in kernels.values()):
                raise UsageError(f"{tree} has no kernels of {name}: give another tree")
    engines = {
        name: (*(k.engine for k in head.values() if k.collective == name),
               *(k.engine + _BASE for k in base.values() if k.collective == name))
        for name in names
    }  # fmt: skip
    return engines, _pair_kernels(head, base, folder / "copies")


def _baseline_kernels(base: str, heads: Sequence[Path], into: Path) -> dict[str, ExchangeKernel]:
    """The kernels of a folder, or of a revision that is unpacked into `into`, by name. Raises
    UsageError."""
    folders = [folder / EXCHANGES for folder in base_folders(base, heads, into)]
    return kernels_in([folder if folder.is_dir() else folder.parent for folder in folders])


def _pair_kernels(
    head: Mapping[str, ExchangeKernel], base: Mapping[str, ExchangeKernel], folder: Path
) -> Pairs:
    """Pair the kernels of two trees by name. Writes the baseline's kernels to a folder. A macro in
    front of each text renames the kernel, so that both versions fit in one job."""
    folder.mkdir()
    for kernel in base.values():
        name = kernel.id + _BASE
        end = kernel.text.index(CLOSES) + len(CLOSES)
        line = kernel.text.count("\n", 0, end) + 2  # the line after the front matter
        renamed = f'\n#define {kernel.id} {name}\n#line {line} "{kernel.path}"\n'
        body = kernel.text[end:].removeprefix("\n")
        (folder / f"{name}.cu").write_text(kernel.text[:end] + renamed + body)
    return Pairs(
        old={(k.collective, k.engine + _BASE): k.engine for k in base.values()},
        same=frozenset(
            (kernel.collective, kernel.engine) for name, kernel in head.items()
            if name in base and base[name].text == kernel.text
        ),
        options=("--kernels", str(folder)),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Job:
    """One run of `collective`: its operator, ranks, types, sizes and engines (all correct ones if
    empty). With `links`, link bandwidth is measured at the largest size."""

    collective: str
    op: str
    ranks: int
    dtypes: tuple[str, ...]
    sizes: tuple[int, ...]
    engines: tuple[str, ...]
    links: bool = False

    def holds(self, record: Record) -> bool:
        return (
            (record.kernel, record.op, record.ranks) == (self.collective, self.op, self.ranks)
            and record.dtype in self.dtypes
            and record.n in self.sizes
        )


@dataclass(frozen=True, slots=True)
class Pairs:
    """Engines of two versions that run in one job.

    `old` maps the collective and the name of each baseline engine to the name that both versions
    share; `new` does so for candidate engines that are renamed. `same` are the collectives and
    engines whose source is equal in both. `options` are words of `collective` that add the engines.
    """

    old: Mapping[tuple[str, str], str]
    new: Mapping[tuple[str, str], str] = field(default_factory=dict)
    same: frozenset[tuple[str, str]] = frozenset()
    options: tuple[str, ...] = ()

    def split(self, records: Sequence[Record]) -> tuple[list[Record], list[Record]]:
        """The baseline's and the candidate's records, under their common names. Where the source is
        the same, the candidate's `cubin_sha` replaces the baseline's, which differs only by the
        entry point's name."""
        keys = [(record.kernel, record.engine or "") for record in records]
        new = [
            replace(r, engine=self.new.get(key, r.engine))
            for key, r in zip(keys, records, strict=True)
            if key not in self.old
        ]
        shas = {(r.kernel, r.engine, r.op, r.dtype): r.cubin_sha for r in new}
        old = []
        for key, r in zip(keys, records, strict=True):
            if key in self.old:
                name = self.old[key]
                same = (r.kernel, name) in self.same
                sha = shas.get((r.kernel, name, r.op, r.dtype)) if same else r.cubin_sha
                old.append(replace(r, engine=name, cubin_sha=sha))
        return old, new

    def old_kernels(self, collective: str, names: Collection[str]) -> list[str]:
        """The baseline engines that are paired with the engines `names`."""
        return [
            engine for (of, engine), name in self.old.items()
            if of == collective and name in names and engine.startswith("peer:")
        ]  # fmt: skip


def jobs_of(
    request: CheckRequest, ranks: int, engines: Mapping[str, tuple[str, ...]]
) -> tuple[Job, ...]:
    """One job for each collective in `engines` and each operator of the command line."""
    dtypes, sizes = request.dtype or ("float32",), tuple(sorted(request.sizes))
    return tuple(
        Job(name, op, ranks, dtypes, sizes, engines[name])
        for name in engines for op in request.op or ("sum",)
    )  # fmt: skip


def _stored_jobs(run: Run, stored: Run, request: CheckRequest) -> tuple[Job, ...]:
    """The jobs that measure these records again, with the engines that the stored run requested, or
    that `request.kernels` selects. Kernels that no longer exist are left out. Raises UsageError for
    records that `collective` does not measure."""
    groups: dict[tuple[str, str, int], list[Record]] = {}
    for record in run.records:
        _check_record(record)
        groups.setdefault((record.kernel, record.op, record.ranks or 0), []).append(record)
    stored_engines = run.protocol.get("engines")
    kernels = load_kernels(request.folders).values()
    jobs = []
    for (collective, op, ranks), records in groups.items():
        alike = [r for r in stored.records if (r.kernel, r.op, r.ranks) == (collective, op, ranks)]
        links = any(r.link_gb_s for r in alike)
        sizes = {r.n for r in records} | ({max(r.n for r in alike)} if links else set())
        check_memory(max(sizes), ranks)
        recorded = dict.fromkeys(r.engine or "" for r in records)
        wanted = recorded if request.kernels or stored_engines is None else stored_engines
        known = {k.engine for k in kernels if k.collective == collective} | {AutoEngine.name}
        engines = tuple(name for name in wanted if not name.startswith("peer:") or name in known)
        if engines or not wanted:
            dtypes = tuple(dict.fromkeys(r.dtype for r in records))
            jobs.append(Job(collective, op, ranks, dtypes, tuple(sorted(sizes)), engines, links))
    if not jobs:
        raise UsageError(
            "no engine of the baseline exists any more: name the folder of their kernels "
            "with --kernels"
        )
    return tuple(jobs)


def _select_records(stored: Run, request: CheckRequest) -> Run:
    """The stored run with only the records whose collective or engine matches `request.kernels`;
    all if that is empty. Raises UsageError if none matches."""
    _refuse_single_gpu_options(request)
    patterns = request.kernels
    records = tuple(
        r for r in stored.records
        if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns
                               for name in (r.kernel, r.engine or ""))
    )  # fmt: skip
    if not records:
        known = dict.fromkeys(r.engine or r.kernel for r in stored.records)
        raise UsageError(
            f"the baseline holds no {' '.join(patterns)}; it has: {first_few(known, 6)}"
        )
    return replace(stored, records=records)


def _refuse_single_gpu_options(request: CheckRequest) -> None:
    for name in ("peers", "map", "device", "time_limit"):
        if getattr(request, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option} applies to reductions on one GPU: leave it out for collectives"
            )


def _check_record(record: Record) -> None:
    for what, value, known in (
        ("collective", record.kernel, COLLECTIVES), ("operator", record.op, OPS),
        ("type", record.dtype, DTYPES), ("number of ranks", record.ranks, range(2, MOST_RANKS + 1)),
    ):  # fmt: skip
        if value not in known:
            raise UsageError(
                f"the baseline holds {value!r}, which is no {what} of `collective`: measure again "
                "with the command that wrote it, and use compare"
            )
    if record.engine and record.engine.startswith(("nccl:", "nccl-symm:")):
        raise UsageError(
            f"the baseline holds {record.engine}, of a file given with --nccl: name the "
            "engines to check, or use check --library nccl=OLD,NEW"
        )
    if record.n < 1 or not record.engine or "," in record.engine:
        raise UsageError(
            "the baseline holds a collective without elements or without an engine: measure it "
            "again with `collective`"
        )


def device_of(ranks: int, request: CheckRequest) -> DeviceInfo:
    """Describe GPU 0. Raises EnvironmentProblem if there are fewer GPUs than ranks."""
    spec, _ = choose_backend("cuda", 0, not request.no_cache)
    gpus = gpu_count()
    if gpus < ranks:
        raise EnvironmentProblem(
            f"{ranks} ranks need a GPU each, and this machine has {gpus}: run check on a machine "
            "with as many"
        )
    with open_backend(spec) as backend:
        return backend.info()


@dataclass(frozen=True, slots=True)
class JobMeasurement:
    """Measures jobs in `rounds` rounds. Records of `stored` whose job has no time left get verdict
    skip. With `pairs` the results are split into baseline and candidate."""

    request: CheckRequest
    stored: Run
    jobs: tuple[Job, ...]
    rounds: int
    device: DeviceInfo
    deadline: Deadline
    ranks: JobRanks
    pairs: Pairs | None = None

    def measure(self, suspects: Sequence[Record] | None, times: int) -> Measured:
        """Measure all jobs, or those of `suspects`, with `times` times the rounds. After Ctrl-C or
        the loss of a rank, returns what was measured before."""
        records: list[Record] = []
        remarks: list[str] = []
        cut = None
        jobs = self.jobs if suspects is None else list(self._suspect_jobs(suspects))
        with temporary_folder() as folder:
            for job in jobs:
                try:
                    result = self._run(job, times, Path(folder, "job.json"))
                except KeyboardInterrupt:
                    result = INTERRUPTED
                if isinstance(result, Cut):
                    cut = result
                    break
                records += result.records
                remarks += result.protocol.get("remarks") or ()
        old, new = self.pairs.split(records) if self.pairs else ([], records)
        return Measured(
            old=tuple(old), new=tuple(new), remarks=tuple(dict.fromkeys(remarks)), cut=cut
        )

    def _suspect_jobs(self, suspects: Sequence[Record]) -> Iterator[Job]:
        """The jobs restricted to the engines and sizes of these records, with the baseline engine
        of each. The largest size stays if link bandwidth is measured with it, which shows drift."""
        for job in self.jobs:
            for dtype in job.dtypes:
                records = [r for r in suspects if r.dtype == dtype and job.holds(r)]
                names = list(dict.fromkeys(r.engine or "" for r in records))
                if self.pairs:
                    names += self.pairs.old_kernels(job.collective, names)
                sizes = {r.n for r in records} | ({max(job.sizes)} if job.links else set())
                if records:
                    yield replace(job, dtypes=(dtype,), sizes=tuple(sorted(sizes)),
                                  engines=tuple(names))  # fmt: skip

    def confirm(self, suspects: Sequence[Record] | None, times: int) -> Measured:
        """Measure again, together with the baseline's kernels if git has them."""
        if self.pairs:
            return self.measure(suspects, times)
        with temporary_folder() as folder:
            pairs = _pair_stored(self, Path(folder))
            return replace(self, pairs=pairs).measure(suspects, times)

    def _run(self, job: Job, times: int, path: Path) -> Run | Cut:
        """The result of a job, or why it ended."""
        code = OUT_OF_TIME
        if not self.deadline.passed:
            code = self.ranks.run(job.ranks, self._argv(job, times, path), self.deadline)
        if code == OUT_OF_TIME:
            return replace(self.stored, protocol={}, records=tuple(
                replace(record, verdict="skip", reason="no time was left to measure it",
                        cause="time", time_us=None, time_us_low=None, time_us_high=None,
                        rounds_us=(), host_us=None)
                for record in self.stored.records if job.holds(record)
            ))  # fmt: skip
        if code not in _COMPLETED or not path.exists():
            where = "see their standard error"
            return Cut(f"the {job.ranks} ranks ended with code {code}: {where}", code)
        result = load(path)
        path.unlink()
        return result

    def _argv(self, job: Job, times: int, result: Path) -> list[str]:
        request = self.request
        return [
            "collective", job.collective, "--op", job.op, "--dtype", ",".join(job.dtypes),
            "--n", ",".join(map(str, job.sizes)), "--engine", ",".join(job.engines),
            "--rounds", str(min(times * self.rounds, _MOST_ROUNDS)), "--backend", "cuda",
            "--json", str(result), *(self.pairs.options if self.pairs else ()),
            *(word for folder in request.folders for word in ("--kernels", str(folder))),
            *["--no-cache"] * request.no_cache, *["--quiet"] * request.quiet,
        ]  # fmt: skip


def _pair_stored(measurement: JobMeasurement, folder: Path) -> Pairs | None:
    """Pair this tree's kernels with those of the baseline's revision, to run both in the same
    rounds. None if git does not have the revision, or if shared device code has changed."""
    folders = (kernels_folder() / EXCHANGES, *measurement.request.folders)
    revision = revision_of(measurement.stored, measurement.device)
    try:
        # the baseline's kernels would be compiled with this tree's shared code
        if revision is None or not all(is_unchanged(revision, each) for each in source_folders()):
            return None
        base = _baseline_kernels(revision, folders, folder / "base")
    except UsageError:
        return None
    shas = {(r.kernel, r.engine): r.source_sha for r in measurement.stored.records}
    base = {
        name: kernel for name, kernel in base.items()
        if shas.get((kernel.collective, kernel.engine)) == kernel.sha
    }  # fmt: skip
    return _pair_kernels(kernels_in(folders), base, folder / "copies")


@dataclass(frozen=True, slots=True)
class JobRanks:
    """Runs jobs. Without `comm`, starts all ranks of a job here; with it, starts one on each rank
    of a launcher, with rendezvous files in `folder`."""

    comm: Communicator | None = None
    folder: Path = Path()
    numbers: Iterator[int] = field(default_factory=count)

    @property
    def follows(self) -> bool:
        return self.comm is not None and self.comm.rank > 0

    def run(self, ranks: int, argv: Sequence[str], deadline: Deadline) -> int:
        """Run `cudareduce ARGV` until the deadline; returns the worst exit code, or OUT_OF_TIME.
        Only standard error is shown."""
        if self.comm is None:
            return start_ranks(ranks, argv, printing=False, deadline=deadline)
        words = [*argv, "--meet", str(self.folder / f"rendezvous-{next(self.numbers)}.json")]
        self.comm.broadcast(words)
        own = _run_as_rank(words, deadline)
        codes = self.comm.gather(own)
        return own if own == OUT_OF_TIME else worst_of_ranks(codes)

    def finish(self, code: int) -> int:
        """End the other ranks with this exit code; returns it."""
        if self.comm is not None:
            self.comm.broadcast(code)
        return code

    def follow(self) -> int:
        """Run rank 0's commands until it broadcasts the exit code. Raises RankLost."""
        assert self.comm is not None
        while not isinstance(command := self.comm.broadcast(), int):
            self.comm.gather(_run_as_rank(command, Deadline()))
        return command


@contextmanager
def _job_ranks(jobs: Sequence[Job]) -> Iterator[JobRanks]:
    """The ranks that run the jobs. Raises UsageError if a launcher's ranks are not as many as the
    jobs need, and RankLost."""
    here = find_placement(os.environ)
    if here is None:
        yield JobRanks()
        return
    sizes = sorted({job.ranks for job in jobs})
    if sizes != [here.size]:
        raise UsageError(
            f"the baseline has {' and '.join(map(str, sizes))} ranks, and {here.launcher} started "
            f"{here.size}: start as many, or run check without a launcher"
        )
    with temporary_folder() as folder, connect(here, here.file("-check")) as comm:
        try:
            yield JobRanks(comm, Path(folder))
        except CudareduceError as error:
            if comm.rank == 0:
                with suppress(RankLost):
                    comm.broadcast(error.exit_code)
            raise


def _run_as_rank(argv: Sequence[str], deadline: Deadline) -> int:
    with subprocess.Popen([*PROGRAM, *argv], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          env=os.environ) as process:  # fmt: skip
        try:
            return process.wait(None if deadline.seconds is None else deadline.left_s)
        except subprocess.TimeoutExpired:
            return OUT_OF_TIME
        finally:
            process.kill()
