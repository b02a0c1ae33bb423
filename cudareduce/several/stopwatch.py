"""How long a collective takes: of the slowest rank, from a start that all ranks share.

A sample is, on each rank: a barrier of the GPUs, an event, the call, an event. Before it lies what
prepares it, and behind it its answer is kept, so what is timed is what is verified. Several samples
are enqueued behind a gate, which every rank opens when all have enqueued theirs: no host is waited
for in between. How far the ranks' times lie apart is the sample's skew, which is told and not
hidden in the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from cudareduce.backend import Launch, Program, TimedBackend
from cudareduce.several.communicator import watchdog
from cudareduce.several.engines import Stage, look_for_those_who_gave_up

#: Says why what a sample has left is wrong; None if it is right.
Judge = Callable[[], str | None]
#: A ready launch of the call of that number.
Enqueue = Callable[[int], Launch]

#: Samples behind one gate, and short calls back to back: a stream takes about a hundred launches
#: before whoever enqueues must wait.
SAMPLES, IN_A_LOOP = 8, 64
#: Calls that are not counted, in front of the samples: what a library has not touched for half a
#: second or so costs its first four calls up to 206 us each (NCCL behind a kernel, two H100), and
#: others take their turns for longer than that.
_UNCOUNTED = 8
#: Of calls that take longer, in us, a quarter as many: before its first call a loop takes some 5 us
#: (two H100), which is to be a hundredth of it.
_LONG_US = 100.0
#: A sample whose ranks lie further apart than this, in us, and than this share of its time is no
#: measurement of the engine. On two H100 ranks are 0.2 to 1 us apart, 15 of 570 with NCCL, and one
#: that is late by 20 us between their common start and the first event 21.
_SKEW_US, _SKEW = 4.0, 0.1


@dataclass(frozen=True, slots=True)
class Batch:
    """The samples of one engine in one round, in us: of the slowest rank, how far behind the
    quickest it was, a call among several back to back, and the host's part of a call. `wrong` says
    why an answer was."""

    times_us: tuple[float, ...]
    skews_us: tuple[float, ...]
    loop_us: float
    host_us: float
    wrong: str | None

    @property
    def sound_us(self) -> list[float]:
        """The times of samples whose ranks were together."""
        pairs = zip(self.times_us, self.skews_us, strict=True)
        return [us for us, skew in pairs if skew <= max(_SKEW_US, _SKEW * us)]

    @property
    def median_us(self) -> float | None:
        """None where the ranks were apart in every sample."""
        return median(self.sound_us) if self.sound_us else None


class Subject(Protocol):
    """What is timed: its input before each sample, and what becomes of its answer."""

    def prepare(self, k: int) -> None:
        """Enqueue what comes before sample `k`."""

    def keep(self, k: int) -> None:
        """Enqueue what comes behind it."""

    def wrong(self) -> str | None:
        """Why an answer that was kept is wrong, if one is."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """One that is timed, on a subject. What is no collective has a `judge` of its own, who looks in
    place of the subject; no rank waits for another in it, and so all meet once more behind it."""

    enqueue: Enqueue
    subject: Subject
    judge: Judge | None = None


class Stopwatch:
    """Times calls. All ranks use it together; it raises RankLost and KernelFault."""

    def __init__(self, stage: Stage, backend: TimedBackend, align: Program) -> None:
        self._stage, self._backend, self._align = stage, backend, align
        self._gate = backend.gate()

    def batch(self, entrant: Entrant, calls: Iterator[int]) -> Batch:
        """Some samples, and a loop."""
        for _ in range(_UNCOUNTED):
            entrant.enqueue(next(calls))()
        marks, host_us = self._samples(entrant, calls)
        own = [self._backend.elapsed_us(start, end) for start, end in marks]
        every = self._stage.comm.all_gather([own, (entrant.judge or entrant.subject.wrong)()])
        by_sample = list(zip(*(times for times, _ in every), strict=True))
        longest = tuple(map(max, by_sample))
        many = IN_A_LOOP if median(longest) < _LONG_US else IN_A_LOOP // 4
        loop = self._loop_us([entrant.enqueue(next(calls)) for _ in range(many)], calls)
        return Batch(
            times_us=longest,
            skews_us=tuple(max(times) - min(times) for times in by_sample),
            loop_us=loop,
            host_us=host_us,
            wrong=next((why for _, why in every if why), None),
        )

    def _samples(
        self, entrant: Entrant, calls: Iterator[int]
    ) -> tuple[list[tuple[Any, Any]], float]:
        """The events of samples that have taken place, and the host's us for a call."""
        launches = [entrant.enqueue(next(calls)) for _ in range(SAMPLES)]
        marks, spent = [], 0.0
        with self._held():
            for k, launch in enumerate(launches):
                entrant.subject.prepare(k)
                start = self._start(next(calls))
                began = self._backend.host_us()
                launch()
                spent += self._backend.host_us() - began
                marks.append((start, self._backend.mark()))
                if entrant.judge:  # nobody changes what another one still moves
                    self._align_all(next(calls))
                entrant.subject.keep(k)
        return marks, spent / SAMPLES

    def _loop_us(self, launches: Sequence[Launch], calls: Iterator[int]) -> float:
        """What a call takes of several back to back, of the slowest rank: as nccl-tests has it."""
        with self._held():
            start = self._start(next(calls))
            for launch in launches:
                launch()
            end = self._backend.mark()
        own = self._backend.elapsed_us(start, end)
        return float(max(self._stage.comm.all_gather(own))) / len(launches)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """What is enqueued here waits until all ranks have enqueued theirs; then it takes place."""
        self._gate.close()
        try:
            with watchdog("what is enqueued to be timed"):  # a library may wait for the gate
                yield
                self._stage.comm.barrier()
        finally:
            self._gate.open()
        with watchdog("what is timed"):
            self._backend.synchronize()
        look_for_those_who_gave_up(self._stage)

    def _start(self, number: int) -> Any:
        """An event that all ranks reach at one time."""
        self._align_all(number)
        return self._backend.mark()

    def _align_all(self, number: int) -> None:
        """Let this stream wait for those of all ranks."""
        windows = self._stage.windows
        places = [windows.layout.start, number]
        self._backend.launcher(self._align, 1, 32, [windows.words(), *places])()
