"""The timer of a GPU: events, the cache flush, probe kernels, unfinished work and energy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from importlib.resources import files
from math import ceil
from pathlib import Path
from random import Random

from cudareduce.backend import (
    Buffer,
    Gate,
    Graph,
    Launch,
    Monitor,
    Program,
    Source,
    TimedBackend,
    build_all,
)
from cudareduce.machine.device import Conditions

#: Bytes read to flush the L2. Four times an H200's 60 MiB would do; 512 MiB also give the host some
#: 110 us to enqueue the launch (measured on an H200, 4.7 TB/s).
FLUSH_BYTES = 512 * 2**20
_FLUSH_SHAPE = ("read_4", 512, 4)
#: Read-only launches that determine the ceiling: probe, threads, blocks per SM (0: a block per
#: tile). Best of 44 on an H200: the first at 2^25 float32 (4211 GB/s), the second at 2^28 (4643).
_READ_SHAPES = (("read_2", 512, 0), ("read_8", 256, 0), ("read_4", 512, 4))
#: Positions in the driver's ring of launches with different times from a cold cache. On an H200 V7
#: takes 26.0 us if its first launch is odd and 25.0 if it is even (2^24 float32); at 2^22 two of
#: four positions cost 1 us more. The pattern repeats every eight launches.
PLACES = 8
#: The time that a read of the flush buffer takes on an H200.
_IDLE_US = 110.0
#: Reads that keep the GPU under load while NVML is queried: some 2 ms on an H200.
_LOAD_READS = 16
#: Least bytes of a block that hashes memory, and the most blocks.
_DIGEST_BYTES, _DIGEST_BLOCKS = 2**14, 1056


def repeated(run: Launch, count: int) -> Launch:
    """A launch of `count` runs in a row."""
    if count == 1:
        return run

    def runs() -> None:
        for _ in range(count):
            run()

    return runs


class DeviceTimer:
    """Measures times on a GPU. Its flush buffer lives as long as the backend; its probe kernels are
    compiled at first use, which may raise BuildError."""

    def __init__(self, backend: TimedBackend, monitor: Monitor | None = None) -> None:
        self._backend, self._monitor = backend, monitor
        self._graphs: list[Graph] = []
        self._sums: list[Buffer] = []
        self.mark, self.reached = backend.mark, backend.reached
        self.elapsed_us, self.synchronize = backend.elapsed_us, backend.synchronize
        self.finish, self.host_us = backend.finish, backend.host_us
        self.reset_persisting = backend.reset_persisting

    @cached_property
    def flush(self) -> Launch:
        """Enqueue a read of far more than the L2 holds, which leaves no input and no dirty line."""
        return self._after_random_launches(self._read_over)

    @cached_property
    def _read_over(self) -> Launch:
        return self._reader(*_FLUSH_SHAPE, self.flush_buffer)

    def _after_random_launches(self, run: Launch) -> Launch:
        """A launch after some empty ones, so that the next one has a random position in the
        ring."""
        random, empty = Random(), self.empty()  # without a seed: two runs must differ

        def launch() -> None:
            for _ in range(random.randrange(PLACES)):
                empty()
            run()

        return launch

    @cached_property
    def flush_buffer(self) -> Buffer:
        """The buffer that is read to flush the cache."""
        return self._backend.allocate(max(FLUSH_BYTES, 4 * (self._backend.info().l2_bytes or 0)))

    @cached_property
    def close_gate(self) -> Launch:
        """Let the stream wait until the gate is opened. Raises EnvironmentProblem."""
        return self._after_random_launches(self._gate.close)

    def open_gate(self) -> None:
        self._gate.open()

    @cached_property
    def _gate(self) -> Gate:
        return self._backend.gate()

    def captured(self, run: Launch, count: int) -> Launch:
        """A launch of one graph with `count` runs; valid until `release`. Raises
        EnvironmentProblem."""
        graph = self._backend.graph(repeated(run, count))
        self._graphs.append(graph)
        return graph.launch

    def release(self) -> None:
        """Free captured graphs and the buffers of digests."""
        for graph in self._graphs:
            graph.close()
        self._backend.free(*self._sums)
        self._graphs.clear()
        self._sums.clear()

    def in_step(self, launches: int) -> DeviceTimer:
        """This timer for samples of this many launches, each of which begins one position in the
        ring further than the one before."""
        other, read, empty = copy(self), self._read_over, self.empty()

        def flush() -> None:
            for _ in range(-launches % PLACES):
                empty()
            read()

        other.flush = flush
        return other

    def flushing(self, kind: str) -> DeviceTimer:
        """This timer with another flush: "none"; a "write" of as much as the L2 holds; "nvbench",
        that write with work enqueued around the events, as in NVIDIA's tool; or its own "read"."""
        if kind == "read":
            return self
        other = copy(self)
        busy, empty = self.idle(_IDLE_US), self.empty()
        written, stream = self._written, self._backend

        def flush() -> None:
            busy()  # gives the host time to enqueue, as the read does
            if kind != "none":
                stream.zero(written)
            if kind == "nvbench":
                empty()

        if kind != "nvbench":
            flush = self._after_random_launches(flush)

        def synchronize() -> None:
            empty()
            stream.synchronize()

        other.flush = flush
        if kind == "nvbench":
            other.synchronize = synchronize
        return other

    @cached_property
    def _written(self) -> Buffer:
        return self._backend.allocate(self._backend.info().l2_bytes or FLUSH_BYTES)

    def conditions(self) -> Conditions:
        """Clocks, power and temperature while the GPU reads; an idle GPU has other clocks."""
        if self._monitor is None:
            return Conditions()
        for _ in range(_LOAD_READS):
            self.flush()
        found = self._monitor.read()
        self.synchronize()
        return found

    def empty(self) -> Launch:
        """A launch of an empty kernel, for the cost of a launch."""
        return self._backend.launcher(self._probes["empty_kernel"], 1, 32, [])

    def readers(self, buffer: Buffer) -> dict[str, Launch]:
        """Launches that only read a buffer; the fastest is the ceiling."""
        return {
            f"{name} x {threads} x {per_sm or 'tile'}": self._reader(name, threads, per_sm, buffer)
            for name, threads, per_sm in _READ_SHAPES
        }

    def reader(self, buffer: Buffer, nbytes: int) -> Launch:
        """A launch that reads the first `nbytes` of a buffer, a block per tile."""
        return self._reader(*_READ_SHAPES[0], buffer, nbytes)

    def digests(self, buffers: Sequence[Buffer]) -> Callable[[], list[int]]:
        """A function that waits and returns a hash of each buffer's content; valid until
        `release`."""
        backend, probe = self._backend, self._probes["digest"]
        sums = backend.allocate(8 * max(1, len(buffers)))
        self._sums.append(sums)
        launches = [
            backend.launcher(
                probe, min(_DIGEST_BLOCKS, 1 + buffer.nbytes // _DIGEST_BYTES), 256,
                [buffer, buffer.nbytes, sums, slot],
            ) for slot, buffer in enumerate(buffers)
        ]  # fmt: skip

        def taken() -> list[int]:
            backend.zero(sums)
            for launch in launches:
                launch()
            return [int(value) for value in backend.download(sums, "uint64", len(launches))]

        return taken

    def idle(self, us: float) -> Launch:
        """A launch that keeps the GPU busy for `us` microseconds without memory accesses."""
        return self._backend.launcher(self._probes["wait_ns"], 1, 1, [int(1e3 * us)])

    def _reader(
        self, name: str, threads: int, per_sm: int, buffer: Buffer, nbytes: int | None = None
    ) -> Launch:
        words = (buffer.nbytes if nbytes is None else nbytes) // 16
        tiles = max(1, -(-words // (threads * int(name.removeprefix("read_")))))
        grid = min(tiles, self._backend.limits().sm_count * per_sm) if per_sm else tiles
        return self._backend.launcher(self._probes[name], grid, threads, [buffer, 0, words])

    @cached_property
    def _probes(self) -> dict[str, Program]:
        path = Path(str(files("cudareduce.launch") / "device" / "probes.cu"))
        text = path.read_text(encoding="utf-8")
        names = ("empty_kernel", "wait_ns", "read_2", "read_4", "read_8", "digest")
        return build_all(self._backend, [Source(text, name, path) for name in names])


#: If nothing is left, a wait for the whole context after the last event takes the host 1 us longer
#: than after no launch, and 30 us after a launch of several milliseconds (H200). Unfinished work
#: takes longer than this limit every time; the limit grows by 1 % of a launch, up to the most.
_LATE_US, _LATE_SHARE, _MOST_LATE_US, _TRIES = 20.0, 0.01, 100.0, 10


def late_work(timer: DeviceTimer, run: Launch, cost_us: float) -> str | None:
    """Describes unfinished work after the end event of a launch that takes about `cost_us`; None if
    there is none."""
    limit = min(_LATE_US + _LATE_SHARE * cost_us, _MOST_LATE_US)
    late = []
    for _ in range(_TRIES):
        late.append(_wait_after(timer, run) - _wait_after(timer, lambda: None))
        if late[-1] < limit:
            return None
    return (
        f"the device worked for {min(late):.0f} us after its end event: part of the work runs "
        "outside the stream that is timed"
    )


def _wait_after(timer: DeviceTimer, run: Launch) -> float:
    """Microseconds from the end event to the end of all work."""
    run()
    end = timer.mark()
    while not timer.reached(end):
        pass
    began = timer.host_us()
    timer.finish()
    return timer.host_us() - began


#: Time until clocks and power settle, and then of the measurement.
_WARM_US, _STRETCH_US = 0.3e6, 1.2e6
#: GPU time of launches that are enqueued at once, and their number at most: two such batches are in
#: flight, and the driver's queue holds some 1000 launches.
_CHUNK_US, _MOST_LAUNCHES = 5_000.0, 256

#: A counter of joules; None without one.
Counter = Callable[[], float | None]


def joules(timer: DeviceTimer, run: Launch, cost_us: float, counter: Counter) -> float | None:
    """Joules of one launch that takes about `cost_us`; None if the GPU does not count them, or
    updates its counter too seldom."""
    if counter() is None:
        return None
    launches = min(_MOST_LAUNCHES, max(1, ceil(_CHUNK_US / max(cost_us, 1.0))))
    _stretch(timer, run, launches, _WARM_US, counter)
    each_us, watts = _stretch(timer, run, launches, _STRETCH_US, counter)
    timer.synchronize()
    return None if watts is None else watts * each_us / 1e6


def _stretch(
    timer: DeviceTimer, run: Launch, launches: int, for_us: float, counter: Counter
) -> tuple[float, float | None]:
    """Keep the GPU busy for `for_us`: microseconds of a launch, and the power in watts."""
    updates: list[tuple[float, float]] = []
    first = before = timer.mark()
    seen, chunks, end_us = counter(), 0, timer.host_us() + for_us
    while timer.host_us() < end_us or not chunks:
        for _ in range(launches):
            run()
        event, chunks = timer.mark(), chunks + 1
        while True:
            count = counter()
            if count is not None and count != seen:
                updates.append((timer.host_us(), count))
                seen = count
            if timer.reached(before):
                break
        before = event
    while not timer.reached(before):
        pass
    each_us = timer.elapsed_us(first, before) / (chunks * launches)
    if len(updates) < 2:
        return each_us, None
    (from_us, low), (to_us, high) = updates[0], updates[-1]
    return each_us, 1e6 * (high - low) / (to_us - from_us)
