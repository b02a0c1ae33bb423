"""Memory of a GPU that the processes of one host address together: CUDA's IPC handles.

What lies on another GPU is then read and written over NVLink or PCIe, by loads and stores.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from cudareduce.errors import EnvironmentProblem, OutOfMemory
from cudareduce.gpu.driver import load

#: A handle exports whole pages of the driver: with one of its own nothing else goes along.
_PAGE = 2**21


class IpcMemory:
    """An allocation in the context that is current, cleared, and those of other processes that it
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
        """What another process opens it with."""
        return bytes(self._driver.mem_get_ipc_handle(self._allocation))

    def open(self, handle: bytes) -> int:
        """Where another process' memory begins, here. GPUs that cannot address each other's are an
        EnvironmentProblem."""
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
        """Address no other process' memory any more."""
        while self._theirs:
            with suppress(self._driver.Error):  # after a fault the context closes nothing any more
                self._theirs.pop().close()

    def free(self) -> None:
        """Give it back, once nobody addresses it."""
        with suppress(self._driver.Error):
            self._allocation.free()
