"""What the driver's management library says of a GPU, where nvidia-ml-py is installed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from multiprocessing import active_children
from statistics import median
from typing import Any

#: Event reasons that mean less than full speed against one's will, as nvml.h numbers them.
_THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


@dataclass(frozen=True, slots=True)
class ManagementFacts:
    """None where NVML is absent or does not answer."""

    uuid: str | None = None
    mig: bool | None = None
    power_limit_w: float | None = None
    driver: str | None = None


@dataclass(frozen=True, slots=True)
class Conditions:
    """The state of a GPU at a moment, or over a round; None is unknown."""

    sm_mhz: float | None = None
    memory_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    reasons: int | None = None

    @property
    def throttled(self) -> tuple[str, ...]:
        """Why the GPU ran slower than it could, in words; empty if it did not."""
        return tuple(text for bit, text in _THROTTLES.items() if (self.reasons or 0) & bit)


def over(found: Sequence[Conditions]) -> Conditions:
    """What held over several moments: medians, and every event reason there was."""
    values: dict[str, Any] = {}
    for name in (f.name for f in fields(Conditions)):
        known = [value for value in (getattr(c, name) for c in found) if value is not None]
        if not known:
            continue
        values[name] = median(known)
        if name == "reasons":
            values[name] = 0
            for bits in known:
                values[name] |= bits
    return Conditions(**values)


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


def own_processes() -> list[int]:
    """This process and those that it started: none of them is a stranger on the GPU."""
    return [os.getpid(), *(child.pid for child in active_children() if child.pid)]


class Monitor:
    """Reads the state of one GPU again and again. What it cannot read is None, and `problem` says
    once, in words, what is missing and what to do about it."""

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

    def strangers(self, own: Sequence[int]) -> int:
        """How many processes besides these compute on the GPU.

        Inside a container NVML may name processes by numbers of the host; then as many as there are
        of our own are taken off.
        """
        if self._handle is None:
            return 0
        read = self._nvml.nvmlDeviceGetComputeRunningProcesses
        found = self._ask("processes", lambda: read(self._handle))
        running = {process.pid for process in found or ()}
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
