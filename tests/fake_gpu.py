"""A GPU that is none: kernels run on the CPU emulator, and a clock that only counts goes on by what
they would cost. Answers are real, times are not.

A kernel takes a floor and what its bytes suggest, with noise, and longer where `factors` or its own
text says so (`// slower: 3 %`, or sooner, with a minus). A `lazy` one writes again what a launch
has written before from the same input.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import pickle
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.backends.protocol import (
    Argument,
    Backend,
    BackendName,
    Buffer,
    Gate,
    Graph,
    KernelCall,
    Launch,
    Monitor,
    Program,
    Source,
    TimedBackend,
    Traits,
)
from cudareduce.backends.selection import BackendSpec, open_backend
from cudareduce.bench.jobs import Jobs
from cudareduce.budget import Deadline
from cudareduce.catalog.registry import Registry
from cudareduce.compare.measure import Batch, Bencher
from cudareduce.compare.verdicts import Measured
from cudareduce.errors import BuildError
from cudareduce.machine import Conditions, DeviceInfo, DeviceLimits
from cudareduce.progress import phase
from cudareduce.verify.isolation import Isolation, Key
from cudareduce.verify.jobs import Job, combined, verify_job
from cudareduce.verify.patterns import Inputs
from cudareduce.verify.verdict import RIGHT, Verdict
from tests.simulate import H200

PEAK_GB_S, WATTS = 4000.0, 600.0
CALM = Conditions(1980.0, 3201.0, 300.0, 40.0, 0)
#: A card whose memory is slow, so that small sizes take a time that grows with them.
SLOW = DeviceInfo("Fake GPU", l2_bytes=2**20, peak_gb_s=PEAK_GB_S, cc="9.0")
TRAITS = Traits(isolated=False, large=False, host_copies=1)
_HUGE = 2**27
_FLUSH_US, _EMPTY_US, _FILL_US = 110.0, 1.5, 1.5


class FakeMonitor:
    """Tells what it was told to; the last state stays."""

    def __init__(
        self, states: Sequence[Conditions] = (CALM,), problem: str | None = None, others: int = 0,
        watts: float | None = None,
    ) -> None:  # fmt: skip
        self.states, self.problem, self.others = list(states), problem, others
        self.watts, self.gpu = watts, cast("FakeGpu | None", None)

    def read(self) -> Conditions:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def energy_j(self) -> float | None:
        """Renewed at every look, which takes the host 50 ms: a second of it is soon over."""
        if self.watts is None or self.gpu is None:
            return None
        self.gpu.host += 5e4
        return self.watts * self.gpu.host / 1e6

    def other_processes(self) -> int:
        return self.others


@dataclass
class FakeProgram:
    entry: str
    binary_sha: str | None
    factor: float = 1.0
    inner: Program | None = None

    def set_constant(self, name: str, *values: int) -> None:
        if self.inner:
            self.inner.set_constant(name, *values)


@dataclass
class Dummy:
    """Memory that nothing is read from: the flush buffer."""

    nbytes: int


class FakeGate:
    """There is no host that a stream could wait for."""

    def close(self) -> None:
        pass

    def open(self) -> None:
        pass


class FilePeerMemory:
    """A file that processes map, in the place of a GPU's memory."""

    def __init__(self, nbytes: int, folder: Path) -> None:
        self._nbytes, self._path = nbytes, folder / f"peer-{os.getpid()}"
        self._path.write_bytes(b"")
        os.truncate(self._path, nbytes)
        self.handle = os.fsencode(self._path)
        self._maps: list[mmap.mmap] = []
        self.address = self.open(self.handle)

    def open(self, handle: bytes) -> int:
        with Path(os.fsdecode(handle)).open("r+b") as file:
            self._maps.append(mmap.mmap(file.fileno(), self._nbytes))
        return ctypes.addressof(ctypes.c_char.from_buffer(self._maps[-1]))

    def give_up(self) -> None:
        pass

    def free(self) -> None:
        self._path.unlink()


