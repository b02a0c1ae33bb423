"""One collective and reduction on the ranks' devices: every engine verified, then timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from statistics import median

from cudareduce.backend import Backend, TimedBackend
from cudareduce.gpu.peer_memory import IpcMemory
from cudareduce.problem.operators import Reduction
from cudareduce.results.record import Record
from cudareduce.several.choice import Auto
from cudareduce.several.collectives import Collective
from cudareduce.several.engines import Engine, Host, Stage, StreamEngine, peer_engines
from cudareduce.several.examine import STUMBLE, Finding, examine
from cudareduce.several.exchange import MOST_MAIL, Exchange
from cudareduce.several.measure import UNCOUNTED, Links, measure
from cudareduce.several.meeting import Meeting
from cudareduce.several.records import Recorder
from cudareduce.several.windows import Allocate, device_windows, layout, mapped_windows

#: Bytes of arrays that are verified by themselves at most, where timed calls verify the others; and
#: of those that the host is timed with.
_ALONE_BYTES, _HOST_BYTES = 2**24, 2**22
_HOST_CALLS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What is tried: a collective by some kernels, by what picks one of those in `auto`, and by the
    host, on arrays of `sizes` elements; in `rounds` rounds if it is `timed`."""

    collective: Collective
    kernels: tuple[Exchange, ...]
    auto: tuple[Exchange, ...] = ()
    by_host: bool
    sizes: tuple[int, ...]
    timed: bool
    rounds: int


def steps_of(trial: Trial) -> int:
    """How often the trial of one reduction tells of its progress."""
    return len(trial.sizes) * (trial.rounds + UNCOUNTED) if trial.timed else 1


def tried(
    trial: Trial, reduction: Reduction, meeting: Meeting, backend: Backend,
    progress: Callable[[], None], allocate: Allocate = IpcMemory,
) -> tuple[list[Record], Links]:  # fmt: skip
    """Records of all engines, the same on all ranks, and what the links carried. Raises RankLost,
    BuildError, OutOfMemory, KernelFault and EnvironmentProblem."""
    recorder = Recorder(trial.collective, reduction, meeting.size, backend.name)
    calls = count(1)
    with _stage(trial, reduction, meeting, backend, allocate) as stage:
        timed = backend.timed() if trial.timed else None
        findings = list(_findings(trial, stage, calls))
        if timed is None:
            progress()
            return [recorder.verified(finding) for finding, _ in findings], Links()
        right = {finding.engine: finding for finding, _ in findings if not finding.wrong}
        engines = [e for e in _ours(trial, stage) if e.name in right]
        most_mail = MOST_MAIL // reduction.dtype.size
        measured, links = measure(
            stage, timed, engines, trial.sizes, most_mail, trial.rounds, calls, progress
        )
        records = [recorder.verified(f) for f, _ in findings if f.wrong]
        records += [recorder.timed(right[m.engine], m, links) for m in measured]
        hosts = [(f, e) for f, e in findings if isinstance(e, Host) and not f.wrong]
        for n in trial.sizes:
            if n * reduction.dtype.size <= _HOST_BYTES:
                records += [recorder.on_host(f, n, _host_us(stage, timed, e, n, calls))
                            for f, e in hosts]  # fmt: skip
        return records, links


def _findings(trial: Trial, stage: Stage, calls: Iterator[int]) -> Iterator[tuple[Finding, Engine]]:
    """What came of each engine, one after the other, in builds that stumble."""
    size = stage.reduction.dtype.size
    engines: list[Engine] = [*_ours(trial, stage, STUMBLE)]
    for engine in [*engines, *([Host(stage)] if trial.by_host else [])]:
        most = MOST_MAIL // size if engine.mail else max(trial.sizes)
        most = min(most, _ALONE_BYTES // size) if stage.backend.timed() else most
        yield examine(stage, engine, sorted({min(n, most) for n in trial.sizes}), calls), engine


def _ours(trial: Trial, stage: Stage, stumble: int = 0) -> list[StreamEngine]:
    """Kernels of ours, and what picks among them. Raises BuildError."""
    more = [kernel for kernel in trial.auto if kernel not in trial.kernels]
    peers = peer_engines(stage, [*trial.kernels, *more], stumble)
    named: list[StreamEngine] = [*peers[: len(trial.kernels)]]
    if not trial.auto:
        return named
    names = {f"peer:{kernel.short}": kernel.short for kernel in trial.auto}
    return [*named, Auto(stage, {names[p.name]: p for p in peers if p.name in names})]


def _host_us(
    stage: Stage, backend: TimedBackend, engine: Engine, n: int, calls: Iterator[int]
) -> float:
    """What a call takes whoever makes it, by the host's clock, of the slowest rank."""
    took = []
    for _ in range(_HOST_CALLS):
        stage.meeting.barrier()
        began = time.perf_counter()
        engine.run(n, next(calls), 0)
        backend.synchronize()
        took.append(max(stage.meeting.everybody(time.perf_counter() - began)))
    return float(median(took)) * 1e6


@contextmanager
def _stage(
    trial: Trial, reduction: Reduction, meeting: Meeting, backend: Backend, allocate: Allocate
) -> Iterator[Stage]:
    """Windows for the largest arrays."""
    size = reduction.dtype.size
    nbytes = max(trial.sizes) * size
    words = -(-size // 4)
    mail = 2 * meeting.size * min(nbytes, MOST_MAIL) // size * words * 8
    parts = layout(meeting.size, nbytes, mail)
    made = (
        device_windows(meeting, parts, allocate) if backend.timed()
        else mapped_windows(meeting, parts)
    )  # fmt: skip
    with made as windows:
        yield Stage(backend, meeting, windows, trial.collective, reduction)
