"""GPU timer: events, cache flush, probe kernels, detection of unfinished work, energy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from importlib.resources import files
from math import ceil
from pathlib import Path
from random import Random

from cudareduce.backends.protocol import (
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
from cudareduce.machine import Conditions

#: Bytes read to flush the L2. Four times an H200's 60 MiB would be sufficient; reading 512 MiB also
#: gives the host about 110 us to enqueue the launch (H200, 4.7 TB/s).
FLUSH_BYTES = 512 * 2**20
_FLUSH_SHAPE = ("read_4", 512, 4)
#: Read-only launches for the bandwidth ceiling: probe kernel, threads, blocks per SM (0: one block
#: per tile). Best of 44 on an H200: the first at 2^25 float32 (4211 GB/s), the second at 2^28
#: (4643).
_READ_SHAPES = (("read_2", 512, 0), ("read_8", 256, 0), ("read_4", 512, 4))
#: Cold times depend on the position in the driver's ring of launches, with this period. On an H200
#: V7 takes 26.0 us at odd and 25.0 us at even positions (2^24 float32); at 2^22 two of four
#: positions cost 1 us more.
RING_PERIOD = 8
#: The time in us to read the flush buffer on an H200.
_IDLE_US = 110.0
#: Reads that keep the GPU under load while NVML is queried: about 2 ms on an H200.
_LOAD_READS = 16
#: Bytes per block of the kernel that hashes memory, and its largest grid.
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
    """Measures times on a GPU. The flush buffer lives as long as the backend. Probe kernels are
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
        """Enqueue a read of much more than the L2 holds, which evicts inputs and dirty lines."""
        return self._after_random_launches(self._read_flush_buffer)

    @cached_property
    def _read_flush_buffer(self) -> Launch:
        return self._reader(*_FLUSH_SHAPE, self.flush_buffer)

    def _after_random_launches(self, run: Launch) -> Launch:
        """A launch preceded by a random number of empty ones, so that its position in the ring is
        random."""
        random, empty = Random(), self.empty()  # without a seed: two runs must differ

        def launch() -> None:
            for _ in range(random.randrange(RING_PERIOD)):
                empty()
            run()

        return launch

    @cached_property
    def flush_buffer(self) -> Buffer:
        """The buffer that is read to flush the cache."""
        return self._backend.allocate(max(FLUSH_BYTES, 4 * (self._backend.info().l2_bytes or 0)))

    @cached_property
    def close_gate(self) -> Launch:
        """Block the stream until the gate is opened. Raises EnvironmentProblem."""
        return self._after_random_launches(self._gate.close)

    def open_gate(self) -> None:
        self._gate.open()

    @cached_property
    def _gate(self) -> Gate:
        return self._backend.gate()

    def captured(self, run: Launch, count: int) -> Launch:
        """The launch of a CUDA graph of `count` runs; valid until `release`. Raises
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

    def with_ring_step(self, launches: int) -> DeviceTimer:
        """This timer for samples of `launches` launches: each sample begins one position in the
        ring after the previous one."""
        other, read, empty = copy(self), self._read_flush_buffer, self.empty()

        def flush() -> None:
            for _ in range(-launches % RING_PERIOD):
                empty()
            read()

        other.flush = flush
        return other

    def with_flush(self, kind: str) -> DeviceTimer:
        """This timer with another flush: "none"; "write" of the L2 size; "nvbench", that write with
        work enqueued around the events, as in NVIDIA's tool; or the default, "read"."""
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
        """Clocks, power and temperature under load, since an idle GPU has other clocks."""
        if self._monitor is None:
            return Conditions()
        for _ in range(_LOAD_READS):
            self.flush()
        conditions = self._monitor.read()
        self.synchronize()
        return conditions

    def empty(self) -> Launch:
        """A launch of an empty kernel, which measures the launch overhead."""
        return self._backend.launcher(self._probes["empty_kernel"], 1, 32, [])

    def readers(self, buffer: Buffer) -> dict[str, Launch]:
        """Launches that only read a buffer. The fastest gives the bandwidth ceiling."""
        return {
            f"{name} x {threads} x {per_sm or 'tile'}": self._reader(name, threads, per_sm, buffer)
            for name, threads, per_sm in _READ_SHAPES
        }

    def reader(self, buffer: Buffer, nbytes: int) -> Launch:
        """A launch that reads the first `nbytes` of a buffer, one block per tile."""
        return self._reader(*_READ_SHAPES[0], buffer, nbytes)

    def content_hashes(self, buffers: Sequence[Buffer]) -> Callable[[], list[int]]:
        """A function that synchronizes and returns a hash of each buffer's content; valid until
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

        def read() -> list[int]:
            backend.zero(sums)
            for launch in launches:
                launch()
            return [int(value) for value in backend.download(sums, "uint64", len(launches))]

        return read

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


#: Synchronizing the context after the end event takes 1 us longer than without a launch, and 30 us
#: after a launch of several milliseconds (H200). Unfinished work exceeds this limit in every try:
#: base in us, fraction of the launch's time that is added, maximum in us, and number of tries.
_LATE_US, _LATE_SHARE, _MOST_LATE_US, _TRIES = 20.0, 0.01, 100.0, 10


def find_unfinished_work(timer: DeviceTimer, run: Launch, cost_us: float) -> str | None:
    """A description of work that continues after the end event of a launch, which takes about
    `cost_us`; None if there is none."""
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
    """Time in us from the end event to the end of all work of the context."""
    run()
    end = timer.mark()
    while not timer.reached(end):
        pass
    began = timer.host_us()
    timer.finish()
    return timer.host_us() - began


#: Duration in us of the warm-up, in which clocks and power become steady, and of the measurement.
_WARM_US, _STRETCH_US = 0.3e6, 1.2e6
#: GPU time in us of launches that are enqueued at once, and their largest number. Two such chunks
#: are in flight, and the driver's queue holds about 1000 launches.
_CHUNK_US, _MOST_LAUNCHES = 5_000.0, 256

#: A counter of joules; None without one.
Counter = Callable[[], float | None]


def joules(timer: DeviceTimer, run: Launch, cost_us: float, counter: Counter) -> float | None:
    """The energy in joules of one launch that takes about `cost_us`; None if the GPU has no energy
    counter, or updates it too rarely."""
    if counter() is None:
        return None
    launches = min(_MOST_LAUNCHES, max(1, ceil(_CHUNK_US / max(cost_us, 1.0))))
    _run_for(timer, run, launches, _WARM_US, counter)
    each_us, watts = _run_for(timer, run, launches, _STRETCH_US, counter)
    timer.synchronize()
    return None if watts is None else watts * each_us / 1e6


def _run_for(
    timer: DeviceTimer, run: Launch, launches: int, for_us: float, counter: Counter
) -> tuple[float, float | None]:
    """Launch repeatedly for `for_us`. Returns the time per launch in us, and the power in watts."""
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
