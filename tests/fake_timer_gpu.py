"""A GPU that is none: kernels run on the emulator, and a clock goes on by what they would cost.

With it the whole way from options to table runs where there is no GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cudareduce.backend import Buffer, DeviceInfo, Launch, Program
from cudareduce.backends import BackendSpec
from cudareduce.emulator.cpu import CpuBackend
from cudareduce.gpu.cuda import CudaBackend
from cudareduce.gpu.nvml import Conditions, Monitor
from cudareduce.timing.timer import CudaTimer
from tests.fake_gpu import buffers_end

PEAK_GB_S = 4000.0
CALM = Conditions(1980.0, 3201.0, 300.0, 40.0, 0)


class FakeMonitor(Monitor):
    """Tells what it was told to; the last state stays."""

    def __init__(self, states: Sequence[Conditions] = (CALM,), problem: str | None = None) -> None:
        self._states, self.problem = list(states), problem
        self.others = 0

    def read(self) -> Conditions:
        return self._states.pop(0) if len(self._states) > 1 else self._states[0]

    def strangers(self, own: Sequence[int]) -> int:
        return self.others


class FakeGpu(CpuBackend, CudaBackend):
    """The emulator under the name of a GPU, with events on a made-up clock."""

    name = "cuda"

    def __init__(self, cache: Path, factors: Mapping[str, float] | None = None) -> None:
        super().__init__(cache=cache)
        self.clock, self.host = 0.0, 0.0
        self.factors = dict(factors or {})
        self.random = Random(0)
        self.noise = 0.001
        self.states: FakeMonitor = FakeMonitor()
        self._polled: float | None = None
        self.emulates = True
        self.elsewhere = False

    @contextmanager
    def another(self) -> Iterator[FakeGpu]:
        """No context of its own, but buffers that end with it."""
        self.elsewhere = True
        try:
            with buffers_end(self):
                yield self
        finally:
            self.elsewhere = False

    def info(self) -> DeviceInfo:
        return replace(DeviceInfo("Fake GPU"), l2_bytes=2**20, peak_gb_s=PEAK_GB_S, cc="9.0")

    def cost_us(self, name: str, nbytes: int) -> float:
        noise = 1 + self.random.uniform(-self.noise, self.noise)
        return (2.0 + nbytes / 3.5e3) * self.factors.get(name, 1.0) * noise

    def launcher(
        self,
        program: Program,
        grid: int,
        block: int,
        args: Sequence[Buffer | int],
        dynamic_shared: int = 0,
    ) -> Launch:
        launch = super().launcher(program, grid, block, args, dynamic_shared)
        nbytes = args[0].nbytes  # type: ignore[union-attr]

        def timed() -> None:
            self.clock += self.cost_us(program.entry, nbytes)
            self.host += 5
            if self.emulates:
                launch()

        return timed

    def monitor(self) -> Monitor:
        return self.states

    def finish(self) -> None:
        pass

    def mark(self) -> float:
        return self.clock

    def reached(self, event: float) -> bool:
        """Not yet, when first asked: work takes time. Then yes, for whoever waits."""
        again, self._polled = self._polled == event, event
        return again

    def elapsed_us(self, start: float, end: float) -> float:
        return end - start + 1.28


class FakeTimer(CudaTimer):
    """Probes that cost time on the made-up clock and touch nothing."""

    def __init__(self, backend: FakeGpu, monitor: Monitor | None = None) -> None:
        super().__init__(backend, monitor)
        self._gpu = backend

    def _spend(self, us: float) -> Launch:
        def spend() -> None:
            self._gpu.clock += us
            self._gpu.host += us

        return spend

    @cached_property
    def _read_over(self) -> Launch:
        return self._spend(110)

    def empty(self) -> Launch:
        return self._spend(1.5)

    def idle(self, us: float) -> Launch:
        return self._spend(us)

    def readers(self, buffer: Buffer) -> dict[str, Launch]:
        return {"read": self.reader(buffer, buffer.nbytes)}

    def reader(self, buffer: Buffer, nbytes: int) -> Launch:
        def read() -> None:
            self._gpu.clock += self._gpu.cost_us("read", nbytes) - 0.5

        return read

    def close_gate(self) -> None:
        pass

    def open_gate(self) -> None:
        pass

    def captured(self, run: Launch, count: int) -> Launch:
        def replay() -> None:
            host = self._gpu.host
            for _ in range(count):
                run()
            self._gpu.host = host + 3

        return replay

    def host_us(self) -> float:  # type: ignore[override]
        return self._gpu.host

    def conditions(self) -> Conditions:
        return self._monitor.read() if self._monitor else Conditions()


Use = Callable[[FakeGpu], None]


def use(monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu) -> None:
    """Make every command take this for the GPU of the machine."""

    def opened(spec: BackendSpec) -> AbstractContextManager[Any]:
        return nullcontext(gpu)

    monkeypatch.setattr("cudareduce.bench.command.open_backend", opened)
    monkeypatch.setattr(
        "cudareduce.bench.command.choose_backend", lambda *_: (BackendSpec("cuda"), None)
    )
    monkeypatch.setattr("cudareduce.bench.command.load_bindings", lambda: None)
    monkeypatch.setattr("cudareduce.timing.contexts.CudaTimer", FakeTimer)
    monkeypatch.setattr("cudareduce.selftest.command.open_cuda", opened)