@dataclass
class FakeGraph:
    """A replay costs the host 3 us, whatever it holds."""

    gpu: FakeGpu
    run: Launch

    @property
    def launch(self) -> Launch:
        def replay() -> None:
            host, self.gpu.replaying = self.gpu.host, True
            self.run()
            self.gpu.host, self.gpu.replaying = host + 3, False

        return replay

    def close(self) -> None:
        pass


@dataclass
class FakeGpu:
    """A `TimedBackend` on a clock of its own, in us.

    `emulates`: kernels really run. `lazy`: only on inputs that are new to them. `elsewhere`: a
    context other than the first is current, `contexts` counts those. `last` was launched last.
    """

    cache: Path
    seed: int = 0
    device: DeviceInfo = SLOW
    factors: Mapping[str, float] = field(default_factory=dict)
    floor_us: float = 2.0
    bytes_per_us: float = 3.5e3
    event_us: float = 1.28
    noise: float = 0.001
    states: FakeMonitor = field(default_factory=FakeMonitor)
    emulates: bool = True
    lazy: bool = False
    clock: float = 0.0
    host: float = 0.0
    elsewhere: bool = False
    contexts: int = 0
    capturing: bool = False
    replaying: bool = False
    last: str = ""
    threads: int | None = None

    name: BackendName = "cuda"
    traits: Traits = TRAITS
    stream_handle: int = 0

    def __post_init__(self) -> None:
        self._cpu = CpuBackend(cache=self.cache, threads=self.threads)
        self._chances = self._drawn(np.random.default_rng(self.seed))
        self._built: dict[Source, Program | BuildError] = {}
        self._holds: dict[int, object] = {}  # what a buffer holds, by its address
        self._pinned: set[int] = set()
        self._asked: float | None = None

    def __enter__(self) -> FakeGpu:
        return self

    def __exit__(self, *error: Any) -> None:
        self._cpu.close()

    def timed(self) -> TimedBackend:
        return self

    def sparse(self) -> None:
        pass

    @contextmanager
    def another(self) -> Iterator[TimedBackend]:
        """No context of its own, but buffers that end with it."""
        before, self.elsewhere = set(self._cpu._finalizers), True
        self.contexts += 1
        try:
            yield self
        finally:
            self.elsewhere = False
            for address in set(self._cpu._finalizers) - before:
                self._cpu._finalizers.pop(address)()

    def info(self) -> DeviceInfo:
        return self.device

    def limits(self) -> DeviceLimits:
        return DeviceLimits(132, 2048)

    def build(
        self,
        sources: Sequence[Source],
        progress: Callable[[], None] = lambda: None,
        deadline: Deadline | None = None,
    ) -> list[Program | BuildError | None]:
        """What was built before is not built again: hundreds of contexts ask for the same."""
        if all(source.path.name == "probes.cu" for source in sources):
            return [self._program(source, None) for source in sources]
        new = [source for source in sources if source not in self._built]
        if new:
            for source, made in zip(new, self._cpu.build(new, progress, deadline), strict=True):
                if made is not None:
                    self._built[source] = made
        for _ in range(len(sources) - len(new)):
            progress()
        found = [self._built.get(source) for source in sources]
        return [
            made if made is None or isinstance(made, BuildError) else self._program(source, made)
            for source, made in zip(sources, found, strict=True)
        ]

    @staticmethod
    def _program(source: Source, inner: Program | None) -> FakeProgram:
        said = re.search(r"// slower: (-?[\d.]+) %", source.text)
        text = re.sub(r"#line.*", "", source.text)  # machine code does not know its file's folder
        sha = hashlib.sha256(text.encode()).hexdigest()
        return FakeProgram(source.entry, sha, 1 + float(said[1] if said else 0) / 100, inner)

    def upload(self, array: np.ndarray, misalign: int = 0) -> Buffer:
        buffer = self._cpu.upload(array, misalign)
        self._holds[buffer.address] = object()
        return buffer

    def allocate(self, nbytes: int) -> Buffer:
        return cast(Buffer, Dummy(nbytes)) if nbytes >= _HUGE else self._cpu.allocate(nbytes)

    def write(self, buffer: Buffer, array: np.ndarray, offset: int = 0) -> None:
        self._cpu.write(buffer, array, offset)
        self._holds[_address(buffer)] = object()

    def poison(self, buffer: Buffer, byte: int = 0xFF) -> None:
        self._cpu.poison(buffer, byte)

    def zero(self, buffer: Buffer) -> None:
        if not isinstance(buffer, Dummy):
            self._cpu.zero(buffer)

    def damage(self, buffer: Buffer) -> str | None:
        """The emulator stops at the first byte outside a buffer."""
        return None

    def download(self, buffer: Buffer, dtype: str, count: int) -> np.ndarray:
        return self._cpu.download(buffer, dtype, count)

    def overwrite(self, buffer: Buffer, offset: int, source: Buffer) -> None:
        ctypes.memmove(_address(buffer) + offset, _address(source), source.nbytes)
        self._holds[_address(buffer)] = offset, self._holds.get(_address(source))

    def new_stream(self) -> FakeGpu:
        return self

    def pin(self, array: np.ndarray) -> Buffer:
        buffer = self._cpu.pin(array)
        self._pinned.add(buffer.address)
        return buffer

    def copy_in(self, buffer: Buffer, array: np.ndarray) -> None:
        """At a fiftieth of the rate of a kernel."""
        self.write(buffer, array)
        self.clock += 50 * array.nbytes / self.bytes_per_us

    def follow(self, mark: float) -> None:
        pass

    def wait(self, mark: float) -> None:
        pass

    def reset_persisting(self) -> None:
        pass

    def free(self, *buffers: Buffer) -> None:
        self._cpu.free(*(buffer for buffer in buffers if not isinstance(buffer, Dummy)))

    def schedules(self, repeats: int, *, quick: bool) -> Iterator[str]:
        yield from [""] * repeats

    def _drawn(self, random: np.random.Generator) -> Iterator[float]:
        """Chance in the time of each launch, from -1 to 1; drawn a thousand at a time, which takes
        as long as five alone."""
        while True:
            yield from random.uniform(-1, 1, 1000).tolist()

    def cost_us(self, name: str, nbytes: int) -> float:
        """What a launch that reads so many bytes takes."""
        us = self.floor_us + nbytes / self.bytes_per_us
        return us * self.factors.get(name, 1.0) * (1 + self.noise * next(self._chances))

    def launcher(
        self,
        program: Program,
        grid: int,
        block: int,
        args: Sequence[Argument],
        dynamic_shared: int = 0,
    ) -> Launch:
        assert isinstance(program, FakeProgram)
        if program.entry == "empty_kernel":  # which hides a sample's place: several for each
            return self._spending(_EMPTY_US, _EMPTY_US)
        run = self._launch(program, grid, block, args, dynamic_shared)

        def noted() -> None:
            run()
            self.last = program.entry

        return noted

    def call(self, program: Program, call: KernelCall) -> Launch:
        assert isinstance(program, FakeProgram) and program.inner is not None
        inner = self._cpu.call(program.inner, call)
        return self._running(inner, lambda: self.cost_us(program.entry, 0) * program.factor)

    def variable(self, program: Program, index: int, nbytes: int) -> tuple[Buffer, bytes]:
        assert isinstance(program, FakeProgram) and program.inner is not None
        return self._cpu.variable(program.inner, index, nbytes)

    def _launch(
        self,
        program: FakeProgram,
        grid: int,
        block: int,
        args: Sequence[Argument],
        dynamic_shared: int,
    ) -> Launch:
        nbytes = getattr(args[0], "nbytes", 0) if args else 0
        if program.entry == "wait_ns":
            us = float(args[0]) / 1e3  # type: ignore[arg-type]
            return self._spending(us, us)
        if program.entry == "digest":
            return self._hashing(*args)  # type: ignore[arg-type]
        if program.inner is None:
            return self._reading(nbytes, 16 * int(args[2]))  # type: ignore[arg-type]
        inner = self._cpu.launcher(program.inner, grid, block, args, dynamic_shared)
        if self.lazy:
            inner = self._once(inner, [arg for arg in args if not isinstance(arg, (int, tuple))])
        return self._running(inner, lambda: self.cost_us(program.entry, nbytes) * program.factor)

    def _once(self, inner: Launch, buffers: Sequence[Buffer]) -> Launch:
        """A launch that runs on each input once, and then writes again what it wrote."""
        source, *targets = map(_address, buffers)
        if source in self._pinned:  # which the host may change
            return inner
        written: dict[object, list[bytes]] = {}

        def launch() -> None:
            held = self._holds.get(source)
            known = written.get(held)
            if known is None:
                inner()
                written[held] = [
                    ctypes.string_at(at, buffer.nbytes)
                    for at, buffer in zip(targets, buffers[1:], strict=True)
                ]
            for at, values in zip(targets, known or (), strict=False):
                ctypes.memmove(at, values, len(values))
            self._holds[targets[0]] = launch, held

        return launch

    def _hashing(self, buffer: Buffer, nbytes: int, sums: Buffer, slot: int) -> Launch:
        """A probe that hashes memory."""

        def digest() -> None:
            value = zlib.crc32(ctypes.string_at(_address(buffer), nbytes))
            ctypes.c_uint64.from_address(_address(sums) + 8 * slot).value = value

        return digest

    def _reading(self, held: int, nbytes: int) -> Launch:
        """A probe that only reads; one of the flush buffer costs what displacing a cache does."""

        def read() -> None:
            self.clock += _FLUSH_US if held >= _HUGE else self.cost_us("read", nbytes) - 0.5
            self.host += _FLUSH_US if held >= _HUGE else 0.0

        return read

    def _spending(self, us: float, host_us: float) -> Launch:
        def spend() -> None:
            self.clock += us
            self.host += host_us

        return spend

    def filler(self, buffer: Buffer, pattern: bytes, offset: int = 0) -> Launch:
        return self._running(self._cpu.filler(buffer, pattern, offset), lambda: _FILL_US)

    def copier(
        self, target: Buffer, target_offset: int, source: Buffer, source_offset: int, nbytes: int
    ) -> Launch:
        copy = self._cpu.copier(target, target_offset, source, source_offset, nbytes)
        return self._running(copy, lambda: _FILL_US)

    def _running(self, inner: Launch, cost_us: Callable[[], float]) -> Launch:
        def run() -> None:
            if self.emulates:
                inner()
            self.clock += cost_us()
            self.host += 5

        return run

    def synchronize(self) -> None:
        self._cpu.synchronize()

    def finish(self) -> None:
        pass

    def monitor(self) -> Monitor:
        self.states.gpu = self
        return self.states

    def mark(self) -> float:
        return self.clock

    def reached(self, event: float) -> bool:
        """Not yet, when first asked: work takes time. Then yes, for whoever waits."""
        again, self._asked = self._asked == event, event
        return again

    def elapsed_us(self, start: float, end: float) -> float:
        return end - start + self.event_us

    def host_us(self) -> float:
        return self.host

    def printed(self) -> list[str]:
        return []

    def gate(self) -> Gate:
        return FakeGate()

    def graph(self, run: Launch) -> Graph:
        clock, host, self.capturing = self.clock, self.host, True
        try:
            run()  # which a GPU would only note
        finally:
            self.clock, self.host, self.capturing = clock, host, False
        return FakeGraph(self, run)


