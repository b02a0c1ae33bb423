"""Energy: power between updates of the counter, times the duration of a launch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudareduce.timing.timer import Counter, DeviceTimer, joules
from tests.fake_gpu import FakeGpu


def counter(gpu: FakeGpu, watts: float, every_us: float) -> Counter:
    """Joules at this power, renewed every so often; a look takes the host a moment."""

    def look() -> float:
        gpu.host += 100.0
        return watts * (gpu.host // every_us * every_us) / 1e6

    return look


@pytest.fixture
def gpu(cache: Path) -> FakeGpu:
    return FakeGpu(cache)


def launch(gpu: FakeGpu, us: float) -> Callable[[], None]:
    """So long on the GPU, and as long on the host, which waits for it."""

    def run() -> None:
        gpu.clock += us
        gpu.host += us

    return run


@pytest.mark.parametrize("us", [5.0, 60.0, 250_000.0])
@pytest.mark.parametrize("every_us", [20_000.0, 100_000.0])
def test_energy_is_power_times_time(gpu: FakeGpu, us: float, every_us: float) -> None:
    found = joules(DeviceTimer(gpu), launch(gpu, us), us, counter(gpu, 650.0, every_us))
    assert found == pytest.approx(650 * us / 1e6, rel=0.02)


def test_the_power_of_the_first_moment_does_not_count(gpu: FakeGpu) -> None:
    """A GPU that was idle before takes less in the first moment."""
    jumped = 650.0 * 0.2e6

    def look() -> float:
        gpu.host += 100.0
        renewed = gpu.host // 20_000 * 20_000
        return min(renewed, 0.2e6) * 100 / 1e6 + max(0.0, 650 * renewed - jumped) / 1e6

    found = joules(DeviceTimer(gpu), launch(gpu, 50.0), 50.0, look)
    assert found == pytest.approx(650 * 50 / 1e6, rel=0.02)


def test_without_a_counter_or_with_rare_updates_there_is_no_energy(gpu: FakeGpu) -> None:
    timer, run = DeviceTimer(gpu), launch(gpu, 50.0)
    assert joules(timer, run, 50.0, lambda: None) is None
    assert gpu.clock == 0
    assert joules(timer, run, 50.0, counter(gpu, 300.0, 2e6)) is None
