"""How long a collective takes: of the slowest rank, from a start that all ranks share.

A sample is, on each rank: a barrier of the GPUs, an event, the call, an event. Before it lie a new
input and an output that is cleared of the last answer, and behind it the answer is kept, so what is
timed is what is verified. Several samples are enqueued behind a gate, which every rank opens when
all have enqueued theirs: no host is waited for in between. How far the ranks' times lie apart is
the sample's skew, which is told and not hidden in the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from cudareduce.backend import Launch, Program, TimedBackend
from cudareduce.problem.operators import Reduction
from cudareduce.several.elements import Array, expected, share, stored, whole
from cudareduce.several.engines import Stage, look_for_those_who_gave_up
from cudareduce.several.windows import Windows

#: A ready launch of the call of that number.
Enqueue = Callable[[int], Launch]
#: Why what the last sample has left on this rank is wrong; None if it is right.
Judge = Callable[[], str | None]

#: Samples behind one gate, and calls back to back: a stream takes about a hundred launches before
#: whoever enqueues must wait.
SAMPLES, IN_A_LOOP = 8, 16
#: Inputs that take turns, so that an answer of the call before is not the answer of this one.
_TURNS = 2
#: Elements after which an input repeats itself: a prime, so no share begins where it does.
_PERIOD = 1_048_583
#: Answers are kept of all samples where they fit into this, in bytes, else of the last one alone.
_KEPT_BYTES = 2**26
#: A sample whose ranks lie further apart than this, in us, and than this share of its time is no
#: measurement of the engine.
_SKEW_US, _SKEW = 2.0, 0.1


@dataclass(frozen=True, slots=True)
class Entrant:
    """What is timed: calls, and where their arrays lie. What is no collective, and so waits for
    nobody, has a judge of its own."""

    enqueue: Enqueue
    windows: Windows
    judge: Judge | None = None


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


class Stopwatch:
    """Times calls on arrays of one size. All ranks use it together; it raises RankLost, OutOfMemory
    and KernelFault."""

    def __init__(self, stage: Stage, backend: TimedBackend, align: Program, n: int) -> None:
        self._stage, self._backend, self._align, self._n = stage, backend, align, n
        reduction, ranks, rank = stage.reduction, stage.meeting.size, stage.meeting.rank
        turns = [[_values(reduction, each, turn, n) for each in range(ranks)]
                 for turn in range(_TURNS)]  # fmt: skip
        self._mine = share(stage.collective, reduction, rank, ranks, n)
        self._right = [_tiled(reduction, expected(reduction, values), n)[self._mine]
                       for values in turns]  # fmt: skip
        self._given = [backend.upload(_tiled(reduction, values[rank], n)) for values in turns]
        self._nbytes = n * reduction.dtype.size
        kept = SAMPLES if SAMPLES * self._nbytes <= _KEPT_BYTES else 1
        self._kept = [backend.allocate(self._nbytes) for _ in range(kept)]
        self._gate = backend.gate()

    def close(self) -> None:
        """Give memory back."""
        self._backend.free(*self._given, *self._kept)

    def batch(self, entrant: Entrant, calls: Iterator[int]) -> Batch:
        """Some samples, and a loop."""
        marks, host_us = self._samples(entrant, calls)
        own = [self._backend.elapsed_us(start, end) for start, end in marks]
        every = self._stage.meeting.everybody([own, (entrant.judge or self._wrong)()])
        by_sample = list(zip(*(times for times, _ in every), strict=True))
        loop = self._loop_us([entrant.enqueue(next(calls)) for _ in range(IN_A_LOOP)], calls)
        return Batch(
            times_us=tuple(map(max, by_sample)),
            skews_us=tuple(max(times) - min(times) for times in by_sample),
            loop_us=loop,
            host_us=host_us,
            wrong=next((why for _, why in every if why), None),
        )

    def arrived(self, sender: int, count: int) -> str | None:
        """Why this rank's output does not begin with so many elements of what another had put in
        at the last sample; None if it does."""
        values = _values(self._stage.reduction, sender, (SAMPLES - 1) % _TURNS, self._n)
        return missing(self._stage, sender, _tiled(self._stage.reduction, values, count))

    def _samples(
        self, entrant: Entrant, calls: Iterator[int]
    ) -> tuple[list[tuple[Any, Any]], float]:
        """The events of samples that have taken place, and the host's us for a call."""
        backend, windows = self._backend, entrant.windows
        launches = [entrant.enqueue(next(calls)) for _ in range(SAMPLES)]
        given = windows.part(windows.layout.input, self._nbytes)
        answer = windows.part(windows.layout.output, self._nbytes)
        marks, spent = [], 0.0
        with self._held():
            for k, launch in enumerate(launches):
                backend.overwrite(given, 0, self._given[k % _TURNS])
                backend.poison(answer)
                start = self._start(next(calls))
                began = backend.host_us()
                launch()
                spent += backend.host_us() - began
                marks.append((start, backend.mark()))
                if entrant.judge:  # nobody changes what another one still moves
                    self._align_all(next(calls))
                if k >= SAMPLES - len(self._kept):
                    backend.overwrite(self._kept[k - SAMPLES], 0, answer)
        return marks, spent / SAMPLES

    def _loop_us(self, launches: Sequence[Launch], calls: Iterator[int]) -> float:
        """What a call takes of several back to back, of the slowest rank: as nccl-tests has it."""
        with self._held():
            start = self._start(next(calls))
            for launch in launches:
                launch()
            end = self._backend.mark()
        own = self._backend.elapsed_us(start, end)
        return float(max(self._stage.meeting.everybody(own))) / len(launches)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """What is enqueued here waits until all ranks have enqueued theirs; then it takes place."""
        self._gate.close()
        try:
            yield
            self._stage.meeting.barrier()
        finally:
            self._gate.open()
        self._backend.synchronize()
        look_for_those_who_gave_up(self._stage)

    def _start(self, number: int) -> Any:
        """An event that all ranks reach at one time."""
        self._align_all(number)
        return self._backend.mark()

    def _align_all(self, number: int) -> None:
        """Let this stream wait for those of all ranks."""
        places = [self._stage.windows.layout.start, number]
        self._backend.launcher(self._align, 1, 32, places)()

    def _wrong(self) -> str | None:
        """Why a kept answer is wrong, if one is."""
        dtype, mine = self._stage.reduction.dtype, self._mine
        for k, kept in enumerate(self._kept, SAMPLES - len(self._kept)):
            got = self._backend.download(kept, dtype.storage, self._n)[mine]
            off = np.flatnonzero(got != self._right[k % _TURNS])
            if len(off):
                return (
                    f"rank {self._stage.meeting.rank}, n = {self._n}, sample {k + 1}: element "
                    f"{mine.start + off[0]} is wrong, and {len(off) - 1} more"
                )
        return None


def missing(stage: Stage, sender: int, values: Array) -> str | None:
    """Why this rank's output does not begin with what another has put in; None if it does."""
    windows, dtype, count = stage.windows, stage.reduction.dtype, len(values)
    answer = windows.part(windows.layout.output, values.nbytes)
    off = np.flatnonzero(stage.backend.download(answer, dtype.storage, count) != values)
    if not len(off):
        return None
    return (
        f"rank {windows.rank}: of {count} elements of rank {sender} element {off[0]} has not "
        f"arrived, and {len(off) - 1} more"
    )


def _values(reduction: Reduction, rank: int, turn: int, n: int) -> Array:
    """The elements of a rank in a turn, until they repeat themselves."""
    return whole(reduction, rank, turn, min(n, _PERIOD))


def _tiled(reduction: Reduction, values: Array, n: int) -> Array:
    """So many stored elements of what repeats itself."""
    return np.resize(stored(values, reduction.dtype), n)
