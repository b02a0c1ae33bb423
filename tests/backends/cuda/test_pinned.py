"""Memory of the host that the driver keeps in place: by a driver that notes what it is asked, and
by a GPU."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest

from cudareduce.backends.cuda.cuda import PinnedMemory
from cudareduce.backends.protocol import TimedBackend
from cudareduce.backends.selection import BackendSpec, open_backend
from cudareduce.errors import OutOfMemory

OUT_OF_MEMORY = 2


@dataclass
class Library:
    """Keeps up to so many bytes, which a GPU finds 16 further on."""

    most: int
    kept: list[int | None] = field(default_factory=list)

    def cuMemHostRegister_v2(  # noqa: N802
        self, place: ctypes.c_void_p, size: ctypes.c_size_t, flags: int
    ) -> int:
        assert flags == 3
        if size.value > self.most:
            return OUT_OF_MEMORY
        self.kept.append(place.value)
        return 0

    def cuMemHostGetDevicePointer_v2(  # noqa: N802
        self, found: Any, place: ctypes.c_void_p, flags: int
    ) -> int:
        assert place.value is not None
        assert flags == 0
        found._obj.value = place.value + 16
        return 0

    def cuMemHostUnregister(self, place: ctypes.c_void_p) -> int:  # noqa: N802
        self.kept.remove(place.value)
        return 0

    def cuGetErrorString(self, code: int, text: Any) -> int:  # noqa: N802
        text._obj.value = {OUT_OF_MEMORY: b"out of memory"}[code]
        return 0


def test_pinned_memory_has_an_address_until_it_is_freed() -> None:
    library, array = Library(4096), np.zeros(4096, np.uint8)
    memory = PinnedMemory(library, array)
    assert int(memory) == array.ctypes.data + 16
    assert library.kept == [array.ctypes.data]
    memory.free()
    assert not library.kept


def test_memory_that_cannot_be_pinned_is_out_of_memory() -> None:
    with pytest.raises(OutOfMemory, match=r"no 0\.00 GiB .*2: out of memory\): give a smaller --n"):
        PinnedMemory(Library(10), np.zeros(4096, np.uint8))


@pytest.mark.gpu
def test_a_gpu_copies_from_and_to_pinned_memory() -> None:
    array = np.arange(2**20, dtype=np.uint8)
    with open_backend(BackendSpec("cuda")) as opened:
        backend = cast(TimedBackend, opened)
        given, device = backend.pin(array), backend.allocate(array.nbytes)
        backend.copy_in(device, array)
        assert (backend.download(device, "uint8", array.size) == array).all()
        assert (backend.download(given, "uint8", array.size) == array).all()
        backend.free(given, device)
        backend.free(backend.pin(array))  # once more, since it moves again
