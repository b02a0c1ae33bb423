"""A GPU made of the CPU emulator and a clock that only counts: answers are real, times are not.

A kernel takes what its bytes suggest, with noise, and longer where its text says `// slower: 3 %`
(or sooner, with a minus). Launches whose inputs have not changed are not run again, since their
answers are there already.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cudareduce.backend import Buffer, BuildError, DeviceInfo, DeviceLimits, Launch, Program, Source
from cudareduce.emulator.cpu import CpuBackend
from cudareduce.gpu.cuda import CudaBackend
from cudareduce.gpu.nvml import Conditions, Monitor
from tests.simulate import H200

_HUGE = 2**27


@dataclass
class FakeProgram:
    entry: str
    binary_sha: str | None
    factor: float = 1.0
    inner: Program | None = None

    def set_constant(self, name: str, value: int) -> None:
        if self.inner:
            self.inner.set_constant(name, value)


@dataclass
class Dummy:
    """Memory that nothing is read from: the flush buffer."""

    nbytes: int


class NoMonitor(Monitor):
    """Knows nothing of clocks and of other processes."""

    problem = None

    def __init__(self) -> None:
        pass

    def read(self) -> Conditions:
        return Conditions()

    def strangers(self, own: Sequence[int]) -> int:
        return 0

    def close(self) -> None:
        pass


@contextmanager
def buffers_end(cpu: CpuBackend) -> Iterator[None]:
    """On leaving, release what has been allocated since."""
    before = set(cpu._finalizers)
    try:
        yield
    finally:
        for address in set(cpu._finalizers) - before:
            cpu._finalizers.pop(address)()


class FakeGpu(CudaBackend):
    """What CudaBackend offers, on a clock of its own."""

    def __init__(self, cache: Path, seed: int = 0, device: DeviceInfo = H200) -> None:
        self._cpu, self._device_info = CpuBackend(cache=cache), device
        self._clock, self._epoch = 0.0, 0
        self._asked: float | None = None
        self._rng = np.random.default_rng(seed)

    def __enter__(self) -> FakeGpu:
        self._cpu.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._cpu.__exit__(*error)

    @contextmanager
    def another(self) -> Iterator[FakeGpu]:
        """No context of its own, but buffers that end with it."""
        with buffers_end(self._cpu):
            yield self

    def info(self) -> DeviceInfo:
        return self._device_info

    def limits(self) -> DeviceLimits:
        return DeviceLimits(132, 2048)

    def build(
        self, sources: Sequence[Source], progress: Callable[[], None] = lambda: None
    ) -> list[Program | BuildError]:
        probes = all(source.path.name == "probes.cu" for source in sources)
        made = [None] * len(sources) if probes else self._cpu.build(sources, progress)
        return [
            inner if isinstance(inner, BuildError) else self._program(source, inner)
            for source, inner in zip(sources, made, strict=True)
        ]

    def _program(self, source: Source, inner: Program | None) -> FakeProgram:
        said = re.search(r"// slower: (-?[\d.]+) %", source.text)
        text = re.sub(r"#line.*", "", source.text)  # machine code does not know its file's folder
        sha = hashlib.sha256(text.encode()).hexdigest()
        return FakeProgram(source.entry, sha, 1 + float(said[1] if said else 0) / 100, inner)

    def upload(self, array: np.ndarray, misalign: int = 0) -> Any:
        self._epoch += 1
        return self._cpu.upload(array, misalign)

    def allocate(self, nbytes: int) -> Any:
        return Dummy(nbytes) if nbytes >= _HUGE else self._cpu.allocate(nbytes)

    def poison(self, buffer: Buffer) -> None:
        self._epoch += 1
        self._cpu.poison(buffer)

    def zero(self, buffer: Buffer) -> None:
        self._epoch += 1
        self._cpu.zero(buffer)

    def download(self, buffer: Buffer, dtype: str, count: int) -> np.ndarray:
        return self._cpu.download(buffer, dtype, count)

    def free(self, *buffers: Buffer) -> None:
        self._cpu.free(*buffers)

    def launcher(
        self,
        program: Program,
        grid: int,
        block: int,
        args: Sequence[Buffer | int],
        dynamic_shared: int = 0,
    ) -> Launch:
        assert isinstance(program, FakeProgram)
        shape = grid, block, args, dynamic_shared
        inner = self._cpu.launcher(program.inner, *shape) if program.inner else None
        nbytes = getattr(args[0], "nbytes", 0) if args else 0
        return self._timed(inner, (2.7 + nbytes / 4e6) * program.factor)

    def filler(self, buffer: Buffer, pattern: bytes) -> Launch:
        return self._timed(self._cpu.filler(buffer, pattern), 1.5)

    def _timed(self, inner: Launch | None, us: float) -> Launch:
        ran = -1

        def run() -> None:
            nonlocal ran
            if inner and ran != self._epoch:
                inner()
                ran = self._epoch
            self._clock += us * float(np.exp(self._rng.normal(0, 0.003)))

        return run

    def synchronize(self) -> None:
        self._cpu.synchronize()

    def mark(self) -> float:
        return self._clock

    def reached(self, event: Any) -> bool:
        """Not yet, when first asked: work takes time. Then yes, for whoever waits."""
        again, self._asked = self._asked == event, event
        return again

    def finish(self) -> None:
        pass

    def monitor(self) -> Monitor:
        return NoMonitor()

    def damage(self, buffer: Buffer) -> None:
        """The emulator stops at the first byte outside a buffer."""

    def elapsed_us(self, start: Any, end: Any) -> float:
        return float(end - start)


@contextmanager
def fake_gpu(monkeypatch: Any, cache: Path, **device: Any) -> Iterator[None]:
    """Make `--backend cuda` open a fake one, each time with noise of its own."""
    seeds = iter(range(1, 1000))

    def open_cuda(spec: object) -> FakeGpu:
        return FakeGpu(cache, next(seeds), replace(H200, **device))

    with monkeypatch.context() as patch:
        patch.setattr("cudareduce.backends.open_cuda", open_cuda)
        yield


def main() -> None:
    """The command line on a fake GPU, for tests that run shell lines."""
    import os

    import cudareduce.backends
    from cudareduce.cli.main import main as command_line

    cache = Path(os.environ["CUDAREDUCE_TEST_CACHE"])
    seed = int.from_bytes(os.urandom(4), "little")
    cudareduce.backends.default_cache = lambda: cache
    cudareduce.backends.open_cuda = lambda spec: FakeGpu(cache, seed)
    command_line()


if __name__ == "__main__":
    main()
