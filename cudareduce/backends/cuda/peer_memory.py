"""GPU memory shared between processes of one host through CUDA IPC handles.

Kernels access another GPU's memory over NVLink or PCIe with ordinary loads and stores.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from cudareduce.backends.cuda.driver import load
from cudareduce.errors import EnvironmentProblem, OutOfMemory

#: The driver's page size. An IPC handle exports whole pages, so allocations are rounded up.
_PAGE = 2**21


class IpcMemory:
    """A zeroed allocation in the current context, and the opened allocations of other processes.
    Raises OutOfMemory."""

    def __init__(self, nbytes: int) -> None:
        self._driver = driver = load()
        self._theirs: list[Any] = []
        whole = -(-nbytes // _PAGE) * _PAGE
        try:
            self._allocation = driver.mem_alloc(whole)
        except driver.MemoryError:
            raise OutOfMemory(
                f"out of GPU memory for a window of {whole / 2**30:.2f} GiB: give fewer elements "
                "with --n"
            ) from None
        driver.memset_d8(self._allocation, 0, whole)
        driver.Context.synchronize()
        self.address = int(self._allocation)

    @property
    def handle(self) -> bytes:
        """The IPC handle, with which another process opens this allocation."""
        return bytes(self._driver.mem_get_ipc_handle(self._allocation))

    def open(self, handle: bytes) -> int:
        """Map another process's allocation and return its address. Raises EnvironmentProblem if
        this GPU cannot access the other GPU's memory."""
        try:
            theirs = self._driver.IPCMemoryHandle(bytearray(handle))
        except self._driver.Error as error:
            raise EnvironmentProblem(
                f"this GPU cannot address the memory of another rank's ({error}): see nvidia-smi "
                "topo -p2p r, and that containers share the host's IPC namespace"
            ) from None
        self._theirs.append(theirs)
        return int(theirs)

    def give_up(self) -> None:
        """Unmap the allocations of other processes."""
        while self._theirs:
            with suppress(self._driver.Error):  # fails in a context after a fault
                self._theirs.pop().close()

    def free(self) -> None:
        """Free the allocation. No other process may have it open."""
        with suppress(self._driver.Error):
            self._allocation.free()
