"""Machine code that a library has made, launched through the driver in any context."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

from cudareduce.backend import Launch
from cudareduce.gpu.driver import explained, library

#: CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, which launches of more than 48 KiB must raise.
_MOST_SHARED, _USUAL_SHARED = 8, 48 * 1024


@dataclass(frozen=True, slots=True)
class Cubin:
    """One kernel: its machine code, its name in it, threads a block and bytes of shared memory."""

    code: bytes
    entry: str
    threads: int
    shared: int


def _checked(code: int) -> None:
    if code:
        raise RuntimeError(explained(library(), code))


@cache
def _function(cubin: Cubin) -> Any:
    """Loaded into the context that is current, for good."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _checked(library().cuModuleLoadData(ctypes.byref(module), cubin.code))
    _checked(library().cuModuleGetFunction(ctypes.byref(function), module, cubin.entry.encode()))
    if cubin.shared > _USUAL_SHARED:
        _checked(library().cuFuncSetAttribute(function, _MOST_SHARED, cubin.shared))
    return function


def launcher(cubin: Cubin, grid: int, arguments: list[int], stream: int) -> Launch:
    """A ready launch; every argument takes 64 bits."""
    function = _function(cubin)
    values = (ctypes.c_uint64 * len(arguments))(*arguments)
    start = ctypes.addressof(values)
    places = (ctypes.c_void_p * len(arguments))(*(start + 8 * k for k in range(len(arguments))))
    launch, handle = library().cuLaunchKernel, ctypes.c_void_p(stream)
    words = (function, grid, 1, 1, cubin.threads, 1, 1, cubin.shared, handle, places, None)

    def run(_kept: Any = values) -> None:
        code = launch(*words)
        if code:
            _checked(code)

    return run
