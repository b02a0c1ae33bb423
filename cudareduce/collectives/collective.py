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
from cudareduce.backends.protocol import Backend
from cudareduce.backends.selection import choose_backend, open_backend
from cudareduce.bench.command import verdict_codes
from cudareduce.collectives.communicator import Communicator, Placement, connect, find_placement
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
    MOST_LL_BYTES,
    ExchangeKernel,
    edge_sizes,
    kernels_of,
    load_kernels,
    slots_bytes,
    vector_of,
)
from cudareduce.collectives.launcher import (
    check_memory,
    default_ranks,
    gpu_of,
    has_own_gpu,
    require_equal,
    start_ranks,
)
from cudareduce.collectives.names import Collective
from cudareduce.collectives.nccl import (
    KINDS,
    RequestedLibrary,
    library_engines,
    load_nccl,
    select_libraries,
    version_in,
)
from cudareduce.collectives.timing import (
    LOOP_CALLS,
    SAMPLES,
    WARM_UP_ROUNDS,
    LinkRates,
    measure_engines,
    with_bandwidth,
    with_times,
)
from cudareduce.collectives.verification import DELAY_CLOCKS, verify_engine
from cudareduce.collectives.windows import layout, open_windows
from cudareduce.errors import EnvironmentProblem, UsageError, worst_exit_code
from cudareduce.machine import cpu_count
from cudareduce.progress import phase, say
from cudareduce.reduction.operators import Reduction, reduction_of
from cudareduce.report.publish import Outputs, publish
from cudareduce.report.sections import sections
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.results.store import run_texts

#: The largest arrays in bytes that are verified before timing. The results of larger ones are
#: checked in timed calls.
_ALONE_BYTES = 2**24
_HOST_CALLS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRequest:
    """Options of `collective`: `n` are elements per rank, `folders` hold the user's kernels, `nccl`
    are files of the library, `meet` is the rendezvous, `argv` is what each rank runs."""

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
    """Start the ranks, or run one of them in a process that a launcher has started. Returns the
    exit code: 3 if an engine is wrong. Raises UsageError, EnvironmentProblem and RankLost."""
    if 0 in request.n:
        raise UsageError("--n 0: a collective takes at least one element")
    kernels, auto = _select_kernels(request)
    request.outputs.check()
    placement = find_placement(os.environ)
    if placement is None:
        ranks = request.ranks or default_ranks()
        check_memory(max(request.n), ranks)
        for file in request.nccl:  # an unusable file is an error here, not a skipped row
            version_in(file)
        return start_ranks(ranks, request.argv)
    if request.ranks not in (None, placement.size):
        raise UsageError(
            f"--ranks {request.ranks}: {placement.launcher} started {placement.size}; leave "
            "--ranks out"
        )
    with connect(placement, request.meet) as comm:
        return int(comm.broadcast(_run_as_rank(request, kernels, auto, comm, placement)))


def _select_kernels(
    request: CollectiveRequest,
) -> tuple[tuple[ExchangeKernel, ...], tuple[ExchangeKernel, ...]]:
    """The requested kernels (by default all correct ones), and the kernels that `peer:auto` selects
    from if it is requested."""
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


def _run_as_rank(
    request: CollectiveRequest, kernels: tuple[ExchangeKernel, ...],
    auto: tuple[ExchangeKernel, ...], comm: Communicator, placement: Placement,
) -> int:  # fmt: skip
    """Verify and time the engines as one of the ranks. Returns this rank's exit code."""
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
    libraries, missing = requested_libraries(request.engine, request.nccl, timed=timed)
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
            notes += links.notes
        device = backend.info()
    if comm.rank == 0:
        protocol = {
            "collective": request.collective, "engines": list(request.engine), "timing": "warm",
            "rounds": request.rounds if timed else None, "samples": SAMPLES, "loop": LOOP_CALLS,
            "remarks": notes,
        }  # fmt: skip
        run = Run(tool(request.argv), device, protocol, tuple(records))
        publish(request.outputs, sections(run), run_texts(run))
    return worst_exit_code(verdict_codes(records))


def requested_libraries(
    names: Sequence[str], files: Sequence[Path], *, timed: bool
) -> tuple[tuple[RequestedLibrary, ...], str]:
    """The libraries among the engines `names`, and a remark. Without names and files: NCCL if times
    are measured. The remark is the reason why NCCL cannot be loaded."""
    if names or files:
        return select_libraries(names or ("nccl",), files), ""
    if not timed:
        return (), ""
    try:
        load_nccl(None)
    except EnvironmentProblem as problem:
        return (), f"NCCL is not among the engines: {problem}."
    return select_libraries(("nccl",), ()), ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveExperiment:
    """One collective with the engines and sizes to measure.

    `auto` are the kernels that `peer:auto` selects from, `by_host` adds the host engine. Without
    `timed`, engines are verified only.
    """

    collective: Collective
    kernels: tuple[ExchangeKernel, ...]
    auto: tuple[ExchangeKernel, ...] = ()
    libraries: tuple[RequestedLibrary, ...] = ()
    by_host: bool
    sizes: tuple[int, ...]
    timed: bool
    rounds: int
    quiet: bool = True


