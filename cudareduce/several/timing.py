"""How long a collective takes: of the slowest rank, from a start that all ranks share.

A sample is, on each rank: a barrier of the GPUs, an event, the call, an event. Before it lies what
prepares it, and behind it its answer is kept, so what is timed is what is verified. Several samples
are enqueued behind a gate, which every rank opens when all have enqueued theirs: no host is waited
for in between. How far the ranks' times lie apart is the sample's skew, which is told and not
hidden in the time.


What links carry: this rank's array to the next rank's output, or the next rank's to its own, as
measurements of several ranks enqueue it.

Arrays that are timed: inputs take turns, outputs are cleared, and answers are judged where they
lie, since the host would take longer to fetch a large one than all samples of it.

Engines in turn, round after round, on arrays of each size, and what the links carry beside."""

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
from cudareduce.several.engines import Stage, StreamEngine, compiled, look_for_those_who_gave_up
from cudareduce.several.inputs import Array, expected, share, stored, whole
from cudareduce.several.kernels import PACK_BYTES, helper
from cudareduce.several.windows import Part, Windows

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


#: Threads per block of links.cu, and blocks per SM.
THREADS, _BLOCKS_PER_SM = 512, 4


def aligning(stage: Stage) -> Program:
    """What all ranks leave at one time, compiled. Raises BuildError."""
    return helpers(stage, "align.cu", "align")[0]


def judging(stage: Stage) -> Program:
    """What counts the elements of an answer that are wrong, compiled. Raises BuildError."""
    return helpers(stage, "judge.cu", "judge")[0]


def helpers(stage: Stage, file: str, *entries: str) -> list[Program]:
    """Kernels of one of our files that exchange nothing, compiled. Raises BuildError."""
    sources = [helper(file, entry, stage.reduction, stage.comm.size) for entry in entries]
    return compiled(stage, sources)


