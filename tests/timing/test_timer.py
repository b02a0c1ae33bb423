"""The flush before a sample: a read after a random number of empty launches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from cudareduce.backends.cuda.cuda import CudaBackend
from cudareduce.errors import CudareduceError, EnvironmentProblem, OutOfMemory
from cudareduce.machine import DeviceInfo, DeviceLimits
from cudareduce.timing.timer import FLUSH_BYTES, RING_PERIOD, DeviceTimer


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def timer(log: list[str]) -> DeviceTimer:
    """A timer on a device that only logs launches."""
    backend = SimpleNamespace(
        info=lambda: DeviceInfo("Device", l2_bytes=60 * 2**20),
        limits=lambda: DeviceLimits(132, 2048),
        allocate=lambda nbytes: SimpleNamespace(nbytes=nbytes),
        build=lambda sources: [SimpleNamespace(entry=source.entry) for source in sources],
        launcher=lambda program, *shape: lambda: log.append(program.entry),
        zero=lambda buffer: log.append(f"write of {buffer.nbytes}"),
        synchronize=lambda: None, reset_persisting=lambda: None,
        mark=None, reached=None, elapsed_us=None, finish=None, host_us=None,
    )  # fmt: skip
    made: Any = backend
    return DeviceTimer(made)


def test_a_flush_is_a_read_after_a_random_number_of_launches(
    timer: DeviceTimer, log: list[str]
) -> None:
    assert timer.flush_buffer.nbytes == FLUSH_BYTES
    counts = Counter[int]()
    for _ in range(400):
        log.clear()
        timer.flush()
        *empty, last = log
        assert last == "read_4"
        assert set(empty) <= {"empty_kernel"}
        counts[len(empty)] += 1
    assert set(counts) == set(range(RING_PERIOD))


@pytest.mark.parametrize("launches", [1, 2, 3, 8, 9])
def test_in_step_each_sample_begins_one_ring_position_further(
    timer: DeviceTimer, log: list[str], launches: int
) -> None:
    stepping = timer.with_ring_step(launches)
    places = []
    for _ in range(RING_PERIOD):
        stepping.flush()
        places.append(len(log) % RING_PERIOD)
        log += ["kernel"] * launches
    assert sorted(places) == list(range(RING_PERIOD))


def test_each_flush_method_clears_the_cache_in_its_way(timer: DeviceTimer, log: list[str]) -> None:
    assert timer.with_flush("read") is timer
    timer.with_flush("none").flush()
    assert set(log) <= {"empty_kernel", "wait_ns"} and log[-1] == "wait_ns"
    log.clear()
    timer.with_flush("write").flush()
    assert log[-2:] == ["wait_ns", f"write of {60 * 2**20}"]
    log.clear()
    like_theirs = timer.with_flush("nvbench")
    like_theirs.flush()
    like_theirs.synchronize()
    assert log == ["wait_ns", f"write of {60 * 2**20}", "empty_kernel", "empty_kernel"]


class Refused(Exception):
    """An error of the driver."""


class NoMemory(Refused):
    """The driver has none left."""


@dataclass
class Device:
    """The only GPU of a driver, with its primary context."""

    said: Exception

    def __call__(self, index: int) -> Device:
        return self

    def count(self) -> int:
        return 1

    def retain_primary_context(self) -> SimpleNamespace:
        return SimpleNamespace(push=lambda: None, detach=lambda: None)

    def make_context(self) -> None:
        raise self.said


@pytest.mark.parametrize(
    ("said", "becomes"),
    [(Refused("prohibited"), EnvironmentProblem), (NoMemory("out"), OutOfMemory)],
)
def test_a_refused_context_is_an_environment_or_memory_problem(
    monkeypatch: pytest.MonkeyPatch, said: Exception, becomes: type[CudareduceError]
) -> None:
    pycuda = SimpleNamespace(
        Device=Device(said), Stream=SimpleNamespace, Error=Refused, MemoryError=NoMemory
    )
    monkeypatch.setattr("cudareduce.backends.cuda.driver.load", lambda: pycuda)
    with CudaBackend() as backend, pytest.raises(becomes, match="context"), backend.another():
        pass
