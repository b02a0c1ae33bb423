"""How GPUs of one host are connected: NVLinks, PCIe, and whether one addresses another's memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cudareduce.gpu import driver

#: The words of nvidia-smi topo for what two GPUs have in common, by NVML's levels.
_ANCESTORS = {0: "PSB", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Placed:
    """One GPU among others: its name, its PCI address, generation and lanes of its PCIe (`5 x16`),
    the way to each of the others in the words of nvidia-smi topo, and whether it addresses their
    memory; None is unknown, and so is the way to itself."""

    name: str
    address: str
    pcie: str | None
    ways: tuple[str | None, ...]
    reaches: tuple[bool | None, ...]


def name_and_address(index: int) -> tuple[str, str]:
    """What the driver's GPU of that number is called, and where on the bus it is. Raises
    EnvironmentProblem."""
    device = driver.load().Device(index)
    return str(device.name()), normal(device.pci_bus_id())


def normal(address: str | bytes) -> str:
    """A PCI address as CUDA writes it; NVML has more digits in front."""
    text = address.decode() if isinstance(address, bytes) else address
    domain, _, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def topology(names: Sequence[str], addresses: Sequence[str]) -> list[Placed]:
    """What the driver and, where it is installed, NVML say of the GPUs at these PCI addresses; two
    may be one, and others may be out of this process' sight. Raises EnvironmentProblem."""
    cuda = driver.load()
    with _management() as nvml:
        gpus = [_looked_at(nvml, address) for address in addresses]
        return [
            Placed(
                name, own.address, _pcie(nvml, own.handle),
                tuple(_way(nvml, own, other) for other in gpus),
                tuple(_reaches(cuda, own.address, other) for other in addresses),
            )
            for name, own in zip(names, gpus, strict=True)
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Gpu:
    """A GPU as NVML has it: `ends` are what is at the other end of each NVLink that is up, a GPU's
    PCI address or a switch."""

    address: str
    handle: Any
    ends: tuple[str, ...]


@contextmanager
def _management() -> Iterator[Any]:
    """NVML; None where it is not installed or does not start."""
    try:
        import pynvml
    except ModuleNotFoundError:
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _asked(nvml: Any, question: str, *words: Any) -> Any:
    """What NVML answers; None where it does not, or cannot be asked."""
    if nvml is None or None in words:
        return None
    try:
        return getattr(nvml, question)(*words)
    except (nvml.NVMLError, AttributeError):
        return None


def _looked_at(nvml: Any, address: str) -> _Gpu:
    handle = _asked(nvml, "nvmlDeviceGetHandleByPciBusId", address)
    ends = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS if handle else 0):
        if _asked(nvml, "nvmlDeviceGetNvLinkState", handle, link) != 1:
            continue
        kind = _asked(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
        if kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            ends.append(_SWITCH)
        elif remote := _asked(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link):
            ends.append(normal(remote.busId))
    return _Gpu(address, handle, tuple(ends))


def _way(nvml: Any, own: _Gpu, other: _Gpu) -> str | None:
    """How many NVLinks lead from one GPU to another, by themselves or through a switch; without
    any, what of PCIe they have in common."""
    if own.address == other.address:
        return None
    switched = min(own.ends.count(_SWITCH), other.ends.count(_SWITCH))
    count = own.ends.count(other.address) or switched
    if count:
        return f"NV{count}"
    level = _asked(nvml, "nvmlDeviceGetTopologyCommonAncestor", own.handle, other.handle)
    return _ANCESTORS.get(level)


def _pcie(nvml: Any, handle: Any) -> str | None:
    """Generation and lanes; the generation that it takes under load, as an idle one is slower."""
    generation = _asked(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", handle)
    lanes = _asked(nvml, "nvmlDeviceGetCurrPcieLinkWidth", handle)
    most = _asked(nvml, "nvmlDeviceGetMaxPcieLinkWidth", handle)
    if not generation or not lanes:
        return None
    return f"{generation} x{lanes}" + (f" of x{most}" if most and most != lanes else "")


def _reaches(cuda: Any, own: str, other: str) -> bool | None:
    """A GPU reaches itself; None where this process does not see one of them."""
    if own == other:
        return True
    try:
        return bool(cuda.Device(own).can_access_peer(cuda.Device(other)))
    except cuda.Error:
        return None
