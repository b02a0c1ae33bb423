"""What NVML tells, what it does not, and that the difference is said once and in words."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from cudareduce.backends.cuda.nvml import NvmlMonitor
from cudareduce.machine import Conditions
from cudareduce.timing.rounds import over


class NVMLError(Exception):
    pass


def fake(**refused: str) -> Any:
    def answer(name: str, value: Any) -> Any:
        def read(*arguments: Any) -> Any:
            if name in refused:
                raise NVMLError(refused[name])
            return value

        return read

    return SimpleNamespace(
        NVMLError=NVMLError,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=answer("init", None),
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByPciBusId=answer("handle", "gpu"),
        nvmlDeviceGetClockInfo=answer("clock", 1980),
        nvmlDeviceGetTotalEnergyConsumption=answer("energy", 81_250),
        nvmlDeviceGetPowerUsage=answer("power", 312_500),
        nvmlDeviceGetTemperature=answer("temperature", 41),
        nvmlDeviceGetCurrentClocksEventReasons=answer("reasons", 0x4 | 0x1),
        nvmlDeviceGetComputeRunningProcesses=answer(
            "processes", [SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=7)]
        ),
    )


def monitor(monkeypatch: pytest.MonkeyPatch, library: Any) -> NvmlMonitor:
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return NvmlMonitor("0000:01:00.0")


def children(monkeypatch: pytest.MonkeyPatch, *pids: int | None) -> None:
    alive = [SimpleNamespace(pid=pid) for pid in pids]
    monkeypatch.setattr("cudareduce.backends.cuda.nvml.active_children", lambda: alive)


def test_clocks_power_and_throttle_reasons_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    found = monitor(monkeypatch, fake())
    assert found.read() == Conditions(1980, 1980, 312.5, 41, 5)
    assert found.read().throttled == ("power cap",)
    assert found.energy_j() == 81.25
    assert found.other_processes() == 1
    assert found.problem is None


def test_without_nvml_all_conditions_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    found = monitor(monkeypatch, None)
    assert found.read() == Conditions()
    assert found.energy_j() is None
    assert found.other_processes() == 0
    assert found.problem is not None and "pip install nvidia-ml-py" in found.problem


def test_without_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "Insufficient Permissions"
    found = monitor(monkeypatch, fake(power=words, reasons=words))
    assert found.read() == Conditions(1980, 1980, None, 41, None)
    assert found.problem is not None
    assert "NVML does not tell the power of this GPU (Insufficient Permissions)" in found.problem
    assert "ask the administrator" in found.problem
    uncounted = monitor(monkeypatch, fake(energy="Not Supported"))
    assert uncounted.energy_j() is None
    assert "NVML does not tell the energy of this GPU (Not Supported)" in (uncounted.problem or "")
    shut = monitor(monkeypatch, fake(init=words))
    assert shut.read() == Conditions()
    assert "does not tell the state" in (shut.problem or "")


def test_old_drivers_name_event_reasons_differently(monkeypatch: pytest.MonkeyPatch) -> None:
    library = fake()
    library.nvmlDeviceGetCurrentClocksThrottleReasons = (
        library.nvmlDeviceGetCurrentClocksEventReasons
    )
    del library.nvmlDeviceGetCurrentClocksEventReasons
    assert monitor(monkeypatch, library).read().reasons == 5


def test_process_ids_of_the_host_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    library = fake()
    pids = [SimpleNamespace(pid=pid) for pid in (100001, 100002, 100003)]
    library.nvmlDeviceGetComputeRunningProcesses = lambda handle: pids
    found = monitor(monkeypatch, library)
    assert found.other_processes() == 2
    children(monkeypatch, 17)
    assert found.other_processes() == 1
    children(monkeypatch, 17, 18, 19, 20)
    assert found.other_processes() == 0


def test_children_are_not_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    library = fake()
    pids = [SimpleNamespace(pid=pid) for pid in (os.getpid(), 7, 17)]
    library.nvmlDeviceGetComputeRunningProcesses = lambda handle: pids
    found = monitor(monkeypatch, library)
    assert found.other_processes() == 2
    children(monkeypatch, 17, None)  # one of them has not begun
    assert found.other_processes() == 1


def test_conditions_of_several_moments_are_medians() -> None:
    states = [Conditions(1980, None, 300, 40, 0), Conditions(1500, None, 500, 42, 0x8)]
    assert over(states) == Conditions(1740, None, 400, 41, 0x8)
    assert over([]) == Conditions()
