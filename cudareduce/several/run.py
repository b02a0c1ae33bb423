"""From findings and samples to records.

One collective and reduction on the ranks' devices: every engine verified, then timed."""

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
    Auto,
    Code,
    Engine,
    Host,
    Peer,
    Stage,
    StreamEngine,
    peer_engines,
)
from cudareduce.several.kernels import MOST_MAIL, Exchange, boxes_bytes, edges, vector_of
from cudareduce.several.libraries import Skip, Wanted, library_engines
from cudareduce.several.timing import UNCOUNTED, Batch, Links, Measured, measure
from cudareduce.several.verification import REPEATS, STUMBLE, Finding, examine
from cudareduce.several.windows import Allocate, device_windows, layout, mapped_windows

#: busbw over algbw among n ranks: what each link carries of the array, one way. Source: nccl-tests,
#: doc/PERFORMANCE.md.
_WIRE: dict[Collective, Callable[[int], float]] = {
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "reduce-scatter": lambda n: (n - 1) / n,
    "reduce": lambda n: 1.0,
}
_UNKNOWN = Code()


@dataclass(frozen=True, slots=True)
class Recorder:
    """What records of one collective and reduction have in common."""

    collective: Collective
    reduction: Reduction
    ranks: int
    backend: BackendName

    def verified(self, finding: Finding) -> Record:
        """A record of an engine that was not timed."""
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
        """A record of an engine that was not tried at a size."""
        finding = Finding(skip.engine, n, None, None, None, 0)
        return replace(
            self.verified(finding), verdict="skip", reason=skip.reason, cause=skip.cause,
            tried_launches=None,
        )  # fmt: skip

    def timed(
        self, finding: Finding, measured: Measured, links: Links, code: Code = _UNKNOWN
    ) -> Record:
        """A record of an engine at a size, with what was measured of that code; without, if that
        was wrong or its ranks were apart in every sample."""
        plain = replace(self.verified(finding), n=measured.n)
        if finding.wrong:
            return plain
        nbytes = measured.n * self.reduction.dtype.size
        record = taken(plain, measured.batches, nbytes)
        if record.gb_s is None:
            return record
        busbw = record.gb_s * _WIRE[self.collective](self.ranks)
        return replace(
            record, algbw_gb_s=record.gb_s, busbw_gb_s=busbw,
            pct_link=links.write_gb_s and 100 * busbw / links.write_gb_s,
            source_sha=code.source_sha, cubin_sha=code.cubin_sha,
        )  # fmt: skip

    def on_host(self, finding: Finding, n: int, host_us: float) -> Record:
        """A record of an engine that takes place on the host, by whose clock alone it is timed."""
        return replace(
            self.verified(finding), n=n, host_us=host_us, version=f"cudareduce {__version__}"
        )


def taken(plain: Record, batches: Sequence[Batch], nbytes: int) -> Record:
    """A record with what was measured of calls on so many bytes; without, if an answer was wrong or
    the ranks were apart in every sample."""
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


def notes_of(links: Links) -> tuple[str, ...]:
    """What is said of the links below a table."""
    if links.write_gb_s is None or links.read_gb_s is None:
        return ()
    return (
        f"%link: of {links.write_gb_s:.0f} GB/s, which writes reached both ways at once in the "
        f"same rounds; reads {links.read_gb_s:.0f}",
    )


