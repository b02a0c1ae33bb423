"""Run one collective: verify every engine, time the correct ones, make records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from statistics import median

from cudareduce import __version__
from cudareduce.backend import Backend, BackendName
from cudareduce.gpu.peer_memory import IpcMemory
from cudareduce.intervals import interval, known, noise_pct
from cudareduce.problem.operators import Reduction
from cudareduce.results.record import Record
from cudareduce.several.collectives import Collective
from cudareduce.several.communicator import Communicator
from cudareduce.several.engines import (
    AutoEngine,
    Code,
    Engine,
    HostEngine,
    KernelEngine,
    Stage,
    StreamEngine,
    kernel_engines,
)
from cudareduce.several.kernels import MOST_MAIL, ExchangeKernel, edge_sizes, slots_bytes, vector_of
from cudareduce.several.libraries import Skip, Wanted, library_engines
from cudareduce.several.timing import UNCOUNTED, Batch, LinkRates, Measured, measure_engines
from cudareduce.several.verification import REPEATS, STUMBLE, Finding, verify_engine
from cudareduce.several.windows import Allocate, device_windows, layout, mapped_windows

#: busbw over algbw among n ranks. Source: nccl-tests, doc/PERFORMANCE.md.
_WIRE: dict[Collective, Callable[[int], float]] = {
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "reduce-scatter": lambda n: (n - 1) / n,
    "reduce": lambda n: 1.0,
}
_UNKNOWN = Code()


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
        finding = Finding(skip.engine, n, None, None, None, 0)
        return replace(
            self.verified(finding), verdict="skip", reason=skip.reason, cause=skip.cause,
            tried_launches=None,
        )  # fmt: skip

    def timed(
        self, finding: Finding, measured: Measured, links: LinkRates, code: Code = _UNKNOWN
    ) -> Record:
        """The record of a timed engine; without a time if it was wrong, or ranks were apart in all
        samples."""
        plain = replace(self.verified(finding), n=measured.n)
        if finding.wrong:
            return plain
        nbytes = measured.n * self.reduction.dtype.size
        record = with_times(plain, measured.batches, nbytes)
        if record.gb_s is None:
            return record
        busbw = record.gb_s * _WIRE[self.collective](self.ranks)
        return replace(
            record, algbw_gb_s=record.gb_s, busbw_gb_s=busbw,
            pct_link=links.write_gb_s and 100 * busbw / links.write_gb_s,
            source_sha=code.source_sha, cubin_sha=code.cubin_sha,
        )  # fmt: skip

    def on_host(self, finding: Finding, n: int, host_us: float) -> Record:
        """The record of the host engine, timed by the host's clock."""
        return replace(
            self.verified(finding), n=n, host_us=host_us, version=f"cudareduce {__version__}"
        )


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
        bytes=nbytes, gb_s=_gb_s(nbytes, us), gb_s_low=high and _gb_s(nbytes, high),
        gb_s_high=low and _gb_s(nbytes, low),
        skew_us=median(skew for batch in batches for skew in batch.skews_us),
        loop_us=median(batch.loop_us for batch in batches),
    )  # fmt: skip


def _gb_s(nbytes: int, us: float) -> float:
    return nbytes / us / 1e3


def link_notes(links: LinkRates) -> tuple[str, ...]:
    """The note on link bandwidth below a table."""
    if links.write_gb_s is None or links.read_gb_s is None:
        return ()
    return (
        f"%link: of {links.write_gb_s:.0f} GB/s, which writes reached both ways at once in the "
        f"same rounds; reads {links.read_gb_s:.0f}",
    )


#: The largest arrays in bytes that are verified before timing (timed calls verify larger ones), and
#: that the host engine takes.
_ALONE_BYTES, _HOST_BYTES = 2**24, 2**22
_HOST_CALLS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
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


def progress_steps(trial: Trial) -> int:
    """How often `run_trial` calls `progress`."""
    return len(trial.sizes) * (trial.rounds + UNCOUNTED) if trial.timed else 1


