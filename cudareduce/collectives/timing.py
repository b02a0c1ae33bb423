"""Time collectives: the time of the slowest rank, from a start common to all ranks.

Each rank enqueues per sample: a barrier of the GPUs, an event, the call, an event. The input is
prepared before and the result checked after each sample, so that the timed call is also the
verified one. Samples are enqueued behind a gate that opens when all ranks have enqueued theirs, so
that no host delays a sample. Skew, the difference between the ranks' times of a sample, is reported
separately.

Engines alternate within each round. Link bandwidth is measured in the rounds of the largest size.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any, Protocol, TypeVar

import numpy as np

from cudareduce.backends.protocol import Buffer, Launch, Program, TimedBackend
from cudareduce.collectives.communicator import watchdog
from cudareduce.collectives.engines import Stage, StreamEngine, compile_helpers, raise_if_gave_up
from cudareduce.collectives.inputs import exact_values, expected_result
from cudareduce.collectives.kernels import PACK_BYTES
from cudareduce.collectives.windows import Part, Windows
from cudareduce.intervals import interval, known, noise_pct
from cudareduce.progress import Progress
from cudareduce.reduction.inputs import Array, stored
from cudareduce.results.record import Record

Name = TypeVar("Name", bound=Hashable)
LaunchArgument = Buffer | int | tuple[int, ...]
#: Prepares the launch of the call with a number.
Enqueue = Callable[[int], Launch]

#: Samples behind one gate, and calls of a loop. Both stay below the depth of the launch queue:
#: about a hundred launches.
SAMPLES, LOOP_CALLS = 8, 64
#: Warm-up calls: after half a second without calls, NCCL's first four take up to 206 us longer (two
#: H100), and it is idle that long while other engines are timed.
_WARM_UP_CALLS = 8
#: Warm-up rounds, in which clocks rise and pages are mapped.
WARM_UP_ROUNDS = 2
#: Calls longer than this, in us, are looped a quarter as often: the loop's fixed cost of 5 us (two
#: H100) stays below 1 %.
_LONG_US = 100.0
#: Inputs alternate between two arrays, so that a result left by the previous call is wrong.
INPUT_SETS = 2
#: The period of inputs: a prime, so that no slice begins at a multiple of it.
_PERIOD = 1_048_583
#: The kernel that checks results: bytes of its two counters per sample, threads per block, largest
#: grid.
_COUNT_BYTES, _CHECK_THREADS, _CHECK_BLOCKS = 16, 512, 512
#: The smallest array in bytes for which link bandwidth is measured; threads per block of the
#: kernels that measure it, and blocks per SM.
_LINK_BYTES, _LINK_THREADS, _LINK_BLOCKS = 2**24, 512, 4


#: A sample is discarded if its skew exceeds both this, in us, and this fraction of its time. On two
#: H100 the skew is 0.2 to 1 us (NCCL: 15 of 570 us); a rank delayed by 20 us shows a skew of 21.
_SKEW_US, _SKEW = 4.0, 0.1


@dataclass(frozen=True, slots=True)
class Batch:
    """The samples of one engine in one round.

    `times_us` are of the slowest rank, `skews_us` the differences between ranks, `loop_us` the time
    per call of several back to back, `host_us` the host's time per call, and `wrong` the reason if
    a result was wrong.
    """

    times_us: tuple[float, ...]
    skews_us: tuple[float, ...]
    loop_us: float
    host_us: float
    wrong: str | None

    @property
    def valid_us(self) -> list[float]:
        """The times of samples whose skew is within the limit."""
        pairs = zip(self.times_us, self.skews_us, strict=True)
        return [us for us, skew in pairs if skew <= max(_SKEW_US, _SKEW * us)]

    @property
    def median_us(self) -> float | None:
        """The median of valid samples; None if there is none."""
        return median(self.valid_us) if self.valid_us else None


@dataclass(frozen=True, slots=True)
class LinkRates:
    """Bandwidth in GB/s at which each GPU reads from and writes to another, while both directions
    of the link are busy. Measured in the rounds of the largest size; None if that is too small."""

    read_gb_s: float | None = None
    write_gb_s: float | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """The note below a table."""
        if self.write_gb_s is None or self.read_gb_s is None:
            return ()
        return (
            f"%link: of {self.write_gb_s:.0f} GB/s, which writes reached both ways in "
            f"the same rounds; reads {self.read_gb_s:.0f}",
        )


class SampleHooks(Protocol):
    """Enqueued around each sample: prepares its input and checks its result."""

    def prepare(self, k: int) -> None:
        """Enqueue the preparation of sample `k`."""

    def keep(self, k: int) -> None:
        """Enqueue work that saves or checks the result of sample `k`."""

    def wrong(self) -> str | None:
        """Why a result is wrong, or None."""


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A call to time and the hooks around its samples. A call that is not `collective` does not
    synchronise ranks: a barrier follows it, and its result is not checked."""

    enqueue: Enqueue
    hooks: SampleHooks
    collective: bool = True