#: Bytes of arrays that are verified by themselves at most, where timed calls verify the others; and
#: of those that the host is tried and timed with.
_ALONE_BYTES, _HOST_BYTES = 2**24, 2**22
_HOST_CALLS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What is tried: a collective by some kernels, by what picks one of those in `auto`, by
    libraries, and by the host, on arrays of `sizes` elements; in `rounds` rounds if it is
    `timed`."""

    collective: Collective
    kernels: tuple[Exchange, ...]
    auto: tuple[Exchange, ...] = ()
    libraries: tuple[Wanted, ...] = ()
    by_host: bool
    sizes: tuple[int, ...]
    timed: bool
    rounds: int


def steps_of(trial: Trial) -> int:
    """How often the trial of one reduction tells of its progress."""
    return len(trial.sizes) * (trial.rounds + UNCOUNTED) if trial.timed else 1


def tried(
    trial: Trial, reduction: Reduction, comm: Communicator, backend: Backend,
    progress: Callable[[], None], allocate: Allocate = IpcMemory,
) -> tuple[list[Record], Links]:  # fmt: skip
    """Records of all engines, the same on all ranks, and what the links carried. Raises RankLost,
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
            return [*(recorder.verified(finding) for finding, _ in findings), *skips], Links()
        right = {finding.engine: finding for finding, _ in findings if not finding.wrong}
        ours = _ours(trial, stage)
        engines: list[StreamEngine] = [*ours, *libraries]
        engines = [engine for engine in engines if engine.name in right]
        most_mail = MOST_MAIL // reduction.dtype.size
        measured, links = measure(
            stage, timed, engines, trial.sizes, most_mail, trial.rounds, calls, progress
        )
        records = [recorder.verified(f) for f, _ in findings if f.wrong]
        codes = {engine.name: engine.code for engine in ours}
        records += [recorder.timed(right[m.engine], m, links, codes.get(m.engine, Code()))
                    for m in measured]  # fmt: skip
        hosts = [(f, e) for f, e in findings if isinstance(e, Host) and not f.wrong]
        for n in trial.sizes:
            if n * reduction.dtype.size <= _HOST_BYTES:
                times = [by_host_clock(stage, partial(_call, e, n, calls)) for _, e in hosts]
                records += [recorder.on_host(f, n, us)
                            for (f, _), us in zip(hosts, times, strict=True)]  # fmt: skip
        return [*records, *skips], links


def _findings(
    trial: Trial, stage: Stage, libraries: Sequence[Engine], calls: Iterator[int]
) -> Iterator[tuple[Finding, Engine]]:
    """What came of each engine that takes one of the sizes, one after the other, in builds that
    stumble."""
    size = stage.reduction.dtype.size
    engines: list[Engine] = [*_ours(trial, stage, STUMBLE), *libraries]
    alone = _ALONE_BYTES // size
    alone -= alone % (vector_of(stage.reduction) * stage.comm.size)  # equal shares
    for engine in [*engines, *([Host(stage)] if trial.by_host else [])]:
        most = MOST_MAIL // size if engine.mail else max(trial.sizes)
        most = min(most, _HOST_BYTES // size) if isinstance(engine, Host) else most
        most = min(most, alone) if stage.backend.timed() else most
        asked = sorted({min(n, most) for n in trial.sizes if not engine.why_not(n)})
        if asked:
            more = engine.edges if isinstance(engine, Peer) else {}
            yield examine(stage, engine, asked, calls, more), engine


def _ours(trial: Trial, stage: Stage, stumble: int = 0) -> list[Peer | Auto]:
    """Kernels of ours, and what picks among them. Raises BuildError."""
    more = [kernel for kernel in trial.auto if kernel not in trial.kernels]
    peers = peer_engines(stage, [*trial.kernels, *more], stumble)
    named: list[Peer | Auto] = [*peers[: len(trial.kernels)]]
    if not trial.auto:
        return named
    names = {f"peer:{kernel.short}": kernel.short for kernel in trial.auto}
    return [*named, Auto(stage, {names[p.name]: p for p in peers if p.name in names})]


def _skips(
    trial: Trial, libraries: Sequence[Engine], absent: Sequence[Skip]
) -> Iterator[tuple[Skip, int]]:
    """Libraries that are not tried, wherever the others are timed, and sizes that some do not
    take."""
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


def by_host_clock(stage: Stage, call: Callable[[], None]) -> float:
    """The us that a call takes whoever makes it, by the host's clock, of the slowest rank."""
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
    """Windows for the largest arrays."""
    size = reduction.dtype.size
    kernels = (*trial.kernels, *trial.auto)
    more = [n for kernel in kernels for n in edges(kernel, reduction, comm.size)]
    nbytes = max(*trial.sizes, *more, 1) * size
    words = -(-size // 4)
    mail = 2 * comm.size * min(nbytes, MOST_MAIL) // size * words * 8
    shares = any(kernel.mail == "shares" for kernel in kernels)
    boxes = boxes_bytes(comm.size, nbytes) if shares else 0
    parts = layout(comm.size, nbytes, mail, boxes, max(1, len(kernels)))
    made = (
        device_windows(comm, parts, allocate) if backend.timed()
        else mapped_windows(comm, parts)
    )  # fmt: skip
    with made as windows:
        yield Stage(backend, comm, windows, trial.collective, reduction)
