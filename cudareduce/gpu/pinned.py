"""Memory of the host that the GPU reaches by itself, by its copy engine or from a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudareduce.errors import OutOfMemory


class PinnedMemory:
    """An array of bytes, kept in memory where it lies; as a number, where the GPU finds it. Raises
    OutOfMemory where the driver keeps no more there."""

    def __init__(self, driver: Any, array: np.ndarray) -> None:
        # PyCUDA takes elements for bytes, so that they must be the same.
        assert array.dtype.itemsize == 1
        kinds = driver.mem_host_register_flags
        try:
            self._held = driver.register_host_memory(array, kinds.PORTABLE | kinds.DEVICEMAP)
        except driver.Error as error:
            raise OutOfMemory(
                f"the driver keeps no {array.nbytes / 2**30:.2f} GiB of the host's memory in place "
                f"({error}): give a smaller --n, or see ulimit -l"
            ) from None

    def __int__(self) -> int:
        return int(self._held.base.get_device_pointer())

    def free(self) -> None:
        """Let the memory move again."""
        self._held.base.unregister()