def _address(buffer: Buffer) -> int:
    assert not isinstance(buffer, (int, Dummy))
    return buffer.address


@dataclass
class Together(Isolation):
    """Verification of foreign kernels in this process: a child could not reach the fake GPU."""

    gpu: Backend
    cache: Path

    def verify(
        self,
        queues: Mapping[Key, Sequence[Job]],
        *_: Any,
    ) -> Iterator[tuple[Key, Verdict]]:
        for case, jobs in queues.items():
            verdict = RIGHT
            for job in jobs:
                verdict = combined(verdict, self._judged(job))
                if verdict.outcome == "fail":
                    break
            yield case, verdict

    def _judged(self, job: Job) -> Verdict:
        """The verdict of a job. What was found right is right again, wherever the file lies and
        whatever its name: most tests look at the same kernel under several, made slower or not,
        and not at how it is verified."""
        kernel = job.prepared.case.kernel
        text = re.sub(r"\n\s*// slower: .*", "", kernel.text)
        asked = f"{text}{job!r}".replace(str(kernel.path), "").replace(kernel.id, "")
        found = self.cache / f"right-{hashlib.sha256(asked.encode()).hexdigest()}"
        if found.exists():
            return pickle.loads(found.read_bytes())  # type: ignore[no-any-return]
        with self._emulator(job.spec) as backend:
            verdict = verify_job(job, backend, Inputs())
        if verdict.outcome == "pass":
            whole = found.with_suffix(f".{os.getpid()}")
            whole.write_bytes(pickle.dumps(verdict))
            whole.replace(found)
        return verdict

    @contextmanager
    def _emulator(self, spec: BackendSpec) -> Iterator[Backend]:
        """What a job runs on: the GPU, unless it asks for the CPU."""
        if spec.name != "cpu":
            yield self.gpu
            return
        with open_backend(spec) as backend:
            yield backend

    def close(self) -> None:
        pass


