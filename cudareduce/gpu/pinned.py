"""Memory of the host that the GPU reaches by itself, by its copy engine or from a kernel.

PyCUDA's own `register_host_memory` has failed since 2024 (github.com/inducer/pycuda/issues/459), so
this calls the driver itself, in the context that is current.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from cudareduce.errors import OutOfMemory
from cudareduce.gpu.driver import explained

#: CU_MEMHOSTREGISTER_PORTABLE and CU_MEMHOSTREGISTER_DEVICEMAP: for every context, and for kernels.
_FOR_ALL, _FOR_KERNELS = 1, 2


class PinnedMemory:
    """An array of bytes, kept in memory where it lies; as a number, where the GPU finds it. Raises
    OutOfMemory where the driver keeps no more there."""

    def __init__(self, library: Any, array: np.ndarray) -> None:
        self._library, self._array = library, array
        place, self._address = ctypes.c_void_p(array.ctypes.data), ctypes.c_uint64()
        code = library.cuMemHostRegister_v2(
            place, ctypes.c_size_t(array.nbytes), _FOR_ALL | _FOR_KERNELS
        )
        code = code or library.cuMemHostGetDevicePointer_v2(ctypes.byref(self._address), place, 0)
        if code:
            raise OutOfMemory(
                f"the driver keeps no {array.nbytes / 2**30:.2f} GiB of the host's memory in place "
                f"({explained(library, code)}): give a smaller --n, or see ulimit -l"
            )

    def __int__(self) -> int:
        return self._address.value

    def free(self) -> None:
        """Let the memory move again."""
        self._library.cuMemHostUnregister(ctypes.c_void_p(self._array.ctypes.data))
