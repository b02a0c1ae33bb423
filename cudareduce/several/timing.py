"""Time collectives: the slowest rank, from a start that all ranks share.

A sample is, on each rank: a barrier of the GPUs, an event, the call, an event. The input is
prepared before it and the result checked after it, so what is timed is what is verified. Samples
are enqueued behind a gate, which each rank opens when all have enqueued theirs, so no host is
waited for in between. The skew of a sample, how far its ranks' times lie apart, is reported and not
hidden in the time.

Engines take turns in each round. Link bandwidth is measured in the rounds of the largest size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any, Protocol

import numpy as np

from cudareduce.backend import Launch, Program, TimedBackend
from cudareduce.problem.operators import Reduction
from cudareduce.several.communicator import watchdog
from cudareduce.several.engines import Stage, StreamEngine, compile_programs, raise_if_gave_up
from cudareduce.several.inputs import Array, exact_values, expected, output_slice, to_storage
from cudareduce.several.kernels import PACK_BYTES, helper_kernel
from cudareduce.several.windows import Part, Windows

#: Returns why a sample's result is wrong, or None.
Judge = Callable[[], str | None]
#: Prepares the launch of call number n.
Enqueue = Callable[[int], Launch]

#: Samples behind one gate, and calls of a loop: enqueueing blocks after about a hundred launches.
SAMPLES, IN_A_LOOP = 8, 64
#: Warm-up calls: after half a second without calls, the first four of NCCL take up to 206 us more
#: (two H100), and other engines' turns take longer than that.
_UNCOUNTED = 8
#: A loop has a quarter of the calls if one takes longer, in us: its fixed 5 us (two H100) are then
#: still below 1 %.
_LONG_US = 100.0
#: A sample is discarded if its ranks are further apart than this in us, and than this share of its
#: time. On two H100 ranks are 0.2 to 1 us apart, 15 of 570 with NCCL; a rank that is 20 us late
#: after the common start shows as 21.
_SKEW_US, _SKEW = 4.0, 0.1


@dataclass(frozen=True, slots=True)
class Batch:
    """The samples of one engine in one round, in us: times of the slowest rank, skews, the time of
    one call of several back to back, and the host's time per call. `wrong` tells why a result was.
    """

    times_us: tuple[float, ...]
    skews_us: tuple[float, ...]
    loop_us: float
    host_us: float
    wrong: str | None

    @property
    def sound_us(self) -> list[float]:
        """The times of samples whose ranks started and ended together."""
        pairs = zip(self.times_us, self.skews_us, strict=True)
        return [us for us, skew in pairs if skew <= max(_SKEW_US, _SKEW * us)]

    @property
    def median_us(self) -> float | None:
        """Their median; None if ranks were apart in all samples."""
        return median(self.sound_us) if self.sound_us else None


class Subject(Protocol):
    """Prepares the input of each sample, and checks its result."""

    def prepare(self, k: int) -> None:
        """Enqueue the preparation of sample `k`."""

    def keep(self, k: int) -> None:
        """Enqueue what keeps or checks the result of sample `k`."""

    def wrong(self) -> str | None:
        """Why a result is wrong, or None."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """A timed call and its subject. A call that is not a collective has a `judge` in place of the
    subject, and a barrier behind it, since no rank waits for another in it."""

    enqueue: Enqueue
    subject: Subject
    judge: Judge | None = None


class Stopwatch:
    """Times calls. All ranks use it together. Raises RankLost and KernelFault."""

    def __init__(self, stage: Stage, backend: TimedBackend, align: Program) -> None:
        self._stage, self._backend, self._align = stage, backend, align
        self._gate = backend.gate()

    def batch(self, entrant: Entrant, calls: Iterator[int]) -> Batch:
        """Time some samples, and a loop of calls."""
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
        """The events of the samples, and the host's us per call."""
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
                if entrant.judge:  # another rank may still read or write the arrays
                    self._align_all(next(calls))
                entrant.subject.keep(k)
        return marks, spent / SAMPLES

    def _loop_us(self, launches: Sequence[Launch], calls: Iterator[int]) -> float:
        """The time of a call among several back to back, of the slowest rank, as in nccl-tests."""
        with self._held():
            start = self._start(next(calls))
            for launch in launches:
                launch()
            end = self._backend.mark()
        own = self._backend.elapsed_us(start, end)
        return float(max(self._stage.comm.all_gather(own))) / len(launches)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Holds enqueued work until all ranks have enqueued theirs, then waits for it."""
        self._gate.close()
        try:
            with watchdog("enqueueing the timed calls"):  # a library may wait for the gate
                yield
                self._stage.comm.barrier()
        finally:
            self._gate.open()
        with watchdog("the timed calls"):
            self._backend.synchronize()
        raise_if_gave_up(self._stage)

    def _start(self, number: int) -> Any:
        """An event that all ranks reach at the same time."""
        self._align_all(number)
        return self._backend.mark()

    def _align_all(self, number: int) -> None:
        """Enqueue a barrier of all ranks' streams."""
        windows = self._stage.windows
        places = [windows.layout.start, number]
        self._backend.launcher(self._align, 1, 32, [windows.words(), *places])()