def run_trial(
    trial: Trial, reduction: Reduction, comm: Communicator, backend: Backend,
    progress: Callable[[], None], allocate: Allocate = IpcMemory,
) -> tuple[list[Record], LinkRates]:  # fmt: skip
    """The records of all engines, the same on all ranks, and the link bandwidth. Raises RankLost,
    BuildError, OutOfMemory, KernelFault and EnvironmentProblem."""
    recorder = Recorder(trial.collective, reduction, comm.size, backend.name)
    calls = count(1)
    timed = backend.timed() if trial.timed else None
    with (
        _stage(trial, reduction, comm, backend, allocate) as stage,
        library_engines(trial.libraries, stage, timed) as (libraries, absent),
    ):
        findings = list(_findings(trial, stage, libraries, calls))
        skips = [recorder.skipped(*skip) for skip in _skips(trial, libraries, absent)]
        if timed is None:
            progress()
            return [*(recorder.verified(finding) for finding, _ in findings), *skips], LinkRates()
        right = {finding.engine: finding for finding, _ in findings if not finding.wrong}
        ours = _ours(trial, stage)
        engines: list[StreamEngine] = [*ours, *libraries]
        engines = [engine for engine in engines if engine.name in right]
        most_mail = MOST_MAIL // reduction.dtype.size
        measured, links = measure_engines(
            stage, timed, engines, trial.sizes, most_mail, trial.rounds, calls, progress
        )
        records = [recorder.verified(f) for f, _ in findings if f.wrong]
        codes = {engine.name: engine.code for engine in ours}
        records += [recorder.timed(right[m.engine], m, links, codes.get(m.engine, Code()))
                    for m in measured]  # fmt: skip
        hosts = [(f, e) for f, e in findings if isinstance(e, HostEngine) and not f.wrong]
        for n in trial.sizes:
            if n * reduction.dtype.size <= _HOST_BYTES:
                times = [host_clock_us(stage, partial(_call, e, n, calls)) for _, e in hosts]
                records += [recorder.on_host(f, n, us)
                            for (f, _), us in zip(hosts, times, strict=True)]  # fmt: skip
        return [*records, *skips], links


def _findings(
    trial: Trial, stage: Stage, libraries: Sequence[Engine], calls: Iterator[int]
) -> Iterator[tuple[Finding, Engine]]:
    """Verify each engine that supports one of the sizes, in builds that stumble."""
    size = stage.reduction.dtype.size
    engines: list[Engine] = [*_ours(trial, stage, STUMBLE), *libraries]
    alone = _ALONE_BYTES // size
    alone -= alone % (vector_of(stage.reduction) * stage.comm.size)  # equal shares
    for engine in [*engines, *([HostEngine(stage)] if trial.by_host else [])]:
        most = MOST_MAIL // size if engine.mail else max(trial.sizes)
        most = min(most, _HOST_BYTES // size) if isinstance(engine, HostEngine) else most
        most = min(most, alone) if stage.backend.timed() else most
        asked = sorted({min(n, most) for n in trial.sizes if not engine.why_not(n)})
        if asked:
            more = engine.edges if isinstance(engine, KernelEngine) else {}
            yield verify_engine(stage, engine, asked, calls, more), engine


def _ours(trial: Trial, stage: Stage, stumble: int = 0) -> list[KernelEngine | AutoEngine]:
    """Our kernels, and `peer:auto`. Raises BuildError."""
    more = [kernel for kernel in trial.auto if kernel not in trial.kernels]
    peers = kernel_engines(stage, [*trial.kernels, *more], stumble)
    named: list[KernelEngine | AutoEngine] = [*peers[: len(trial.kernels)]]
    if not trial.auto:
        return named
    names = {f"peer:{kernel.short}": kernel.short for kernel in trial.auto}
    return [*named, AutoEngine(stage, {names[p.name]: p for p in peers if p.name in names})]


def _skips(
    trial: Trial, libraries: Sequence[Engine], absent: Sequence[Skip]
) -> Iterator[tuple[Skip, int]]:
    """The skipped libraries, and the sizes that a library does not support."""
    for skip in absent:
        for n in trial.sizes if trial.timed else [max(trial.sizes)]:
            yield skip, n
    for engine in libraries:
        for n in trial.sizes:
            why = engine.why_not(n)
            if why:
                yield Skip(engine.name, why, "unfit"), n


def _call(engine: Engine, n: int, calls: Iterator[int]) -> None:
    engine.run(n, next(calls), 0)


def host_clock_us(stage: Stage, call: Callable[[], None]) -> float:
    """The median time of a call by the host's clock, of the slowest rank."""
    took = []
    for _ in range(_HOST_CALLS):
        stage.comm.barrier()
        began = time.perf_counter()
        call()
        stage.backend.synchronize()
        took.append(max(stage.comm.all_gather(time.perf_counter() - began)))
    return float(median(took)) * 1e6


@contextmanager
def _stage(
    trial: Trial, reduction: Reduction, comm: Communicator, backend: Backend, allocate: Allocate
) -> Iterator[Stage]:
    """The stage, with windows for the largest arrays."""
    size = reduction.dtype.size
    kernels = (*trial.kernels, *trial.auto)
    more = [n for kernel in kernels for n in edge_sizes(kernel, reduction, comm.size)]
    nbytes = max(*trial.sizes, *more, 1) * size
    words = -(-size // 4)
    mail = 2 * comm.size * min(nbytes, MOST_MAIL) // size * words * 8
    shares = any(kernel.mail == "shares" for kernel in kernels)
    boxes = slots_bytes(comm.size, nbytes) if shares else 0
    parts = layout(comm.size, nbytes, mail, boxes, max(1, len(kernels)))
    made = (
        device_windows(comm, parts, allocate) if backend.timed()
        else mapped_windows(comm, parts)
    )  # fmt: skip
    with made as windows:
        yield Stage(backend, comm, windows, trial.collective, reduction)
