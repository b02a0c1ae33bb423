"""Device memory between guard bands, so that a write outside a buffer is seen and told.

The bands hold set bits, as poison does: NaN as a float, -1 as an integer. So a read outside a
buffer shows too, in the answer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cudareduce.problem.sizes import counted

#: Bytes on either side: what a block of 1024 threads writes when its bound is off by one tile. A
#: multiple of 256, so that buffers stay as aligned as allocations are.
BAND = 4096
SET_BITS = 0xFF


class GuardedBuffer:
    """Device memory; `address` lies a band, and where asked for a misalignment, into its
    allocation."""

    def __init__(self, allocation: Any, nbytes: int, misalign: int = 0, band: int = BAND) -> None:
        self.allocation, self.nbytes, self._band = allocation, nbytes, band
        self.address = int(allocation) + band + misalign

    @property
    def bands(self) -> tuple[tuple[str, int, int], ...]:
        """Where each band lies, its address and its size."""
        start, end = int(self.allocation), self.address + self.nbytes
        if not self._band:
            return ()
        return (("before", start, self.address - start), ("behind", end, self._band))


def guarded(
    driver: Any, stream: Any, nbytes: int, misalign: int = 0, band: int = BAND
) -> GuardedBuffer:
    """Allocate `nbytes` bytes between bands, none if `band` is 0, and `misalign` bytes further on.
    Raises the driver's MemoryError."""
    whole = max(1, nbytes + misalign + 2 * band)
    buffer = GuardedBuffer(driver.mem_alloc(whole), nbytes, misalign, band)
    for _, address, size in buffer.bands:
        driver.memset_d8_async(address, SET_BITS, size, stream)
    return buffer


def damage(driver: Any, stream: Any, buffer: GuardedBuffer) -> str | None:
    """What was written outside a buffer, which is mended; None if nothing was."""
    found = None
    for where, address, size in buffer.bands:
        held = np.empty(size, np.uint8)
        driver.memcpy_dtoh(held, address)
        changed = np.flatnonzero(held != SET_BITS)
        if len(changed):
            driver.memset_d8_async(address, SET_BITS, size, stream)
            first = len(held) - changed[-1] if where == "before" else changed[0] + 1
            found = found or (
                f"{counted(len(changed), 'byte')} {where} a buffer of {buffer.nbytes}, the nearest "
                f"{counted(int(first), 'byte')} {where} it"
            )
    return found
