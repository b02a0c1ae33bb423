"""GPU memory shared by processes of one host through CUDA's IPC handles.

Kernels read and write another GPU's memory over NVLink or PCIe by loads and stores.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from cudareduce.errors import EnvironmentProblem, OutOfMemory
from cudareduce.gpu.driver import load

#: A handle exports whole pages of the driver, so an allocation has pages of its own.
_PAGE = 2**21


class IpcMemory:
    """A cleared allocation in the current context, and the allocations of other processes that it
    has opened. Raises OutOfMemory."""

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
        """The handle with which another process opens it."""
        return bytes(self._driver.mem_get_ipc_handle(self._allocation))

    def open(self, handle: bytes) -> int:
        """The address of another process' memory. Raises EnvironmentProblem if this GPU cannot
        address the other's."""
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
        """Close the memory of other processes."""
        while self._theirs:
            with suppress(self._driver.Error):  # a context that faulted closes nothing
                self._theirs.pop().close()

    def free(self) -> None:
        """Free it, once no other process has it open."""
        with suppress(self._driver.Error):
            self._allocation.free()
