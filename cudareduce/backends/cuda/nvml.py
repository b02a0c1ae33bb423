"""Reads the state of a GPU from NVML, NVIDIA's management library (package nvidia-ml-py)."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing import active_children
from typing import Any

from cudareduce.machine import Conditions


class NvmlMonitor:
    """A `Monitor` of one GPU, identified by its PCI address, since CUDA and NVML may number GPUs
    differently."""

    def __init__(self, pci_bus_id: str) -> None:
        self.problem: str | None = None
        self._handle: Any = None
        try:
            import pynvml
        except ModuleNotFoundError:
            self.problem = (
                "nvidia-ml-py is not installed: clocks, power, temperature and throttling are not "
                "known; pip install nvidia-ml-py"
            )
            return
        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
        except pynvml.NVMLError as error:
            self._fail("state", error)

    def facts(self) -> dict[str, Any]:
        """The fields of `DeviceInfo` that only NVML provides."""
        if self._handle is None:
            return {}
        nvml, handle = self._nvml, self._handle
        uuid = self._ask("UUID", nvml.nvmlDeviceGetUUID, handle)
        driver = self._ask("driver", nvml.nvmlSystemGetDriverVersion)
        mig = self._ask("MIG mode", nvml.nvmlDeviceGetMigMode, handle)
        limit = nvml.nvmlDeviceGetPowerManagementLimit
        return {
            "uuid": uuid.decode() if isinstance(uuid, bytes) else uuid,
            "mig": bool(mig and mig[0]),  # the query fails on GPUs without MIG
            "power_limit_w": self._number("power limit", 1000, limit, handle),
            "driver": driver.decode() if isinstance(driver, bytes) else driver,
        }

    def read(self) -> Conditions:
        """The current clocks, power, temperature and clock event reasons."""
        if self._handle is None:
            return Conditions()
        nvml, handle = self._nvml, self._handle
        # The function has a different name in drivers before 535.
        reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        reasons = reasons or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        clock, temperature = nvml.nvmlDeviceGetClockInfo, nvml.nvmlDeviceGetTemperature
        sensor = nvml.NVML_TEMPERATURE_GPU
        return Conditions(
            sm_mhz=self._number("clocks", 1, clock, handle, nvml.NVML_CLOCK_SM),
            memory_mhz=self._number("clocks", 1, clock, handle, nvml.NVML_CLOCK_MEM),
            power_w=self._number("power", 1000, nvml.nvmlDeviceGetPowerUsage, handle),
            temperature_c=self._number("temperature", 1, temperature, handle, sensor),
            reasons=self._ask("event reasons", reasons, handle),
        )

    def energy_j(self) -> float | None:
        """The energy in joules that the GPU has consumed since the driver was loaded."""
        if self._handle is None:
            return None
        read = self._nvml.nvmlDeviceGetTotalEnergyConsumption
        return self._number("energy", 1000, read, self._handle)

    def other_processes(self) -> int:
        """The number of processes on the GPU, without this one and its children.

        In a container NVML may report process ids of the host. Then the number of this program's
        processes is subtracted instead.
        """
        if self._handle is None:
            return 0
        own = [os.getpid(), *(child.pid for child in active_children() if child.pid)]
        read = self._nvml.nvmlDeviceGetComputeRunningProcesses
        running = {process.pid for process in self._ask("processes", read, self._handle) or ()}
        if os.getpid() in running:
            return len(running - set(own))
        return max(0, len(running) - len(own))

    def _ask(self, what: str, read: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return read(*arguments)
        except self._nvml.NVMLError as error:
            self._fail(what, error)
            return None

    def _number(
        self, what: str, divisor: int, read: Callable[..., Any], *arguments: Any
    ) -> float | None:
        value = self._ask(what, read, *arguments)
        return None if value is None else value / divisor

    def _fail(self, what: str, error: Exception) -> None:
        """Record the first problem only, since one message is enough."""
        if self.problem is None:
            self.problem = (
                f"NVML does not tell the {what} of this GPU ({error}): what it does not tell stays "
                "empty; see whether nvidia-smi does, and ask the administrator for permission"
            )
