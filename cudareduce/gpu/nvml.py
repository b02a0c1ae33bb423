"""What the driver's management library says of a GPU, where nvidia-ml-py is installed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import active_children
from typing import Any

from cudareduce.machine.device import Conditions


@dataclass(frozen=True, slots=True)
class ManagementFacts:
    """What NVML alone tells of a GPU; None where it is absent or does not answer."""

    uuid: str | None = None
    mig: bool | None = None
    power_limit_w: float | None = None
    driver: str | None = None


def management_facts(pci_bus_id: str) -> ManagementFacts:
    """Facts of the GPU at a PCI address: CUDA's and NVML's indices need not agree, addresses do."""
    try:
        import pynvml
    except ModuleNotFoundError:
        return ManagementFacts()

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ManagementFacts()
    try:
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
        return ManagementFacts(
            uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
            mig=_mig(pynvml, handle),
            power_limit_w=_power(pynvml, handle),
            driver=_text(pynvml.nvmlSystemGetDriverVersion()),
        )
    except pynvml.NVMLError:
        return ManagementFacts()
    finally:
        pynvml.nvmlShutdown()


class NvmlMonitor:
    """Reads the state of the GPU at a PCI address, as `Monitor` says."""

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
            self._failed("state", error)

    def read(self) -> Conditions:
        """The state at this moment."""
        if self._handle is None:
            return Conditions()
        nvml, handle = self._nvml, self._handle

        def scaled(what: str, read: Callable[[], Any], factor: float = 1.0) -> float | None:
            value = self._ask(what, read)
            return None if value is None else value * factor

        return Conditions(
            sm_mhz=scaled(
                "clocks", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
            ),
            memory_mhz=scaled(
                "clocks", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)
            ),
            power_w=scaled("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle), 1e-3),
            temperature_c=scaled(
                "temperature",
                lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            ),
            reasons=self._ask("event reasons", lambda: _reasons(nvml, handle)),
        )

    def energy_j(self) -> float | None:
        """Joules that the GPU has taken since its driver was loaded."""
        if self._handle is None:
            return None
        read = self._nvml.nvmlDeviceGetTotalEnergyConsumption
        millijoules = self._ask("energy", lambda: read(self._handle))
        return None if millijoules is None else millijoules / 1e3

    def other_processes(self) -> int:
        """How many processes besides this one and its children compute on the GPU.

        Inside a container NVML may name processes by numbers of the host; then as many as there are
        of our own are taken off.
        """
        if self._handle is None:
            return 0
        own = [os.getpid(), *(child.pid for child in active_children() if child.pid)]
        read = self._nvml.nvmlDeviceGetComputeRunningProcesses
        processes = self._ask("processes", lambda: read(self._handle))
        running = {process.pid for process in processes or ()}
        if os.getpid() in running:
            return len(running - set(own))
        return max(0, len(running) - len(own))

    def _ask(self, what: str, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (self._nvml.NVMLError, AttributeError) as error:
            self._failed(what, error)
            return None

    def _failed(self, what: str, error: Exception) -> None:
        """Keep the first problem: one sentence is enough."""
        if self.problem is None:
            self.problem = (
                f"NVML does not tell the {what} of this GPU ({error}): what it does not tell stays "
                "empty; see whether nvidia-smi does, and ask the administrator for permission"
            )


def _reasons(nvml: Any, handle: Any) -> int:
    """The bits have a new name since driver 535."""
    read = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    return int((read or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(handle))


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _mig(pynvml: Any, handle: Any) -> bool:
    try:
        return bool(pynvml.nvmlDeviceGetMigMode(handle)[0])
    except pynvml.NVMLError:
        return False  # boards without MIG answer "not supported"


def _power(pynvml: Any, handle: Any) -> float | None:
    try:
        return float(pynvml.nvmlDeviceGetPowerManagementLimit(handle)) / 1e3
    except pynvml.NVMLError:
        return None
