"""The GPU as a stopwatch: events, the read that displaces the cache, and probes beside a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from importlib.resources import files
from math import ceil
from pathlib import Path
from random import Random

from cudareduce.backend import Buffer, Gate, Graph, Launch, Monitor, Program, Source, TimedBackend
from cudareduce.errors import BuildError
from cudareduce.machine.device import Conditions
from cudareduce.timing.sampling import Timer

#: Bytes read to displace the L2: four times an H200's 60 MiB would do; 512 MiB also gives the host
#: some 110 us to enqueue what is measured (measured on an H200, 4.7 TB/s).
FLUSH_BYTES = 512 * 2**20
_FLUSH_SHAPE = ("read_4", 512, 4)
#: Read-only launch shapes tried for the ceiling: probe, threads, blocks per SM (0: a block a tile).
#: The best of 44 on an H200: the first at 2^25 float32 (4211 GB/s), the second at 2^28 (4643 GB/s).
_READ_SHAPES = (("read_2", 512, 0), ("read_8", 256, 0), ("read_4", 512, 4))
#: A launch takes its place in a ring, and from a cold cache that place matters: on an H200 V7 takes
#: 26.0 us where its first launch is an odd one and 25.0 where it is an even one (2^24 float32), at
#: 2^22 two of each four places cost 1 us more; what matters repeats with eight launches.
PLACES = 8
#: What stands in for the time a read of the flush buffer takes (110 us on an H200).
_IDLE_US = 110.0
#: Reads that keep the GPU under load while NVML is asked: some 2 ms on an H200.
_LOAD_READS = 16
#: Bytes that a block of a digest hashes at least, and how many blocks there are at most.
_DIGEST_BYTES, _DIGEST_BLOCKS = 2**14, 1056


class DeviceTimer:
    """What `measure` needs of a device; its flush buffer lives as long as the backend does. Kernels
    of its own are compiled when they are first asked for, which may raise BuildError."""

    def __init__(self, backend: TimedBackend, monitor: Monitor | None = None) -> None:
        self._backend, self._monitor = backend, monitor
        self._graphs: list[Graph] = []
        self._sums: list[Buffer] = []
        self.mark, self.reached = backend.mark, backend.reached
        self.elapsed_us, self.synchronize = backend.elapsed_us, backend.synchronize
        self.finish, self.host_us = backend.finish, backend.host_us
        self.reset_persisting = backend.reset_persisting

    @cached_property
    def displace(self) -> Launch:
        """Enqueue a read of far more than the L2 holds: no input stays, and no line is dirty."""
        return self._behind_stagger(self._read_over)

    @cached_property
    def _read_over(self) -> Launch:
        return self._reader(*_FLUSH_SHAPE, self.flush_buffer)

    def _behind_stagger(self, run: Launch) -> Launch:
        """A launch behind some empty ones, so that what follows has no fixed place among them."""
        random, empty = Random(), self.empty()  # no seed: two runs must not be alike in this

        def staggered() -> None:
            for _ in range(random.randrange(PLACES)):
                empty()
            run()

        return staggered

    @cached_property
    def flush_buffer(self) -> Buffer:
        """What is read to displace the cache."""
        return self._backend.allocate(max(FLUSH_BYTES, 4 * (self._backend.info().l2_bytes or 0)))

    def close_gate(self) -> None:
        """Enqueue a wait that ends when the gate is opened. Raises EnvironmentProblem."""
        self._close_gate()

    def open_gate(self) -> None:
        """Let the stream go on."""
        self._gate.open()

    @cached_property
    def _close_gate(self) -> Launch:
        return self._behind_stagger(self._gate.close)

    @cached_property
    def _gate(self) -> Gate:
        return self._backend.gate()

    def captured(self, run: Launch, count: int) -> Launch:
        """A launch of one graph that holds `count` runs; valid until `release`. Raises
        EnvironmentProblem."""

        def runs() -> None:
            for _ in range(count):
                run()

        graph = self._backend.graph(runs)
        self._graphs.append(graph)
        return graph.launch

    def release(self) -> None:
        """Give captured graphs back, and what digests are taken in."""
        for graph in self._graphs:
            graph.close()
        self._backend.free(*self._sums)
        self._graphs.clear()
        self._sums.clear()

    def in_step(self, launches: int) -> DeviceTimer:
        """This timer for samples of so many launches, each beginning one place further on than the
        one before."""
        other, read, empty = copy(self), self._read_over, self.empty()

        def displace() -> None:
            for _ in range(-launches % PLACES):
                empty()
            read()

        other.displace = displace
        return other

    def flushing(self, kind: str) -> DeviceTimer:
        """This timer with another way to prepare a sample: none, which leaves the cache as it is; a
        write of as much as the L2 holds; or nvbench, that write with work queued on both sides of
        the events, as NVIDIA's tool does. `read` is the way it has."""
        if kind == "read":
            return self
        other = copy(self)
        busy, empty = self.idle(_IDLE_US), self.empty()
        written, stream = self._written, self._backend

        def displace() -> None:
            busy()  # gives the host the time to enqueue that the read gives it
            if kind != "none":
                stream.zero(written)
            if kind == "nvbench":
                empty()

        if kind != "nvbench":
            displace = self._behind_stagger(displace)

        def synchronize() -> None:
            empty()
            stream.synchronize()

        other.displace = displace
        if kind == "nvbench":
            other.synchronize = synchronize
        return other

    @cached_property
    def _written(self) -> Buffer:
        return self._backend.allocate(self._backend.info().l2_bytes or FLUSH_BYTES)

    def conditions(self) -> Conditions:
        """Clocks, power and temperature while the GPU reads: idle, it would report other ones."""
        if self._monitor is None:
            return Conditions()
        for _ in range(_LOAD_READS):
            self.displace()
        found = self._monitor.read()
        self.synchronize()
        return found

    def empty(self) -> Launch:
        """A launch of an empty kernel, which shows what a launch costs."""
        return self._backend.launcher(self._probes["empty_kernel"], 1, 32, [])

    def readers(self, buffer: Buffer) -> dict[str, Launch]:
        """Launches that only read a buffer, in several shapes; the fastest is the ceiling."""
        return {
            f"{name} x {threads} x {per_sm or 'tile'}": self._reader(name, threads, per_sm, buffer)
            for name, threads, per_sm in _READ_SHAPES
        }

    def reader(self, buffer: Buffer, nbytes: int) -> Launch:
        """A launch that reads the first `nbytes` of a buffer, a block a tile."""
        return self._reader(*_READ_SHAPES[0], buffer, nbytes)

    def digests(self, buffers: Sequence[Buffer]) -> Callable[[], list[int]]:
        """A call that waits, and gives a hash of what each of these buffers holds; valid until
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
        """A launch that keeps the GPU busy for `us` microseconds without touching memory."""
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
        built = self._backend.build([Source(text, name, path) for name in names])
        programs: dict[str, Program] = {}
        for program in built:
            if isinstance(program, BuildError):
                raise program
            assert program is not None  # there was no deadline
            programs[program.entry] = program
        return programs


#: A wait for the whole context right behind the last event takes the host 1 us longer than behind
#: an empty launch when nothing is left, and 30 us behind a launch of several milliseconds (H200).
#: What takes this much longer every time is work; a hundredth more of long ones, up to the most.
_LATE_US, _LATE_SHARE, _MOST_LATE_US, _TRIES = 20.0, 0.01, 100.0, 10


def late_work(timer: Timer, run: Launch, cost_us: float) -> str | None:
    """What is wrong if the device still works when the end event has fired; None if it does not.
    One run takes about `cost_us`."""
    limit = min(_LATE_US + _LATE_SHARE * cost_us, _MOST_LATE_US)
    late = []
    for _ in range(_TRIES):
        late.append(_wait_behind(timer, run) - _wait_behind(timer, lambda: None))
        if late[-1] < limit:
            return None
    return (
        f"the device worked for {min(late):.0f} us after its end event: part of the work runs "
        "outside the stream that is timed"
    )


def _wait_behind(timer: Timer, run: Launch) -> float:
    run()
    end = timer.mark()
    while not timer.reached(end):
        pass
    began = timer.host_us()
    timer.finish()
    return timer.host_us() - began


#: Clocks and power settle first; then the counter is watched.
_WARM_US, _STRETCH_US = 0.3e6, 1.2e6
#: GPU time that is enqueued at once, and the launches it is spent on at most: two such are always
#: under way, and the driver's queue holds some 1000 launches.
_CHUNK_US, _MOST_LAUNCHES = 5_000.0, 256

#: Joules since some moment, None where nobody counts them.
Counter = Callable[[], float | None]


def joules(timer: DeviceTimer, run: Launch, cost_us: float, counter: Counter) -> float | None:
    """Joules of one launch that takes about `cost_us`; None where the GPU does not count them, or
    renews its count too seldom."""
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
    """Keep the GPU busy so long: microseconds a launch, and the power in watts."""
    renewals: list[tuple[float, float]] = []
    first = before = timer.mark()
    seen, chunks, end_us = counter(), 0, timer.host_us() + for_us
    while timer.host_us() < end_us or not chunks:
        for _ in range(launches):
            run()
        event, chunks = timer.mark(), chunks + 1
        while True:
            count = counter()
            if count is not None and count != seen:
                renewals.append((timer.host_us(), count))
                seen = count
            if timer.reached(before):
                break
        before = event
    while not timer.reached(before):
        pass
    each_us = timer.elapsed_us(first, before) / (chunks * launches)
    if len(renewals) < 2:
        return each_us, None
    (from_us, low), (to_us, high) = renewals[0], renewals[-1]
    return each_us, 1e6 * (high - low) / (to_us - from_us)
