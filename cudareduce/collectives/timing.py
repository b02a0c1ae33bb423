"""Time collectives: the slowest rank, from a start that all ranks share.

A sample is, on each rank: a barrier of the GPUs, an event, the call, an event. The input is
prepared before it and the result checked after it, so what is timed is what is verified. Samples
are enqueued behind a gate, which each rank opens when all have enqueued theirs, so no host is
waited for in between. The skew of a sample, how far its ranks' times lie apart, is reported and not
hidden in the time.

Engines take turns in each round. Link bandwidth is measured in the rounds of the largest size.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any, Protocol, TypeVar

import numpy as np

from cudareduce.backend import Buffer, Launch, Program, TimedBackend
from cudareduce.collectives.communicator import watchdog
from cudareduce.collectives.engines import Stage, StreamEngine, compile_helpers, raise_if_gave_up
from cudareduce.collectives.inputs import exact_values, expected
from cudareduce.collectives.kernels import PACK_BYTES
from cudareduce.collectives.windows import Part, Windows
from cudareduce.intervals import interval, known, noise_pct
from cudareduce.progress import Progress
from cudareduce.reduction.inputs import Array, stored
from cudareduce.results.record import Record

Name = TypeVar("Name", bound=Hashable)
LaunchArgument = Buffer | int | tuple[int, ...]
#: Prepares the launch of call number n.
Enqueue = Callable[[int], Launch]

#: Samples behind one gate, and calls of a loop: enqueueing blocks after about a hundred launches.
SAMPLES, IN_A_LOOP = 8, 64
#: Warm-up calls: after half a second without calls, the first four of NCCL take up to 206 us more
#: (two H100), and other engines' turns take longer than that.
_UNCOUNTED = 8
#: Warm-up rounds: clocks rise, pages are mapped.
UNCOUNTED = 2
#: A loop has a quarter of the calls if one takes longer, in us: its fixed 5 us (two H100) are then
#: still below 1 %.
_LONG_US = 100.0
#: Inputs alternate, so that the previous call's result is wrong for this one.
TURNS = 2
#: The period of inputs: a prime, so that no share begins at one.
_PERIOD = 1_048_583
#: The check on the GPU: bytes of its two words per sample, threads per block, the largest grid.
_COUNT_BYTES, _CHECK_THREADS, _CHECK_BLOCKS = 16, 512, 512
#: The smallest array in bytes for which link bandwidth is measured; threads per block of the
#: kernels that measure it, and blocks per SM.
_LINK_BYTES, _LINK_THREADS, _LINK_BLOCKS = 2**24, 512, 4


#: A sample is discarded if its ranks are further apart than this in us, and than this share of its
#: time. On two H100 ranks are 0.2 to 1 us apart, 15 of 570 with NCCL; a rank that is 20 us late
#: after the common start shows as 21.
_SKEW_US, _SKEW = 4.0, 0.1


@dataclass(frozen=True, slots=True)
class Batch:
    """The samples of one engine in one round, in us: times of the slowest rank, skews (how far
    apart the ranks' times are), the time of one call of several back to back, and the host's time
    per call. `wrong` is why a result was wrong."""

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


@dataclass(frozen=True, slots=True)
class LinkRates:
    """GB/s of each GPU's link in one direction, both directions busy, in the rounds of the largest
    size; None if that was too small."""

    read_gb_s: float | None = None
    write_gb_s: float | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """The note below a table."""
        if self.write_gb_s is None or self.read_gb_s is None:
            return ()
        return (
            f"%link: of {self.write_gb_s:.0f} GB/s, which writes reached both ways at once in the "
            f"same rounds; reads {self.read_gb_s:.0f}",
        )


class Subject(Protocol):
    """Prepares the input of each sample, and checks its result."""

    def prepare(self, k: int) -> None:
        """Enqueue the preparation of sample `k`."""

    def keep(self, k: int) -> None:
        """Enqueue what keeps or checks the result of sample `k`."""

    def wrong(self) -> str | None:
        """Why a result is wrong, or None."""


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A timed call and its subject. In a call that is not `collective` no rank waits for another:
    it gets a barrier behind it, and its result is not checked."""

    enqueue: Enqueue
    subject: Subject
    collective: bool = True


class Stopwatch:
    """Times calls, whose numbers come from `numbers`. All ranks use it together. Raises RankLost
    and KernelFault."""

    def __init__(self, stage: Stage, backend: TimedBackend, numbers: Iterator[int]) -> None:
        self._stage, self._backend, self._numbers = stage, backend, numbers
        (self._align,) = compile_helpers(stage, "align.cu", "align")
        self._gate = backend.gate()

    def rounds(
        self, calls: Mapping[Name, TimedCall], rounds: int, bar: Progress
    ) -> dict[Name, tuple[Batch, ...]]:
        """One batch of each call per round, every second round in reverse order."""
        batches: dict[Name, list[Batch]] = {name: [] for name in calls}
        for number in range(-UNCOUNTED, rounds):
            for name in list(calls)[:: -1 if number % 2 else 1]:
                batch = self.batch(calls[name])
                if number >= 0 or batch.wrong:
                    batches[name].append(batch)
            bar.step()
        return {name: tuple(some) for name, some in batches.items()}

    def batch(self, call: TimedCall) -> Batch:
        """Time some samples, and a loop of calls."""
        for _ in range(_UNCOUNTED):
            call.enqueue(next(self._numbers))()
        events, host_us = self._samples(call)
        own = [self._backend.elapsed_us(start, end) for start, end in events]
        wrong = call.subject.wrong() if call.collective else None
        gathered = self._stage.comm.all_gather([own, wrong])
        by_sample = list(zip(*(times for times, _ in gathered), strict=True))
        longest = tuple(map(max, by_sample))
        count = IN_A_LOOP if median(longest) < _LONG_US else IN_A_LOOP // 4
        return Batch(
            times_us=longest,
            skews_us=tuple(max(times) - min(times) for times in by_sample),
            loop_us=self._loop_us(call, count),
            host_us=host_us,
            wrong=next((why for _, why in gathered if why), None),
        )

    def _samples(self, call: TimedCall) -> tuple[list[tuple[Any, Any]], float]:
        """The events of the samples, and the host's us per call."""
        launches = [call.enqueue(next(self._numbers)) for _ in range(SAMPLES)]
        events, host_us = [], 0.0
        with self._gated():
            for k, launch in enumerate(launches):
                call.subject.prepare(k)
                start = self._start()
                began = self._backend.host_us()
                launch()
                host_us += self._backend.host_us() - began
                events.append((start, self._backend.mark()))
                if not call.collective:  # another rank may still read or write the arrays
                    self._align_all()
                call.subject.keep(k)
        return events, host_us / SAMPLES

    def _loop_us(self, call: TimedCall, count: int) -> float:
        """The time of a call among several back to back, of the slowest rank, as in nccl-tests."""
        launches = [call.enqueue(next(self._numbers)) for _ in range(count)]
        with self._gated():
            start = self._start()
            for launch in launches:
                launch()
            end = self._backend.mark()
        own = self._backend.elapsed_us(start, end)
        return float(max(self._stage.comm.all_gather(own))) / count

    @contextmanager
    def _gated(self) -> Iterator[None]:
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

    def _start(self) -> Any:
        """An event that all ranks reach at the same time."""
        self._align_all()
        return self._backend.mark()

    def _align_all(self) -> None:
        """Enqueue a barrier of all ranks' streams."""
        windows = self._stage.windows
        number = next(self._numbers)
        args: list[LaunchArgument] = [windows.words(), windows.layout.start, number]
        self._backend.launcher(self._align, 1, 32, args)()


class TimedArrays:
    """The inputs of one size, which alternate, and their expected results, which are compared on
    the GPU: fetching a large array would take longer than all its samples. Raises OutOfMemory."""

    def __init__(self, stage: Stage, backend: TimedBackend, n: int, check: Program) -> None:
        self.stage, self.backend, self.n, self.check = stage, backend, n, check
        reduction, ranks, rank = stage.reduction, stage.comm.size, stage.comm.rank
        period = min(n, _PERIOD)
        turns = [[exact_values(reduction, each, turn, period) for each in range(ranks)]
                 for turn in range(TURNS)]  # fmt: skip
        self.own = stage.own_slice(n)
        self.expected = [
            backend.upload(self._tiled(expected(reduction, values))[self.own]) for values in turns
        ]
        self.inputs = [backend.upload(self._tiled(values[rank])) for values in turns]
        self.counts = [backend.allocate(_COUNT_BYTES) for _ in range(SAMPLES)]

    def _tiled(self, values: Array) -> Array:
        """`n` elements of a repeating array, in storage."""
        return np.resize(stored(values, self.stage.reduction.dtype), self.n)

    def close(self) -> None:
        self.backend.free(*self.expected, *self.inputs, *self.counts)


@dataclass(frozen=True, slots=True)
class WindowArrays:
    """Timed arrays in some windows."""

    arrays: TimedArrays
    windows: Windows

    def prepare(self, k: int) -> None:
        """Enqueue the input, after clearing the output, which an in-place engine shares with it."""
        backend = self.arrays.backend
        backend.poison(self._part(self.windows.layout.output, 0, self.arrays.n))
        given = self._part(self.windows.layout.input, 0, self.arrays.n)
        backend.overwrite(given, 0, self.arrays.inputs[k % TURNS])

    def keep(self, k: int) -> None:
        arrays, backend = self.arrays, self.arrays.backend
        count = arrays.own.stop - arrays.own.start
        result = self._part(self.windows.layout.output, arrays.own.start, count)
        backend.zero(arrays.counts[k])
        grid = max(1, min(-(-count // _CHECK_THREADS), _CHECK_BLOCKS))
        args = [result, arrays.expected[k % TURNS], count, arrays.counts[k]]
        backend.launcher(arrays.check, grid, _CHECK_THREADS, args)()

    def wrong(self) -> str | None:
        arrays = self.arrays
        for k, counted in enumerate(arrays.counts):
            wrong, rest = map(int, arrays.backend.download(counted, "uint64", 2))
            if wrong:
                return (
                    f"rank {arrays.stage.comm.rank}, n = {arrays.n}, sample {k + 1}: element "
                    f"{arrays.own.stop - rest} is wrong, and {wrong - 1} more"
                )
        return None

    def _part(self, offset: int, start: int, count: int) -> Part:
        size = self.arrays.stage.reduction.dtype.size
        return self.windows.part(offset + start * size, count * size)


def measure_engines(
    stage: Stage, backend: TimedBackend, engines: Sequence[StreamEngine], sizes: Sequence[int],
    rounds: int, numbers: Iterator[int], bar: Progress,
) -> tuple[dict[tuple[StreamEngine, int], tuple[Batch, ...]], LinkRates]:  # fmt: skip
    """Time all engines at all sizes that they support: one batch per round. All ranks call it
    together. Raises RankLost, OutOfMemory and KernelFault."""
    measured: dict[tuple[StreamEngine, int], tuple[Batch, ...]] = {}
    links = LinkRates()
    watch = Stopwatch(stage, backend, numbers)
    (check,) = compile_helpers(stage, "count_wrong.cu", "count_wrong")
    copies = compile_helpers(stage, "links.cu", "link_read", "link_write")
    for n in sizes:
        fitting = [e for e in engines if n <= e.largest and not e.why_not(n)]
        for engine in fitting:  # a first call may wait for the gate
            engine.run(n, next(numbers))
        nbytes = n * stage.reduction.dtype.size
        arrays = TimedArrays(stage, backend, n, check)
        calls: dict[StreamEngine | str, TimedCall] = {
            e: TimedCall(partial(e.enqueue, n), WindowArrays(arrays, e.windows)) for e in fitting
        }
        with_links = n == max(sizes) and nbytes >= _LINK_BYTES
        for program in copies if with_links else ():
            enqueue = partial(_link_copy, stage, backend, program, nbytes)
            subject = WindowArrays(arrays, stage.windows)
            calls[program.entry] = TimedCall(enqueue, subject, collective=False)
        try:
            batches = watch.rounds(calls, rounds, bar)
        finally:
            arrays.close()
        measured |= {(engine, n): batches[engine] for engine in fitting}
        if with_links:
            links = LinkRates(*(_rate(nbytes, batches[program.entry]) for program in copies))
    return measured, links


def _link_copy(
    stage: Stage, backend: TimedBackend, program: Program, nbytes: int, _: int
) -> Launch:  # fmt: skip
    """A copy of `nbytes` between GPUs, with enough blocks to fill the GPU."""
    parts, grid = stage.windows.layout, _LINK_BLOCKS * backend.limits().sm_count
    packs = -(-nbytes // PACK_BYTES)
    args: list[LaunchArgument] = [stage.windows.words(), parts.input, parts.output, packs]
    return backend.launcher(program, grid, _LINK_THREADS, args)


def _rate(nbytes: int, batches: Sequence[Batch]) -> float | None:
    times = [batch.median_us for batch in batches if batch.median_us]
    return nbytes / median(times) / 1e3 if times else None


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


def with_bandwidth(record: Record, links: LinkRates) -> Record:
    """The timed record of a collective with its bandwidth in the terms of nccl-tests, and its share
    of the links' bandwidth."""
    if record.gb_s is None or record.ranks is None:
        return record
    # busbw over algbw among n ranks: nccl-tests, doc/PERFORMANCE.md
    share = (record.ranks - 1) / record.ranks
    wire = {"all-reduce": 2 * share, "reduce-scatter": share, "reduce": 1.0}[record.kernel]
    busbw = record.gb_s * wire
    return replace(
        record, algbw_gb_s=record.gb_s, busbw_gb_s=busbw,
        pct_link=links.write_gb_s and 100 * busbw / links.write_gb_s,
    )  # fmt: skip