class Stopwatch:
    """Times calls on all ranks at once. `numbers` yields call numbers, the same on all ranks.
    Raises RankLost and KernelFault."""

    def __init__(self, stage: Stage, backend: TimedBackend, numbers: Iterator[int]) -> None:
        self._stage, self._backend, self._numbers = stage, backend, numbers
        (self._align,) = compile_helpers(stage, "align.cu", "align")
        self._gate = backend.gate()

    def rounds(
        self, calls: Mapping[Name, TimedCall], rounds: int, bar: Progress
    ) -> dict[Name, tuple[Batch, ...]]:
        """Time one batch of each call per round; every second round is in reverse order."""
        batches: dict[Name, list[Batch]] = {name: [] for name in calls}
        for number in range(-WARM_UP_ROUNDS, rounds):
            for name in list(calls)[:: -1 if number % 2 else 1]:
                batch = self.batch(calls[name])
                if number >= 0 or batch.wrong:
                    batches[name].append(batch)
            bar.step()
        return {name: tuple(timed) for name, timed in batches.items()}

    def batch(self, call: TimedCall) -> Batch:
        """Time `SAMPLES` calls one by one, and a loop of calls."""
        for _ in range(_WARM_UP_CALLS):
            call.enqueue(next(self._numbers))()
        events, host_us = self._samples(call)
        own = [self._backend.elapsed_us(start, end) for start, end in events]
        wrong = call.hooks.wrong() if call.collective else None
        gathered = self._stage.comm.all_gather([own, wrong])
        by_sample = list(zip(*(times for times, _ in gathered), strict=True))
        longest = tuple(map(max, by_sample))
        count = LOOP_CALLS if median(longest) < _LONG_US else LOOP_CALLS // 4
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
                call.hooks.prepare(k)
                start = self._start()
                began = self._backend.host_us()
                launch()
                host_us += self._backend.host_us() - began
                events.append((start, self._backend.mark()))
                if not call.collective:  # another rank may still access the arrays
                    self._align_all()
                call.hooks.keep(k)
        return events, host_us / SAMPLES

    def _loop_us(self, call: TimedCall, count: int) -> float:
        """The time per call of `count` calls back to back, on the slowest rank, as in
        nccl-tests."""
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
        """Hold work enqueued in the block until all ranks have enqueued theirs, then wait for
        it."""
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
        """Enqueue an event that all ranks reach at the same time."""
        self._align_all()
        return self._backend.mark()

    def _align_all(self) -> None:
        """Enqueue a barrier of all ranks' streams."""
        windows = self._stage.windows
        number = next(self._numbers)
        args: list[LaunchArgument] = [windows.words(), windows.layout.start, number]
        self._backend.launcher(self._align, 1, 32, args)()


class TimedArrays:
    """The alternating inputs of one size and their expected results, in GPU memory. Results are
    compared on the GPU, since a download takes longer than all samples. Raises OutOfMemory."""

    def __init__(self, stage: Stage, backend: TimedBackend, n: int, check: Program) -> None:
        self.stage, self.backend, self.n, self.check = stage, backend, n, check
        reduction, ranks, rank = stage.reduction, stage.comm.size, stage.comm.rank
        period = min(n, _PERIOD)
        turns = [[exact_values(reduction, each, turn, period) for each in range(ranks)]
                 for turn in range(INPUT_SETS)]  # fmt: skip
        self.own = stage.own_slice(n)
        self.expected = [
            backend.upload(self._tiled(expected_result(reduction, values))[self.own])
            for values in turns
        ]
        self.inputs = [backend.upload(self._tiled(values[rank])) for values in turns]
        self.counts = [backend.allocate(_COUNT_BYTES) for _ in range(SAMPLES)]

    def _tiled(self, values: Array) -> Array:
        """`n` elements of a repeating array, in the dtype's storage type."""
        return np.resize(stored(values, self.stage.reduction.dtype), self.n)

    def close(self) -> None:
        self.backend.free(*self.expected, *self.inputs, *self.counts)