def carrying(stage: Stage, program: Program, nbytes: int) -> Enqueue:
    """Calls of a kernel of links.cu on so many bytes, by as many blocks as fill the GPU."""
    parts, grid = stage.windows.layout, _BLOCKS_PER_SM * stage.backend.limits().sm_count
    places = [parts.input, parts.output, -(-nbytes // PACK_BYTES)]
    launch = stage.backend.launcher(program, grid, THREADS, [stage.windows.words(), *places])
    return lambda _: launch


#: Inputs that take turns, so that an answer of the call before is not the answer of this one.
TURNS = 2
#: Elements after which an input repeats itself: a prime, so no share begins where it does.
_PERIOD = 1_048_583
#: What judges: bytes of two words for each sample, threads of a block, and blocks at most, which
#: keep a GPU busy.
_FOUND, _THREADS, _BLOCKS = 16, 512, 512


class Arrays:
    """What arrays of one size hold, and what they must hold when combined, which `judge` tells.
    Raises OutOfMemory."""

    def __init__(self, stage: Stage, backend: TimedBackend, n: int, judge: Program) -> None:
        self._stage, self._backend, self._n, self._judge = stage, backend, n, judge
        reduction, ranks, rank = stage.reduction, stage.comm.size, stage.comm.rank
        turns = [[_values(reduction, each, turn, n) for each in range(ranks)]
                 for turn in range(TURNS)]  # fmt: skip
        self._mine = share(stage.collective, reduction, rank, ranks, n)
        self._right = [
            backend.upload(_tiled(reduction, expected(reduction, values), n)[self._mine])
            for values in turns
        ]
        self._given = [backend.upload(_tiled(reduction, values[rank], n)) for values in turns]
        self._nbytes = n * reduction.dtype.size
        self._found = [backend.allocate(_FOUND) for _ in range(SAMPLES)]

    def close(self) -> None:
        """Give memory back."""
        self._backend.free(*self._right, *self._given, *self._found)

    def within(self, windows: Windows) -> Placed:
        """They as they lie in windows."""
        places = windows.layout.input, windows.layout.output
        return Placed(self, *(windows.part(place, self._nbytes) for place in places))

    def prepare(self, k: int, given: Part, answer: Part) -> None:
        """Enqueue the input of sample `k`, behind what clears the answer, which of one that works
        in place is the same memory."""
        self._backend.poison(answer)
        self._backend.overwrite(given, 0, self._given[k % TURNS])

    def keep(self, k: int, answer: Part) -> None:
        """Enqueue what judges its answer."""
        size, count = self._stage.reduction.dtype.size, self._mine.stop - self._mine.start
        got = Part(answer.address + self._mine.start * size, count * size)
        words = [got, self._right[k % TURNS], count, self._found[k]]
        self._backend.zero(self._found[k])
        grid = max(1, min(-(-count // _THREADS), _BLOCKS))
        self._backend.launcher(self._judge, grid, _THREADS, words)()

    def wrong(self) -> str | None:
        """Why the answer of a sample is wrong, if one is."""
        for k, found in enumerate(self._found):
            wrong, rest = map(int, self._backend.download(found, "uint64", 2))
            if wrong:
                return (
                    f"rank {self._stage.comm.rank}, n = {self._n}, sample {k + 1}: element "
                    f"{self._mine.stop - rest} is wrong, and {wrong - 1} more"
                )
        return None


@dataclass(frozen=True, slots=True)
class Placed:
    """Arrays in windows, as a Stopwatch's subject."""

    arrays: Arrays
    given: Part
    answer: Part

    def prepare(self, k: int) -> None:
        self.arrays.prepare(k, self.given, self.answer)

    def keep(self, k: int) -> None:
        self.arrays.keep(k, self.answer)

    def wrong(self) -> str | None:
        return self.arrays.wrong()


def _values(reduction: Reduction, rank: int, turn: int, n: int) -> Array:
    """The elements of a rank in a turn, until they repeat themselves."""
    return whole(reduction, rank, turn, min(n, _PERIOD))


def _tiled(reduction: Reduction, values: Array, n: int) -> Array:
    """So many stored elements of what repeats itself."""
    return np.resize(stored(values, reduction.dtype), n)


#: Rounds that are not counted: clocks rise, pages are mapped.
UNCOUNTED = 2
#: The fewest bytes that tell what links carry.
_LINK_BYTES = 2**24


@dataclass(frozen=True, slots=True)
class Measured:
    """An engine on arrays of `n` elements: a batch of samples for each round."""

    engine: str
    n: int
    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class Links:
    """What each GPU's link carried both ways at once, in GB/s one way, in the rounds of the largest
    size; None where that was too small to tell."""

    read_gb_s: float | None = None
    write_gb_s: float | None = None


def measure(
    stage: Stage, backend: TimedBackend, engines: Sequence[StreamEngine], sizes: Sequence[int],
    most_mail: int, rounds: int, calls: Iterator[int], progress: Callable[[], None],
) -> tuple[list[Measured], Links]:  # fmt: skip
    """All engines at all sizes; those of mail where the array has at most `most_mail` elements. All
    ranks do so together. Raises RankLost, OutOfMemory and KernelFault."""
    align, judge = aligning(stage), judging(stage)
    both = helpers(stage, "links.cu", "link_read", "link_write")
    found, links = [], Links()
    for n in sizes:
        some = [e for e in engines if not ((e.mail and n > most_mail) or e.why_not(n))]
        for engine in some:  # what is made ready at a first call may wait for a gate
            engine.run(n, next(calls), 0)
        nbytes = n * stage.reduction.dtype.size
        last = n == max(sizes) and nbytes >= _LINK_BYTES
        arrays = Arrays(stage, backend, n, judge)
        entrants = {e.name: Entrant(partial(e.enqueue, n), arrays.within(e.windows)) for e in some}
        here = arrays.within(stage.windows)
        ways = {program.entry: Entrant(carrying(stage, program, nbytes), here, unjudged)
                for program in both if last}  # fmt: skip
        watch = Stopwatch(stage, backend, align)
        try:
            taken = in_turn(watch, entrants | ways, rounds, calls, progress)
        finally:
            arrays.close()
        found += [Measured(name, n, taken[name]) for name in entrants]
        if ways:
            links = Links(*(_rate(nbytes, taken[way]) for way in ("link_read", "link_write")))
    return found, links


def unjudged() -> None:
    """Nothing: rates beside are a measure, and no answer."""


def in_turn(
    watch: Stopwatch, entrants: dict[str, Entrant], rounds: int, calls: Iterator[int],
    progress: Callable[[], None],
) -> dict[str, tuple[Batch, ...]]:  # fmt: skip
    """A batch of each entrant for each round, every other round backward. A judge of its own looks
    at the last one."""
    taken: dict[str, list[Batch]] = {name: [] for name in entrants}
    for number in range(-UNCOUNTED, rounds):
        for name in list(entrants)[:: -1 if number % 2 else 1]:
            entrant = entrants[name]
            if entrant.judge and number < rounds - 1:
                entrant = replace(entrant, judge=unjudged)
            batch = watch.batch(entrant, calls)
            if number >= 0 or batch.wrong:
                taken[name].append(batch)
        progress()
    return {name: tuple(some) for name, some in taken.items()}


def _rate(nbytes: int, batches: Sequence[Batch]) -> float | None:
    times = [batch.median_us for batch in batches if batch.median_us]
    return nbytes / median(times) / 1e3 if times else None