def run_collective(
    experiment: CollectiveExperiment, reduction: Reduction, comm: Communicator, backend: Backend
) -> tuple[list[Record], LinkRates]:
    """Verify all engines and time the correct ones. Returns their records, the same on all ranks,
    and the link bandwidth."""
    sizes, size, numbers = experiment.sizes, reduction.dtype.size, count(1)
    timed = backend.timed() if experiment.timed else None
    links = LinkRates()
    with (
        _open_stage(experiment, reduction, comm, backend) as stage,
        library_engines(experiment.libraries, stage, timed) as (libraries, absent),
    ):
        host = HostEngine(stage)
        tested: list[Engine] = [*_compile_engines(experiment, stage, DELAY_CLOCKS), *libraries]
        tested += [host] if experiment.by_host else []
        verified: dict[str, Record] = {}
        with phase(f"verifying {reduction.dtype.name}", len(tested), quiet=experiment.quiet) as bar:
            for engine in tested:
                most = min(engine.largest, _most_verified(experiment, stage))
                fitting = sorted({int(min(n, most)) for n in sizes if not engine.why_not(n)})
                if fitting:
                    verified[engine.name] = verify_engine(stage, engine, fitting, numbers)
                bar.step()
        right = {name for name, record in verified.items() if record.verdict == "pass"}
        records = [r for name, r in verified.items() if timed is None or name not in right]
        if timed:
            engines: list[StreamEngine] = [*_compile_engines(experiment, stage), *libraries]
            engines = [engine for engine in engines if engine.name in right]
            steps = len(sizes) * (experiment.rounds + WARM_UP_ROUNDS)
            name = f"measuring {reduction.dtype.name}"
            with phase(name, steps, quiet=experiment.quiet) as bar:
                measured, links = measure_engines(
                    stage, timed, engines, sizes, experiment.rounds, numbers, bar
                )
            for (engine, n), batches in measured.items():
                record = with_times(replace(verified[engine.name], n=n), batches, n * size)
                if record.time_us:
                    record = replace(
                        with_bandwidth(record, links), source_sha=engine.source_sha,
                        cubin_sha=engine.binary_sha,
                    )  # fmt: skip
                records.append(record)
            for n in sizes if host.name in right else ():
                if n <= host.largest:
                    us = time_on_host(stage, partial(host.run, n, next(numbers)))
                    version = f"cudareduce {__version__}"
                    records.append(replace(verified["host"], n=n, host_us=us, version=version))
        for record in absent:
            at = sizes if experiment.timed else [max(sizes)]
            records += [replace(record, n=n) for n in at]
        for engine in libraries:
            for n, why in ((n, engine.why_not(n)) for n in sizes):
                if why:
                    skip = stage.record(engine.name, n, verdict="skip", reason=why, cause="unfit")
                    records.append(skip)
        return records, links


def _most_verified(experiment: CollectiveExperiment, stage: Stage) -> int:
    most = max(experiment.sizes)
    if stage.backend.timed():
        alone = _ALONE_BYTES // stage.reduction.dtype.size
        alone -= alone % (vector_of(stage.reduction) * stage.comm.size)  # equal slices
        most = min(most, alone)
    return most


def _compile_engines(
    experiment: CollectiveExperiment, stage: Stage, delay_clocks: int = 0
) -> list[StreamEngine]:
    kernels = dict.fromkeys((*experiment.kernels, *experiment.auto))
    compiled = dict(zip(kernels, kernel_engines(stage, list(kernels), delay_clocks), strict=True))
    engines: list[StreamEngine] = [compiled[kernel] for kernel in experiment.kernels]
    if experiment.auto:
        engines.append(AutoEngine(stage, {k.short: compiled[k] for k in experiment.auto}))
    return engines


def time_on_host(stage: Stage, call: Callable[[], None]) -> float:
    """The median time of a call in us, by the host's clock, on the slowest rank."""
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
    size = reduction.dtype.size
    kernels = (*experiment.kernels, *experiment.auto)
    edges = [n for kernel in kernels for n in edge_sizes(kernel, reduction, comm.size)]
    nbytes = max(*experiment.sizes, *edges, 1) * size
    words = -(-size // 4)
    mail = 2 * comm.size * min(nbytes, MOST_LL_BYTES) // size * words * 8
    sends_shares = any(kernel.mail == "shares" for kernel in kernels)
    slots = slots_bytes(comm.size, nbytes) if sends_shares else 0
    parts = layout(comm.size, nbytes, mail, slots, max(1, len(kernels)))
    with open_windows(comm, backend, parts) as windows:
        yield Stage(backend, comm, windows, experiment.collective, reduction)
