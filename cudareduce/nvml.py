"""What the driver's management library says of a GPU, where nvidia-ml-py is installed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ManagementFacts:
    """None where NVML is absent or does not answer."""

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
