"""`collective`: verify every engine, time the correct ones, write records."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median

from cudareduce import __version__
from cudareduce.backend import Backend, BackendName
from cudareduce.backends import choose_backend, open_backend
from cudareduce.bench.command import verdict_codes
from cudareduce.collectives.communicator import Communicator
from cudareduce.collectives.engines import (
    AutoEngine,
    Engine,
    HostEngine,
    Stage,
    StreamEngine,
    kernel_engines,
    record_choice,
)
from cudareduce.collectives.kernels import (
    MOST_MAIL,
    ExchangeKernel,
    edge_sizes,
    kernels_of,
    load_kernels,
    slots_bytes,
    vector_of,
)
from cudareduce.collectives.launcher import (
    check_room,
    gpu_of,
    has_own_gpu,
    most_ranks,
    require_equal,
    start,
)
from cudareduce.collectives.libraries import KINDS, Skip, Wanted, library_engines, select_libraries
from cudareduce.collectives.names import Collective
from cudareduce.collectives.nccl import load, version_in
from cudareduce.collectives.rendezvous import Placement, connect, find_placement
from cudareduce.collectives.timing import (
    IN_A_LOOP,
    SAMPLES,
    UNCOUNTED,
    Batch,
    LinkRates,
    Measured,
    measure_engines,
)
from cudareduce.collectives.verification import REPEATS, STUMBLE, Finding, verify_engine
from cudareduce.collectives.windows import layout, open_windows
from cudareduce.errors import EnvironmentProblem, UsageError, worst_exit_code
from cudareduce.intervals import interval, known, noise_pct
from cudareduce.machine.host import cpu_count
from cudareduce.progress import phase, say
from cudareduce.reduction.operators import Reduction, reduction_of
from cudareduce.report.publish import Outputs, publish
from cudareduce.report.sections import sections
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.results.store import run_texts

#: The largest arrays in bytes that are verified before timing (timed calls verify larger ones), and
#: that the host engine takes.
_ALONE_BYTES, _HOST_BYTES = 2**24, 2**22
_HOST_CALLS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRequest:
    """`n` elements per rank of each size and type, the engines to use, folders of the user's
    kernels, files of NCCL, and where the ranks meet. Each rank runs `argv`."""

    collective: Collective
    n: tuple[int, ...]
    op: str
    dtype: tuple[str, ...]
    engine: tuple[str, ...]
    nccl: tuple[Path, ...]
    rounds: int
    folders: tuple[Path, ...]
    ranks: int | None
    backend: str
    meet: str | None
    no_cache: bool
    quiet: bool
    outputs: Outputs
    argv: tuple[str, ...]

    @property
    def by_host(self) -> bool:
        return not self.engine or "host" in self.engine


def collective(request: CollectiveRequest) -> int:
    """Start the ranks, or be one of them. Returns the exit code: 3 if an engine is wrong. Raises
    UsageError, EnvironmentProblem and RankLost."""
    if 0 in request.n:
        raise UsageError("--n 0: there is nothing to exchange")
    kernels, auto = _select_kernels(request)
    request.outputs.check()
    placement = find_placement(os.environ)
    if placement is None:
        ranks = request.ranks or most_ranks()
        check_room(max(request.n), ranks)
        for file in request.nccl:  # once, before ranks start: an error, not a row of the table
            version_in(file)
        return start(ranks, request.argv)
    if request.ranks not in (None, placement.size):
        raise UsageError(
            f"--ranks {request.ranks}: {placement.launcher} started {placement.size}; leave "
            "--ranks out"
        )
    with connect(placement, request.meet) as comm:
        return int(comm.broadcast(_run_rank(request, kernels, auto, comm, placement)))


def _select_kernels(
    request: CollectiveRequest,
) -> tuple[tuple[ExchangeKernel, ...], tuple[ExchangeKernel, ...]]:
    """The requested kernels, by default all correct ones, and those that `peer:auto` chooses from,
    if it is requested."""
    names = request.engine
    kernels = kernels_of(load_kernels(request.folders), request.collective).values()
    correct = tuple(kernel for kernel in kernels if kernel.wrong is None)
    if not names:
        return correct, ()
    known = (*(k.engine for k in kernels), AutoEngine.name, *KINDS, "host")
    for name in names:
        if name not in (*known, "peer"):
            raise UsageError(
                f"--engine: there is no {name!r} for {request.collective}: {', '.join(known)}"
            )
    if request.nccl and not {"nccl", "nccl-symm"} & set(names):
        raise UsageError("--nccl has no effect without nccl or nccl-symm among --engine: add one")
    named = [kernel for kernel in kernels if kernel.engine in names]
    if "peer" in names:
        named += [kernel for kernel in correct if kernel not in named]
    own = kernels_of(load_kernels(), request.collective).values()
    auto = [kernel for kernel in own if kernel.wrong is None and AutoEngine.name in names]
    return tuple(named), tuple(auto)


def _run_rank(
    request: CollectiveRequest, kernels: tuple[ExchangeKernel, ...],
    auto: tuple[ExchangeKernel, ...], comm: Communicator, placement: Placement,
) -> int:  # fmt: skip
    """The part of one rank. Returns its exit code."""
    spec, remarks = choose_backend(request.backend, gpu_of(placement), not request.no_cache)
    spec = replace(spec, threads=max(1, cpu_count() // placement.size))
    require_equal(comm, [
        request.collective, request.n, request.op, request.dtype, request.by_host, request.rounds,
        [kernel.sha for kernel in (*kernels, *auto)], spec.name,
    ])  # fmt: skip
    quiet = request.quiet or comm.rank > 0
    for remark in remarks:
        say(remark, quiet)
    timed = has_own_gpu(comm, placement, spec, quiet=quiet)
    libraries, missing = requested_libraries(request, timed=timed)
    require_equal(comm, [str(library) for library in libraries])
    say(missing, quiet)
    experiment = CollectiveExperiment(
        collective=request.collective, kernels=kernels, auto=auto, libraries=libraries,
        by_host=request.by_host, sizes=request.n, timed=timed, rounds=request.rounds, quiet=quiet,
    )  # fmt: skip
    records: list[Record] = []
    notes: list[str] = []
    with open_backend(spec) as backend:
        for dtype in request.dtype:
            measured, links = run_collective(
                experiment, reduction_of(request.op, dtype), comm, backend
            )
            records += [record_choice(record, [k.short for k in auto]) for record in measured]
            notes += link_notes(links)
        device = backend.info()
    if comm.rank == 0:
        protocol = {
            "collective": request.collective, "engines": list(request.engine), "timing": "warm",
            "rounds": request.rounds if timed else None, "samples": SAMPLES, "loop": IN_A_LOOP,
            "remarks": notes,
        }  # fmt: skip
        run = Run(tool(request.argv), device, protocol, tuple(records))
        publish(request.outputs, sections(run), run_texts(run))
    return worst_exit_code(verdict_codes(records))


def requested_libraries(
    request: CollectiveRequest, *, timed: bool
) -> tuple[tuple[Wanted, ...], str]:  # fmt: skip
    """The requested libraries, else NCCL if it is installed and times are measured; and a remark if
    it is not."""
    if request.engine or request.nccl:
        return select_libraries(request.engine or ("nccl",), request.nccl), ""
    if not timed:
        return (), ""
    try:
        load(None)
    except EnvironmentProblem as problem:
        return (), f"NCCL is not among the engines: {problem}."
    return select_libraries(("nccl",), ()), ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveExperiment:
    """What to run: a collective with some kernels, the kernels that `peer:auto` chooses from,
    libraries, and the host, at some sizes; in `rounds` rounds if `timed`."""

    collective: Collective
    kernels: tuple[ExchangeKernel, ...]
    auto: tuple[ExchangeKernel, ...] = ()
    libraries: tuple[Wanted, ...] = ()
    by_host: bool
    sizes: tuple[int, ...]
    timed: bool
    rounds: int
    quiet: bool = True


def run_collective(
    experiment: CollectiveExperiment, reduction: Reduction, comm: Communicator, backend: Backend
) -> tuple[list[Record], LinkRates]:
    """The records of all engines, the same on all ranks, and the link bandwidth. Raises RankLost,
    BuildError, OutOfMemory, KernelFault and EnvironmentProblem."""
    sizes, size, numbers = experiment.sizes, reduction.dtype.size, count(1)
    timed = backend.timed() if experiment.timed else None
    recorder = Recorder(experiment.collective, reduction, comm.size, backend.name)
    with (
        _open_stage(experiment, reduction, comm, backend) as stage,
        library_engines(experiment.libraries, stage, timed) as (libraries, absent),
    ):
        tested: list[Engine] = [*_own_engines(experiment, stage, STUMBLE), *libraries]
        tested += [HostEngine(stage)] if experiment.by_host else []
        findings: dict[str, Finding] = {}
        with phase(f"verifying {reduction.dtype.name}", len(tested), quiet=experiment.quiet) as bar:
            for engine in tested:
                most = _most_verified(experiment, stage, engine)
                fitting = sorted({min(n, most) for n in sizes if not engine.why_not(n)})
                if fitting:
                    findings[engine.name] = verify_engine(stage, engine, fitting, numbers)
                bar.step()
        records = [recorder.verified(f) for f in findings.values() if f.wrong or timed is None]
        links = LinkRates()
        if timed:
            engines: list[StreamEngine] = [*_own_engines(experiment, stage), *libraries]
            engines = [e for e in engines if e.name in findings and not findings[e.name].wrong]
            steps = len(sizes) * (experiment.rounds + UNCOUNTED)
            name = f"measuring {reduction.dtype.name}"
            with phase(name, steps, quiet=experiment.quiet) as bar:
                measured, links = measure_engines(
                    stage, timed, engines, sizes, MOST_MAIL // size, experiment.rounds, numbers, bar
                )
            by_name = {engine.name: engine for engine in engines}
            records += [
                recorder.timed(findings[m.engine], m, links, by_name[m.engine].source_sha,
                               by_name[m.engine].binary_sha)
                for m in measured
            ]  # fmt: skip
            host = findings.get(HostEngine.name)
            if host and not host.wrong:
                for n in (n for n in sizes if n * size <= _HOST_BYTES):
                    run = partial(_run_next, tested[-1], n, numbers)
                    records.append(recorder.on_host(host, n, host_clock_us(stage, run)))
        records += [recorder.skipped(*skip) for skip in _skips(experiment, libraries, absent)]
        return records, links


def _most_verified(experiment: CollectiveExperiment, stage: Stage, engine: Engine) -> int:
    """The largest size at which an engine is verified by itself."""
    size = stage.reduction.dtype.size
    most = MOST_MAIL // size if engine.mail else max(experiment.sizes)
    if engine.name == HostEngine.name:
        most = min(most, _HOST_BYTES // size)
    if stage.backend.timed():
        alone = _ALONE_BYTES // size
        alone -= alone % (vector_of(stage.reduction) * stage.comm.size)  # equal shares
        most = min(most, alone)
    return most


def _own_engines(
    experiment: CollectiveExperiment, stage: Stage, stumble: int = 0
) -> list[StreamEngine]:
    """Our kernels, and `peer:auto`. Raises BuildError."""
    kernels = dict.fromkeys((*experiment.kernels, *experiment.auto))
    compiled = dict(zip(kernels, kernel_engines(stage, list(kernels), stumble), strict=True))
    engines: list[StreamEngine] = [compiled[kernel] for kernel in experiment.kernels]
    if experiment.auto:
        engines.append(AutoEngine(stage, {k.short: compiled[k] for k in experiment.auto}))
    return engines


def _skips(
    experiment: CollectiveExperiment, libraries: Sequence[Engine], absent: Sequence[Skip]
) -> Iterator[tuple[Skip, int]]:
    """The skipped libraries, and the sizes that a library does not support."""
    for skip in absent:
        for n in experiment.sizes if experiment.timed else [max(experiment.sizes)]:
            yield skip, n
    for engine in libraries:
        for n in experiment.sizes:
            why = engine.why_not(n)
            if why:
                yield Skip(engine.name, why, "unfit"), n


def _run_next(engine: Engine, n: int, numbers: Iterator[int]) -> None:
    engine.run(n, next(numbers), 0)


def host_clock_us(stage: Stage, call: Callable[[], None]) -> float:
    """The median time of a call by the host's clock, of the slowest rank."""
    times = []
    for _ in range(_HOST_CALLS):
        stage.comm.barrier()
        began = time.perf_counter()
        call()
        stage.backend.synchronize()
        times.append(max(stage.comm.all_gather(time.perf_counter() - began)))
    return float(median(times)) * 1e6