#: Threads per block of links.cu, and blocks per SM.
THREADS, _BLOCKS_PER_SM = 512, 4


def align_program(stage: Stage) -> Program:
    """Compile the barrier of all GPUs. Raises BuildError."""
    return helper_programs(stage, "align.cu", "align")[0]


def judge_program(stage: Stage) -> Program:
    """Compile the kernel that counts wrong elements. Raises BuildError."""
    return helper_programs(stage, "judge.cu", "judge")[0]


def helper_programs(stage: Stage, file: str, *entries: str) -> list[Program]:
    """Compile measuring kernels of one of our files. Raises BuildError."""
    sources = [helper_kernel(file, entry, stage.reduction, stage.comm.size) for entry in entries]
    return compile_programs(stage, sources)


def link_copies(stage: Stage, program: Program, nbytes: int) -> Enqueue:
    """Launches of a kernel of links.cu that copies `nbytes` with enough blocks to fill the GPU."""
    parts, grid = stage.windows.layout, _BLOCKS_PER_SM * stage.backend.limits().sm_count
    places = [parts.input, parts.output, -(-nbytes // PACK_BYTES)]
    launch = stage.backend.launcher(program, grid, THREADS, [stage.windows.words(), *places])
    return lambda _: launch


#: Inputs alternate, so that the previous call's result is wrong for this one.
TURNS = 2
#: The period of inputs: a prime, so that no share begins at one.
_PERIOD = 1_048_583
#: The check: bytes of its two words per sample, threads per block, and the largest grid.
_FOUND, _THREADS, _BLOCKS = 16, 512, 512


class TimedArrays:
    """The inputs of one size, which alternate, and their expected results, which `judge` compares
    on the GPU: fetching a large array would take longer than all its samples. Raises OutOfMemory.
    """

    def __init__(self, stage: Stage, backend: TimedBackend, n: int, judge: Program) -> None:
        self._stage, self._backend, self._n, self._judge = stage, backend, n, judge
        reduction, ranks, rank = stage.reduction, stage.comm.size, stage.comm.rank
        turns = [[_values(reduction, each, turn, n) for each in range(ranks)]
                 for turn in range(TURNS)]  # fmt: skip
        self._mine = output_slice(stage.collective, reduction, rank, ranks, n)
        self._right = [
            backend.upload(_tiled(reduction, expected(reduction, values), n)[self._mine])
            for values in turns
        ]
        self._given = [backend.upload(_tiled(reduction, values[rank], n)) for values in turns]
        self._nbytes = n * reduction.dtype.size
        self._found = [backend.allocate(_FOUND) for _ in range(SAMPLES)]

    def close(self) -> None:
        self._backend.free(*self._right, *self._given, *self._found)

    def within(self, windows: Windows) -> WindowArrays:
        """The inputs and outputs in these windows."""
        places = windows.layout.input, windows.layout.output
        return WindowArrays(self, *(windows.part(place, self._nbytes) for place in places))

    def prepare(self, k: int, given: Part, answer: Part) -> None:
        """Enqueue the input of sample `k`, after clearing the output, which an in-place engine
        shares with it."""
        self._backend.poison(answer)
        self._backend.overwrite(given, 0, self._given[k % TURNS])

    def keep(self, k: int, answer: Part) -> None:
        """Enqueue the check of its result."""
        size, count = self._stage.reduction.dtype.size, self._mine.stop - self._mine.start
        got = Part(answer.address + self._mine.start * size, count * size)
        words = [got, self._right[k % TURNS], count, self._found[k]]
        self._backend.zero(self._found[k])
        grid = max(1, min(-(-count // _THREADS), _BLOCKS))
        self._backend.launcher(self._judge, grid, _THREADS, words)()

    def wrong(self) -> str | None:
        """Why the result of a sample is wrong, or None."""
        for k, found in enumerate(self._found):
            wrong, rest = map(int, self._backend.download(found, "uint64", 2))
            if wrong:
                return (
                    f"rank {self._stage.comm.rank}, n = {self._n}, sample {k + 1}: element "
                    f"{self._mine.stop - rest} is wrong, and {wrong - 1} more"
                )
        return None


@dataclass(frozen=True, slots=True)
class WindowArrays:
    """Arrays in windows, as a stopwatch's subject."""

    arrays: TimedArrays
    given: Part
    answer: Part

    def prepare(self, k: int) -> None:
        self.arrays.prepare(k, self.given, self.answer)

    def keep(self, k: int) -> None:
        self.arrays.keep(k, self.answer)

    def wrong(self) -> str | None:
        return self.arrays.wrong()


def _values(reduction: Reduction, rank: int, turn: int, n: int) -> Array:
    """A rank's elements in a turn, up to the period."""
    return exact_values(reduction, rank, turn, min(n, _PERIOD))


def _tiled(reduction: Reduction, values: Array, n: int) -> Array:
    """`n` elements of a repeating array, in storage."""
    return np.resize(to_storage(values, reduction.dtype), n)


#: Warm-up rounds: clocks rise, pages are mapped.
UNCOUNTED = 2
#: The smallest array in bytes for which link bandwidth is measured.
_LINK_BYTES = 2**24


@dataclass(frozen=True, slots=True)
class Measured:
    """An engine on `n` elements: one batch per round."""

    engine: str
    n: int
    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class LinkRates:
    """GB/s of each GPU's link in one direction, both directions busy, in the rounds of the largest
    size; None if that was too small."""

    read_gb_s: float | None = None
    write_gb_s: float | None = None


def measure_engines(
    stage: Stage, backend: TimedBackend, engines: Sequence[StreamEngine], sizes: Sequence[int],
    most_mail: int, rounds: int, calls: Iterator[int], progress: Callable[[], None],
) -> tuple[list[Measured], LinkRates]:  # fmt: skip
    """Time all engines at all sizes; engines of the LL protocol up to `most_mail` elements. All
    ranks call it together. Raises RankLost, OutOfMemory and KernelFault."""
    align, judge = align_program(stage), judge_program(stage)
    both = helper_programs(stage, "links.cu", "link_read", "link_write")
    found, links = [], LinkRates()
    for n in sizes:
        some = [e for e in engines if not ((e.mail and n > most_mail) or e.why_not(n))]
        for engine in some:  # a first call may wait for the gate
            engine.run(n, next(calls), 0)
        nbytes = n * stage.reduction.dtype.size
        last = n == max(sizes) and nbytes >= _LINK_BYTES
        arrays = TimedArrays(stage, backend, n, judge)
        entrants = {e.name: Entrant(partial(e.enqueue, n), arrays.within(e.windows)) for e in some}
        here = arrays.within(stage.windows)
        ways = {program.entry: Entrant(link_copies(stage, program, nbytes), here, no_check)
                for program in both if last}  # fmt: skip
        watch = Stopwatch(stage, backend, align)
        try:
            taken = measure_in_turns(watch, entrants | ways, rounds, calls, progress)
        finally:
            arrays.close()
        found += [Measured(name, n, taken[name]) for name in entrants]
        if ways:
            links = LinkRates(*(_rate(nbytes, taken[way]) for way in ("link_read", "link_write")))
    return found, links


def no_check() -> None:
    """The judge of calls that have no result."""


def measure_in_turns(
    watch: Stopwatch, entrants: dict[str, Entrant], rounds: int, calls: Iterator[int],
    progress: Callable[[], None],
) -> dict[str, tuple[Batch, ...]]:  # fmt: skip
    """One batch of each entrant per round, every second round in reverse order. A judge checks the
    last round only."""
    taken: dict[str, list[Batch]] = {name: [] for name in entrants}
    for number in range(-UNCOUNTED, rounds):
        for name in list(entrants)[:: -1 if number % 2 else 1]:
            entrant = entrants[name]
            if entrant.judge and number < rounds - 1:
                entrant = replace(entrant, judge=no_check)
            batch = watch.batch(entrant, calls)
            if number >= 0 or batch.wrong:
                taken[name].append(batch)
        progress()
    return {name: tuple(some) for name, some in taken.items()}


def _rate(nbytes: int, batches: Sequence[Batch]) -> float | None:
    times = [batch.median_us for batch in batches if batch.median_us]
    return nbytes / median(times) / 1e3 if times else None
