"""Launches all of whose blocks must be on the GPU at one time: kernels that wait for their grid.

PyCUDA launches none of these, so this calls the driver itself, on the context that is current.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from cudareduce.backend import Launch
from cudareduce.errors import KernelFault, TooManyBlocks
from cudareduce.gpu.driver import explained
from cudareduce.problem.parsing import meets, parsed, without_comments
from cudareduce.problem.sizes import counted


def waits_for_grid(unit: str) -> bool:
    """Whether blocks wait for their whole grid in the text of a translation unit."""
    return meets(without_comments(parsed(unit)))


class CooperativeFunction:
    """A kernel of a module of its own, loaded from machine code. Raises KernelFault where the
    driver refuses."""

    def __init__(self, library: Any, cubin: bytes, entry: str) -> None:
        self._library = library
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(self._module), cubin)
        name = entry.encode()
        self._call("cuModuleGetFunction", ctypes.byref(self._function), self._module, name)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise KernelFault(f"the driver refuses {name} ({explained(self._library, code)})")

    def set_constant(self, name: str, *values: int) -> None:
        """Set a `__constant__`, words of 64 bits."""
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        held = (ctypes.c_uint64 * len(values))(*values)
        self._call(
            "cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size), self._module,
            name.encode(),
        )  # fmt: skip
        self._call(
            "cuMemcpyHtoD_v2", address, ctypes.byref(held), ctypes.c_size_t(ctypes.sizeof(held))
        )

    def launcher(
        self, grid: int, block: int, arguments: Sequence[tuple[int, ...]], shared: int, stream: int,
        sm_count: int,
    ) -> Launch:  # fmt: skip
        """A ready launch with arguments by their 64-bit words. Raises TooManyBlocks if the GPU,
        which has `sm_count` multiprocessors, does not hold all blocks at one time."""
        each = ctypes.c_int()
        self._call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(each), self._function,
            block, ctypes.c_size_t(shared),
        )  # fmt: skip
        most = each.value * sm_count
        if grid > most:
            raise TooManyBlocks(
                f"it waits for its whole grid, and of its {counted(grid, 'block')} of {block} "
                f"threads this GPU holds {most} at one time: launch fewer, with --grid or with "
                "fixed_grid in its header"
            )
        held = [(ctypes.c_uint64 * len(words))(*words) for words in arguments]
        places = (ctypes.c_void_p * len(held))(*map(ctypes.addressof, held))

        def launch() -> None:
            _ = held
            self._call(
                "cuLaunchCooperativeKernel", self._function, grid, 1, 1, block, 1, 1, shared,
                ctypes.c_void_p(stream), places,
            )  # fmt: skip

        return launch