@contextmanager
def _open_stage(
    experiment: CollectiveExperiment, reduction: Reduction, comm: Communicator, backend: Backend
) -> Iterator[Stage]:
    """The stage, with windows for the largest arrays."""
    size = reduction.dtype.size
    kernels = (*experiment.kernels, *experiment.auto)
    edges = [n for kernel in kernels for n in edge_sizes(kernel, reduction, comm.size)]
    nbytes = max(*experiment.sizes, *edges, 1) * size
    words = -(-size // 4)
    mail = 2 * comm.size * min(nbytes, MOST_MAIL) // size * words * 8
    sends_shares = any(kernel.mail == "shares" for kernel in kernels)
    slots = slots_bytes(comm.size, nbytes) if sends_shares else 0
    parts = layout(comm.size, nbytes, mail, slots, max(1, len(kernels)))
    with open_windows(comm, backend, parts) as windows:
        yield Stage(backend, comm, windows, experiment.collective, reduction)


@dataclass(frozen=True, slots=True)
class Recorder:
    """Makes the records of one collective and reduction."""

    collective: Collective
    reduction: Reduction
    ranks: int
    backend: BackendName

    def verified(self, finding: Finding) -> Record:
        """The record of a verified engine."""
        return Record(
            kernel=self.collective, op=self.reduction.op.name, dtype=self.reduction.dtype.name,
            acc=self.reduction.acc.name, n=finding.n, rows=1, block=None, items=None, grid=None,
            passes=None, backend=self.backend,
            scope="device" if finding.engine.startswith("peer:") else "library",
            timing="warm", region="total", pattern="exact",
            verdict="fail" if finding.wrong else "pass", reason=finding.wrong or "",
            distinct=finding.distinct, launches=None if finding.distinct is None else REPEATS,
            tried_launches=finding.calls, ranks=self.ranks, engine=finding.engine,
            version=finding.version,
        )  # fmt: skip

    def skipped(self, skip: Skip, n: int) -> Record:
        """The record of an engine that is skipped at a size."""
        plain = self.verified(Finding(skip.engine, n, None, None, 0))
        return replace(plain, verdict="skip", reason=skip.reason, cause=skip.cause,
                       tried_launches=None)  # fmt: skip

    def timed(
        self, finding: Finding, measured: Measured, links: LinkRates,
        source_sha: str | None = None, binary_sha: str | None = None,
    ) -> Record:  # fmt: skip
        """The record of a timed engine; without a time if it was wrong, or ranks were apart in all
        samples."""
        plain = replace(self.verified(finding), n=measured.n)
        if finding.wrong:
            return plain
        record = with_times(plain, measured.batches, measured.n * self.reduction.dtype.size)
        if record.gb_s is None:
            return record
        # busbw over algbw among n ranks: nccl-tests, doc/PERFORMANCE.md
        share = (self.ranks - 1) / self.ranks
        wire = {"all-reduce": 2 * share, "reduce-scatter": share, "reduce": 1.0}[self.collective]
        busbw = record.gb_s * wire
        return replace(
            record, algbw_gb_s=record.gb_s, busbw_gb_s=busbw,
            pct_link=links.write_gb_s and 100 * busbw / links.write_gb_s,
            source_sha=source_sha, cubin_sha=binary_sha,
        )  # fmt: skip

    def on_host(self, finding: Finding, n: int, host_us: float) -> Record:
        """The record of the host engine, timed by the host's clock."""
        version = f"cudareduce {__version__}"
        return replace(self.verified(finding), n=n, host_us=host_us, version=version)


def with_times(plain: Record, batches: Sequence[Batch], nbytes: int) -> Record:
    """The record with the times of calls on `nbytes`; without, if a result was wrong or ranks were
    apart in all samples."""
    wrong = next((batch.wrong for batch in batches if batch.wrong), None)
    if wrong:
        return replace(plain, verdict="fail", reason=wrong)
    rounds = tuple(batch.median_us for batch in batches)
    times = known(rounds)
    if not times:
        apart = "the ranks were apart in every sample: see what else runs on these GPUs"
        return replace(plain, reason=apart)
    us = median(times)
    low, high = interval(times) or (None, None)
    sound = [time for batch in batches for time in batch.sound_us]
    return replace(
        plain, time_us=us, time_us_low=low, time_us_high=high, time_us_min=min(sound),
        noise_pct=noise_pct(sound), samples=len(sound), rounds_us=rounds,
        discarded=sum(len(batch.times_us) - len(batch.sound_us) for batch in batches),
        host_us=median(batch.host_us for batch in batches),
        bytes=nbytes, gb_s=nbytes / us / 1e3, gb_s_low=high and nbytes / high / 1e3,
        gb_s_high=low and nbytes / low / 1e3,
        skew_us=median(skew for batch in batches for skew in batch.skews_us),
        loop_us=median(batch.loop_us for batch in batches),
    )  # fmt: skip


def link_notes(links: LinkRates) -> tuple[str, ...]:
    """The note on link bandwidth below a table."""
    if links.write_gb_s is None or links.read_gb_s is None:
        return ()
    return (
        f"%link: of {links.write_gb_s:.0f} GB/s, which writes reached both ways at once in the "
        f"same rounds; reads {links.read_gb_s:.0f}",
    )
