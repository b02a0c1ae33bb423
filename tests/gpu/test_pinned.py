"""Memory of the host that the driver keeps in place, by a driver that notes what it is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cudareduce.errors import OutOfMemory
from cudareduce.gpu.pinned import PinnedMemory


class DriverError(Exception):
    """What PyCUDA raises."""


@dataclass
class Driver:
    """Keeps up to so many bytes."""

    most: int
    kept: list[int] = field(default_factory=list)
    mem_host_register_flags = SimpleNamespace(PORTABLE=1, DEVICEMAP=2)
    Error = DriverError

    def register_host_memory(self, array: np.ndarray, flags: int) -> Any:
        assert flags == 3
        if array.size > self.most:
            raise DriverError("cuMemHostRegister failed: out of memory")
        self.kept.append(array.ctypes.data)
        return SimpleNamespace(
            base=SimpleNamespace(
                get_device_pointer=lambda: array.ctypes.data,
                unregister=lambda: self.kept.remove(array.ctypes.data),
            )
        )


def test_it_is_found_until_it_is_freed() -> None:
    driver, array = Driver(4096), np.zeros(4096, np.uint8)
    memory = PinnedMemory(driver, array)
    assert int(memory) == array.ctypes.data
    assert driver.kept == [int(memory)]
    memory.free()
    assert not driver.kept


def test_more_than_the_driver_keeps_is_told() -> None:
    with pytest.raises(OutOfMemory, match=r"no 0\.00 GiB .* out of memory\): give a smaller --n"):
        PinnedMemory(Driver(10), np.zeros(4096, np.uint8))