def in_this_process(
    spec: BackendSpec, registry: Registry, batches: Sequence[Batch], quiet: bool
) -> Measured:
    """What a process begun anew would measure: another could not reach the fake GPU."""
    with open_backend(spec) as backend:
        return Bencher(backend, spec, registry, partial(phase, quiet=quiet)).measure(batches)


def use(monkeypatch: pytest.MonkeyPatch, gpu: Callable[[], FakeGpu] | FakeGpu) -> None:
    """Make every command take this for the GPU of the machine, or what it makes at each opening.
    Kernels of the package are tried at two sizes where they may go wrong: at all of them they are
    in tests/verify."""

    def opened(spec: BackendSpec) -> FakeGpu:
        made = gpu if isinstance(gpu, FakeGpu) else gpu()
        monkeypatch.setattr(
            "cudareduce.bench.session.Isolation", lambda: Together(made, made.cache)
        )
        return made

    monkeypatch.setattr("cudareduce.bench.runner.edge_sizes", lambda block: [1, block + 1])
    monkeypatch.setattr("cudareduce.bench.runner.ROW_SHAPES", ((5, 33), (33, 5)))
    monkeypatch.setattr("cudareduce.backends.selection.open_cuda", opened)
    monkeypatch.setattr("cudareduce.compare.measure.measure_in_fresh_process", in_this_process)


