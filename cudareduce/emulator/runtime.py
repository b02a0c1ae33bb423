"""The emulator's C++ runtime as a library: its structures and functions, as ctypes sees them."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

#: What is counted of launches, in the order of emulator/traffic.h, which tells of each.
TOTALS = (
    "read_bytes", "written_bytes", "requests", "sectors", "accesses", "wavefronts", "atomics",
    "barriers", "collectives", "fenced_blocks", "unfenced",
)  # fmt: skip


class Request(ctypes.Structure):
    """A launch as the runtime takes it: `cudaemu_request` in emulator/launch.cpp."""

    _fields_ = (
        ("entry", ctypes.c_void_p),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("dynamic_shared", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("order", ctypes.c_uint32),
        ("os_threads", ctypes.c_uint32),
        ("watched", ctypes.c_uint32),
        ("alone", ctypes.c_uint32),
        ("only", ctypes.c_uint64),
        ("most_ns", ctypes.c_uint64),
        ("cut", ctypes.c_uint32),
        ("counted", ctypes.c_uint32),
        ("readers", ctypes.c_uint32),
    )


class Totals(ctypes.Structure):
    """What warps have asked of memory: `cudaemu::traffic::Totals` in emulator/traffic.h."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in TOTALS)


class Entry(ctypes.Structure):
    """The start of `cudaemu::Entry` in emulator/runtime.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("invoke", ctypes.c_void_p),
        ("parameters", ctypes.c_uint),
    )


def take_traffic(runtime: ctypes.CDLL) -> dict[str, int]:
    """The totals since the last call, by their names."""
    totals = Totals()
    runtime.cudaemu_take_traffic(ctypes.byref(totals))
    return {name: getattr(totals, name) for name in TOTALS}


def _load_once(runtime: Path) -> ctypes.CDLL:
    """The runtime under this file name, which has a hash of its content, if the process has it.

    Another backend may have loaded it from another folder. The kernels' libraries ask for it by
    name and get the first that was loaded, so that one is the one to call.
    """
    try:
        return ctypes.CDLL(runtime.name, mode=os.RTLD_NOLOAD)
    except OSError:
        return ctypes.CDLL(str(runtime))


def load_runtime(path: Path) -> ctypes.CDLL:
    """The runtime library, with the types of its functions."""
    runtime = _load_once(path)
    runtime.cudaemu_allocate.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint)
    runtime.cudaemu_allocate.restype = ctypes.c_void_p
    runtime.cudaemu_reserve.argtypes = (ctypes.c_size_t,)
    runtime.cudaemu_reserve.restype = ctypes.c_void_p
    runtime.cudaemu_release.argtypes = (ctypes.c_void_p,)
    runtime.cudaemu_release.restype = None
    runtime.cudaemu_launch.argtypes = (ctypes.POINTER(Request),)
    runtime.cudaemu_launch.restype = ctypes.c_uint
    runtime.cudaemu_shared_bytes.argtypes = (ctypes.POINTER(Entry),)
    runtime.cudaemu_shared_bytes.restype = ctypes.c_uint64
    runtime.cudaemu_take_traffic.argtypes = (ctypes.POINTER(Totals),)
    runtime.cudaemu_take_traffic.restype = None
    runtime.cudaemu_printed.restype = ctypes.c_char_p
    runtime.cudaemu_diagnostics.restype = ctypes.c_char_p
    runtime.cudaemu_take_notes.restype = ctypes.c_char_p
    runtime.cudaemu_set_symbol.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    runtime.cudaemu_set_symbol.restype = ctypes.c_size_t
    return runtime
