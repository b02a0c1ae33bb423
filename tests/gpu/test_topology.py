"""How GPUs are connected, by what a driver and NVML made for the test answer."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from cudareduce.gpu import driver
from cudareduce.gpu.topology import Placed, name_and_address, normal
from cudareduce.gpu.topology import topology as topology_of

ADDRESSES = ("0000:19:00.0", "0000:3b:00.0", "0000:9a:00.0")


class NVMLError(Exception):
    pass


class CudaError(Exception):
    pass


class Device:
    def __init__(self, which: int | str) -> None:
        self.address = ADDRESSES[which] if isinstance(which, int) else which

    def name(self) -> str:
        return "NVIDIA H200"

    def pci_bus_id(self) -> str:
        return self.address.upper()

    def can_access_peer(self, other: Device) -> bool:
        if other.address not in ADDRESSES:
            raise CudaError("invalid device")
        return "0000:9a:00.0" not in (self.address, other.address)


def nvml(ends: Mapping[str, Sequence[str]], level: int = 50, lanes: int = 16) -> Any:
    """One whose GPUs have NVLinks to these ends: addresses, or a switch."""

    def end(handle: str, link: int) -> str:
        found = ends.get(handle, ())
        if link >= len(found):
            raise NVMLError("not supported")
        return found[link]

    return SimpleNamespace(
        NVMLError=NVMLError, NVML_NVLINK_MAX_LINKS=18, NVML_NVLINK_DEVICE_TYPE_SWITCH=2,
        nvmlInit=lambda: None, nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByPciBusId=lambda address: address,
        nvmlDeviceGetNvLinkState=lambda handle, link: int(end(handle, link) != "down"),
        nvmlDeviceGetNvLinkRemoteDeviceType=lambda h, link: 2 if end(h, link) == "switch" else 0,
        nvmlDeviceGetNvLinkRemotePciInfo=lambda h, link: SimpleNamespace(
            busId=f"0000{end(h, link).upper()}".encode()),
        nvmlDeviceGetTopologyCommonAncestor=lambda one, other: level,
        nvmlDeviceGetMaxPcieLinkGeneration=lambda handle: 5,
        nvmlDeviceGetCurrPcieLinkWidth=lambda handle: lanes,
        nvmlDeviceGetMaxPcieLinkWidth=lambda handle: 16,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    made = SimpleNamespace(Device=Device, Error=CudaError)
    monkeypatch.setattr(driver, "load", lambda: made)


def topology(addresses: Sequence[str]) -> list[Placed]:
    return topology_of(["NVIDIA H200"] * len(addresses), addresses)


def ways(
    monkeypatch: pytest.MonkeyPatch, library: Any, addresses: Sequence[str] = ADDRESSES[:2]
) -> list[tuple[str | None, ...]]:
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return [gpu.ways for gpu in topology(addresses)]


def test_links_that_lead_to_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, _ = ADDRESSES
    library = nvml({one: [other, other, "down"], other: [one, one, "down"]})
    assert ways(monkeypatch, library) == [(None, "NV2"), ("NV2", None)]


def test_links_through_a_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    library = nvml({ADDRESSES[0]: ["switch"] * 18, ADDRESSES[1]: ["switch"] * 17})
    assert ways(monkeypatch, library) == [(None, "NV17"), ("NV17", None)]


def test_links_to_others_are_none_between_these(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, third = ADDRESSES
    library = nvml({one: [third], other: [third], third: [one, other]}, level=10)
    assert ways(monkeypatch, library, ADDRESSES) == [
        (None, "PIX", "NV1"), ("PIX", None, "NV1"), ("NV1", "NV1", None)
    ]  # fmt: skip


@pytest.mark.parametrize(("level", "word"), [(20, "PXB"), (30, "PHB"), (40, "NODE"), (99, None)])
def test_without_links_it_is_pcie(
    monkeypatch: pytest.MonkeyPatch, level: int, word: str | None
) -> None:
    assert ways(monkeypatch, nvml({}, level)) == [(None, word), (word, None)]


def test_what_is_known_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml({}, lanes=8))
    first, _, third = topology(ADDRESSES)
    assert (first.name, first.address, first.pcie) == ("NVIDIA H200", ADDRESSES[0], "5 x8 of x16")
    assert (first.reaches, third.reaches) == ((True, True, False), (False, False, True))


def test_one_gpu_of_two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml({}))
    both = topology([ADDRESSES[2]] * 2)
    assert [(gpu.ways, gpu.reaches) for gpu in both] == [((None, None), (True, True))] * 2


def test_without_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ways(monkeypatch, None) == [(None, None), (None, None)]
    broken = nvml({})
    broken.nvmlInit = lambda: (_ for _ in ()).throw(NVMLError("driver not loaded"))
    assert ways(monkeypatch, broken) == [(None, None), (None, None)]
    assert topology(ADDRESSES[:1])[0].pcie is None


def test_what_this_process_does_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert topology([ADDRESSES[0], "0000:ff:00.0"])[0].reaches == (True, None)


def test_addresses() -> None:
    assert normal(b"00000000:3B:00.0") == normal("0000:3b:00.0") == "0000:3b:00.0"
    assert name_and_address(1) == ("NVIDIA H200", ADDRESSES[1])