def quick(cache: Path, seed: int, device: DeviceInfo = H200, floor_us: float = 300.0) -> FakeGpu:
    """One that reads 4 TB/s and runs kernels only where their inputs have changed. A launch takes
    so long that one makes a sample, where of short ones it takes eight."""
    return FakeGpu(
        cache, seed, device, floor_us=floor_us, bytes_per_us=4e6, event_us=0.0, noise=0.005,
        lazy=True, states=FakeMonitor([Conditions()], watts=WATTS),
    )  # fmt: skip


@contextmanager
def fake_gpu(
    monkeypatch: pytest.MonkeyPatch, cache: Path, *, floor_us: float = 300.0, **device: Any
) -> Iterator[None]:
    """Make `--backend cuda` open a fake one, each time with noise of its own."""
    seeds = iter(range(1, 1000))
    with monkeypatch.context() as patch:
        use(patch, lambda: quick(cache, next(seeds), replace(H200, **device), floor_us))
        yield


def main() -> None:
    """The command line on a fake GPU, for tests that run shell lines."""
    from cudareduce.__main__ import main as program

    cache = Path(os.environ["CUDAREDUCE_TEST_CACHE"])
    patch = pytest.MonkeyPatch()
    patch.setattr("cudareduce.backends.selection.default_cache", lambda: cache)
    patch.setattr(Jobs, "emulator", None)  # what watches files of a user is tried elsewhere
    use(patch, quick(cache, int.from_bytes(os.urandom(4), "little")))
    program()


if __name__ == "__main__":
    main()