@dataclass(frozen=True, slots=True)
class WindowArrays:
    """Sample hooks for arrays in these windows."""

    arrays: TimedArrays
    windows: Windows

    def prepare(self, k: int) -> None:
        """Enqueue poisoning of the output, then the copy of the input: an in-place engine uses the
        same memory for both."""
        backend = self.arrays.backend
        backend.poison(self._part(self.windows.layout.output, 0, self.arrays.n))
        source = self._part(self.windows.layout.input, 0, self.arrays.n)
        backend.overwrite(source, 0, self.arrays.inputs[k % INPUT_SETS])

    def keep(self, k: int) -> None:
        arrays, backend = self.arrays, self.arrays.backend
        count = arrays.own.stop - arrays.own.start
        result = self._part(self.windows.layout.output, arrays.own.start, count)
        backend.zero(arrays.counts[k])
        grid = max(1, min(-(-count // _CHECK_THREADS), _CHECK_BLOCKS))
        args = [result, arrays.expected[k % INPUT_SETS], count, arrays.counts[k]]
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
    """Time each engine at each size that it supports, one batch per round. All ranks call it
    together. Raises RankLost, OutOfMemory and KernelFault."""
    measured: dict[tuple[StreamEngine, int], tuple[Batch, ...]] = {}
    links = LinkRates()
    watch = Stopwatch(stage, backend, numbers)
    (check,) = compile_helpers(stage, "count_wrong.cu", "count_wrong")
    copies = compile_helpers(stage, "links.cu", "link_read", "link_write")
    for n in sizes:
        fitting = [e for e in engines if n <= e.largest and not e.why_not(n)]
        for engine in fitting:  # a library's first call may synchronise, which the gate would block
            engine.run(n, next(numbers))
        nbytes = n * stage.reduction.dtype.size
        arrays = TimedArrays(stage, backend, n, check)
        calls: dict[StreamEngine | str, TimedCall] = {
            e: TimedCall(partial(e.enqueue, n), WindowArrays(arrays, e.windows)) for e in fitting
        }
        with_links = n == max(sizes) and nbytes >= _LINK_BYTES
        for program in copies if with_links else ():
            enqueue = partial(_link_copy, stage, backend, program, nbytes)
            hooks = WindowArrays(arrays, stage.windows)
            calls[program.entry] = TimedCall(enqueue, hooks, collective=False)
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
    """Prepare a copy of `nbytes` between GPUs, with enough blocks to fill the GPU."""
    parts, grid = stage.windows.layout, _LINK_BLOCKS * backend.limits().sm_count
    packs = -(-nbytes // PACK_BYTES)
    args: list[LaunchArgument] = [stage.windows.words(), parts.input, parts.output, packs]
    return backend.launcher(program, grid, _LINK_THREADS, args)


def _rate(nbytes: int, batches: Sequence[Batch]) -> float | None:
    times = [batch.median_us for batch in batches if batch.median_us]
    return nbytes / median(times) / 1e3 if times else None


def with_times(plain: Record, batches: Sequence[Batch], nbytes: int) -> Record:
    """Copy of the record with the times of calls on arrays of `nbytes`. If a result was wrong, the
    verdict is fail. If no sample is valid, the record has a reason and no times."""
    wrong = next((batch.wrong for batch in batches if batch.wrong), None)
    if wrong:
        return replace(plain, verdict="fail", reason=wrong)
    rounds = tuple(batch.median_us for batch in batches)
    times = known(rounds)
    if not times:
        skewed = "the ranks were apart in every sample: see what else runs on these GPUs"
        return replace(plain, reason=skewed)
    us = median(times)
    low, high = interval(times) or (None, None)
    sound = [time for batch in batches for time in batch.valid_us]
    return replace(
        plain, time_us=us, time_us_low=low, time_us_high=high, time_us_min=min(sound),
        noise_pct=noise_pct(sound), samples=len(sound), rounds_us=rounds,
        discarded=sum(len(batch.times_us) - len(batch.valid_us) for batch in batches),
        host_us=median(batch.host_us for batch in batches),
        bytes=nbytes, gb_s=nbytes / us / 1e3, gb_s_low=high and nbytes / high / 1e3,
        gb_s_high=low and nbytes / low / 1e3,
        skew_us=median(skew for batch in batches for skew in batch.skews_us),
        loop_us=median(batch.loop_us for batch in batches),
    )  # fmt: skip


def with_bandwidth(record: Record, links: LinkRates) -> Record:
    """Copy of the record with algbw and busbw as nccl-tests defines them, and with busbw in
    percent of the link bandwidth."""
    if record.gb_s is None or record.ranks is None:
        return record
    # busbw / algbw for n ranks: nccl-tests, doc/PERFORMANCE.md
    share = (record.ranks - 1) / record.ranks
    wire = {"all-reduce": 2 * share, "reduce-scatter": share, "reduce": 1.0}[record.kernel]
    busbw = record.gb_s * wire
    return replace(
        record, algbw_gb_s=record.gb_s, busbw_gb_s=busbw,
        pct_link=links.write_gb_s and 100 * busbw / links.write_gb_s,
    )  # fmt: skip
