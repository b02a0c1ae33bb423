"""Memory of the host that an array is made in, or that a file's chunks go through."""

from __future__ import annotations

import mmap
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np

from cudareduce.errors import OutOfMemory
from cudareduce.machine.host import cpu_count

#: Bytes that a thread touches at once.
_TOUCHED = 64 << 20


def pages(nbytes: int) -> np.ndarray:
    """Fresh bytes in whole pages of their own, at least so many, as large pages where the system
    has them. Raises OutOfMemory."""
    whole = -(-max(1, nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE
    try:
        held = mmap.mmap(-1, whole, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError, OverflowError):
        raise OutOfMemory(
            f"the host gives no {nbytes / 2**30:.2f} GiB of memory: give a smaller --n"
        ) from None
    with suppress(OSError):  # a kernel without them
        held.madvise(mmap.MADV_HUGEPAGE)
    found = np.frombuffer(held, np.uint8)
    with ThreadPoolExecutor(cpu_count()) as pool:  # touched by one, large arrays take seconds
        list(pool.map(lambda at: found[at : at + _TOUCHED].fill(0), range(0, whole, _TOUCHED)))
    return found
