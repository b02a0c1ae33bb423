"""One collective and reduction on the ranks' devices: every engine verified, then timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from statistics import median

from cudareduce.backend import Backend
from cudareduce.gpu.peer_memory import IpcMemory
from cudareduce.problem.operators import Reduction
from cudareduce.results.record import Record
from cudareduce.several.choice import Auto
from cudareduce.several.collectives import Collective
from cudareduce.several.communicator import Communicator
from cudareduce.several.engines import Code, Engine, Host, Peer, Stage, StreamEngine, peer_engines
from cudareduce.several.examine import STUMBLE, Finding, examine
from cudareduce.several.exchange import MOST_MAIL, Exchange, boxes_bytes, edges, vector_of
from cudareduce.several.libraries.engines import Skip, Wanted, library_engines
from cudareduce.several.measure import UNCOUNTED, Links, measure
from cudareduce.several.records import Recorder
from cudareduce.several.windows import Allocate, device_windows, layout, mapped_windows

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
