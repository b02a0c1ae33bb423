"""Compiled kernels and their launches: the libraries of runtime and kernels through ctypes."""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path

from cudareduce.backend import Argument, Dim3, Source
from cudareduce.emulator.toolchain import SHARED_LIMIT, resolve_locations
from cudareduce.errors import BuildError, KernelFault
from cudareduce.reduction.sizes import counted

#: Counters of a launch, in the order of emulator/traffic.h, which describes them.
TOTALS = (
    "read_bytes", "written_bytes", "requests", "sectors", "accesses", "wavefronts", "atomics",
    "barriers", "collectives", "fenced_blocks", "unfenced",
)  # fmt: skip


class Request(ctypes.Structure):
    """`cudaemu_request` in emulator/launch.cpp."""

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
    )


class Totals(ctypes.Structure):
    """`cudaemu::traffic::Totals` in emulator/traffic.h."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in TOTALS)


class Event(ctypes.Structure):
    """`cudaemu::traffic::Event` in emulator/traffic.h."""

    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("thread", ctypes.c_uint32),
        ("barriers", ctypes.c_uint32),
        ("collectives", ctypes.c_uint32),
        ("offset", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
    )


@dataclass(frozen=True, slots=True)
class Access:
    """An access of a thread of block 0, with its address as an offset in bytes, or an exchange of a
    warp (a shuffle or vote). `barriers` and `collectives` are those that the block and the warp had
    passed. Of an exchange, `thread` is the first of the warp and `bytes` the mask of its lanes."""

    kind: str
    thread: int
    barriers: int
    collectives: int
    offset: int
    bytes: int


#: Kinds of accesses, in the order of emulator/traffic.h.
_ACCESSES = ("global read", "global write", "shared read", "shared write", "exchange")


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


def take_accesses(runtime: ctypes.CDLL) -> list[Access]:
    """The accesses of block 0 since the last call, at most 65 536, as they ran."""
    first = ctypes.POINTER(Event)()
    count = runtime.cudaemu_take_events(ctypes.byref(first))
    return [
        Access(_ACCESSES[e.kind], e.thread, e.barriers, e.collectives, e.offset, e.bytes)
        for e in first[:count]
    ]


def _load_once(runtime: Path) -> ctypes.CDLL:
    """The runtime library, reused if this process has loaded one of this name.

    The name contains a hash of the content. Kernel libraries link to it by name and get the one
    that was loaded first, from whichever folder.
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
    runtime.cudaemu_take_events.argtypes = (ctypes.POINTER(ctypes.POINTER(Event)),)
    runtime.cudaemu_take_events.restype = ctypes.c_size_t
    runtime.cudaemu_printed.restype = ctypes.c_char_p
    runtime.cudaemu_diagnostics.restype = ctypes.c_char_p
    runtime.cudaemu_take_notes.restype = ctypes.c_char_p
    runtime.cudaemu_set_symbol.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    runtime.cudaemu_set_symbol.restype = ctypes.c_size_t
    return runtime


#: Threads per block on every GPU; the runtime reports larger blocks.
MAX_THREADS = 1024

_PT_TLS = 7
_SYMBOL = re.compile(
    r"\s*\d+: [0-9a-f]+\s+(?P<size>\w+)\s+(?P<kind>TLS|OBJECT)\s.*\s(?P<name>\S+)$"
)
_ENTRY = "cudaemu_entry_"
_BOUNDS = "cudaemu_bounds_"
_MARKER = "shared_segment_marker"


class CpuProgram:
    """One kernel in a compiled library, loaded at first use, since loading runs the user's
    constructors; raises KernelFault if it does not load. `others` are the same kernel compiled for
    other values of __CUDA_ARCH__, `symbol` is the name of the entry point in the library, `kernels`
    are those of an external program."""

    binary_sha: str | None = None

    def __init__(
        self, path: Path, entry: str, runtime: ctypes.CDLL, others: Sequence[CpuProgram] = (),
        symbol: str = "", kernels: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.entry, self._path, self._runtime = entry, path, runtime
        self.others, self._symbol = tuple(others), symbol or entry
        self.kernels = tuple(
            CpuProgram(path, name, runtime, symbol=f"kernel{k}") for k, name in enumerate(kernels)
        )

        self._initial: dict[int, bytes] = {}

    def variable(self, index: int) -> tuple[int, bytes]:
        """The address and the initial bytes of a variable of an external program."""
        address = ctypes.c_uint64.in_dll(self._library, f"cudaemu_address_variable{index}").value
        size = ctypes.c_ulong.in_dll(self._library, f"cudaemu_size_variable{index}").value
        held = self._initial.setdefault(index, ctypes.string_at(address, size))
        return address, held

    @cached_property
    def _library(self) -> ctypes.CDLL:
        try:
            return ctypes.CDLL(str(self._path))
        except OSError as error:
            raise KernelFault(f"{self.entry} cannot be loaded: {error}") from None

    @cached_property
    def descriptor(self) -> Entry:
        """The entry point for the runtime."""
        return Entry.in_dll(self._library, f"{_ENTRY}{self._symbol}")

    def refusal(self, block: int, dynamic: int) -> str | None:
        """Why no GPU launches the kernel with `block` threads and `dynamic` bytes of shared memory
        per block, or None."""
        allowed = ctypes.c_uint.in_dll(self._library, f"{_BOUNDS}{self._symbol}").value
        if allowed < block <= MAX_THREADS:
            return (
                f"is launched with {counted(block, 'thread')} a block, and its __launch_bounds__ "
                f"allow {allowed} at most"
            )
        shared = self.shared_with(dynamic)
        if shared > SHARED_LIMIT:
            return (
                f"takes {shared} bytes of shared memory a block, {dynamic} of them dynamic, and a "
                f"launch has {SHARED_LIMIT} at most"
            )
        return None

    def shared_with(self, dynamic: int) -> int:
        """Bytes of shared memory per block, `dynamic` of them set by the launch. Other kernels of
        the library count too unless that exceeds the limit."""
        all_kernels: int = self._runtime.cudaemu_shared_bytes(ctypes.byref(self.descriptor))
        if all_kernels + dynamic <= SHARED_LIMIT:
            return all_kernels + dynamic
        return _static_shared(self._path, self.entry) + dynamic

    def set_constant(self, name: str, *values: int) -> None:
        """Set a `__constant__` of 64-bit words; raises KernelFault if there is none."""
        for other in self.others:
            other.set_constant(name, *values)
        try:
            symbol = ctypes.c_uint64.in_dll(self._library, name)
        except ValueError:
            raise KernelFault(f"{self.entry} has no __constant__ named {name}") from None
        data = (ctypes.c_uint64 * len(values))(*(value % 2**64 for value in values))
        room = ctypes.sizeof(data)
        size = self._runtime.cudaemu_set_symbol(ctypes.addressof(symbol), ctypes.byref(data), room)
        if size != room:
            raise KernelFault(f"{name} of {self.entry} has {size} bytes, not {room}")


def program_in(
    libraries: Sequence[Path], source: Source, runtime: ctypes.CDLL
) -> CpuProgram | BuildError:
    """The program in libraries compiled for different GPUs, the default one first; a BuildError if
    it declares too much shared memory."""
    for library in () if source.kernels else libraries:
        if _thread_local(library) > SHARED_LIMIT:
            shared = _static_shared(library, source.entry)
            if shared > SHARED_LIMIT:
                return BuildError(
                    f"{source.path}: error: {source.entry} declares {shared} bytes of shared "
                    f"memory, and no kernel may declare more than {SHARED_LIMIT}"
                )
    first, *others = libraries
    if source.kernels:  # one library, whose variables keep what a launch leaves there
        return CpuProgram(first, source.entry, runtime, kernels=source.kernels)
    return CpuProgram(
        first, source.entry, runtime, [CpuProgram(path, source.entry, runtime) for path in others]
    )


def _thread_local(library: Path) -> int:
    """Bytes of a library's thread-local segment, which holds the shared memory of all its kernels,
    from the program headers of the ELF file (elf(5))."""
    data = library.read_bytes()
    (start,), (size, count) = (
        struct.unpack_from("=Q", data, 32),
        struct.unpack_from("=HH", data, 54),
    )
    headers = [struct.unpack_from("=IIQQQQQ", data, start + k * size) for k in range(count)]
    return sum(header[6] for header in headers if header[0] == _PT_TLS)


def _static_shared(library: Path, entry: str) -> int:
    """Bytes of static shared memory of a kernel: all of its library or, if that has several
    kernels, the variables declared in the kernel's own body."""
    table = subprocess.run(
        ["readelf", "--symbols", "--wide", str(library)], capture_output=True, text=True, check=True
    ).stdout
    found = [match for match in map(_SYMBOL.match, table.splitlines()) if match]
    kernels = {match["name"] for match in found if match["name"].startswith(_ENTRY)}
    name = entry.partition("<")[0].rpartition("::")[2]
    own = rf"_ZZ\w*?{len(name)}{name}[EI]" if len(kernels) > 1 else ""
    return sum(
        int(match["size"], 0)
        for match in found
        if match["kind"] == "TLS" and re.match(own, match["name"]) and _MARKER not in match["name"]
    )


#: Faults of a launch that are shown: without barriers there is one for each pair of lines.
_MOST_SHOWN = 3
_RACE = re.compile(
    r"(?P<now>\S+:\d+): data race in (?P<space>\w+) memory: .* at (?P<earlier>\S+:\d+), "
)


class Call:
    """A prepared launch, which keeps its arguments alive. Raises KernelFault if the kernel takes
    another number of arguments."""

    def __init__(
        self, program: CpuProgram, grid: Dim3, block: Dim3, arguments: Sequence[Argument | bytes],
        dynamic_shared: int,
    ) -> None:  # fmt: skip
        expected = program.descriptor.parameters
        if len(arguments) != expected:
            raise KernelFault(f"{program.entry} takes {expected} arguments, not {len(arguments)}")
        self._variants = (program, *program.others)
        refusals = [variant.refusal(prod(block), dynamic_shared) for variant in self._variants]
        self._refusal = next(filter(None, refusals), None)
        self._slots = [_slot(argument) for argument in arguments]
        self._keeps = tuple(arguments)
        self.request = Request(
            arguments=(ctypes.c_void_p * len(self._slots))(*map(ctypes.addressof, self._slots)),
            grid=grid,
            block=block,
            dynamic_shared=dynamic_shared,
        )

    def run(self, runtime: ctypes.CDLL, turn: int) -> None:
        """Launch the variant number `turn`, modulo their number. Raises KernelFault."""
        entry = self._variants[0].entry
        if self._refusal is not None:
            raise KernelFault(f"{entry} {self._refusal}")
        variant = self._variants[turn % len(self._variants)]
        self.request.entry = ctypes.addressof(variant.descriptor)
        if runtime.cudaemu_launch(ctypes.byref(self.request)) != 0:
            text = runtime.cudaemu_diagnostics().decode(errors="replace")
            faults = merged_races(resolve_locations(text).splitlines())
            more = [f"and {len(faults) - _MOST_SHOWN} more"] if len(faults) > _MOST_SHOWN else []
            raise KernelFault(f"{entry}: {'; '.join(faults[:_MOST_SHOWN] + more)}")


def merged_races(faults: Sequence[str]) -> list[str]:
    """The faults of a launch, of data races one for each pair of lines: the one whose threads are
    farthest apart, since its scope decides which barrier is missing."""
    kept: dict[object, str] = {}
    for fault in faults:
        race = _RACE.match(fault)
        key = (frozenset((race["now"], race["earlier"])), race["space"]) if race else fault
        if key not in kept or "no __syncwarp()" in kept[key]:
            kept[key] = fault
    wide = [fault for fault in kept.values() if "no __syncwarp()" not in fault]
    return [*wide, *(fault for fault in kept.values() if fault not in wide)]


def _slot(argument: Argument | bytes) -> ctypes.Array[ctypes.c_uint64]:
    """Memory that holds an argument, aligned to 16 bytes if it is given as bytes."""
    if not isinstance(argument, bytes):
        words = _words(argument)
        return (ctypes.c_uint64 * len(words))(*words)
    count = -(-len(argument) // 8)
    room = (ctypes.c_uint64 * (count + 2))()
    shift = -ctypes.addressof(room) % 16
    slot = (ctypes.c_uint64 * (count + 1)).from_buffer(room, shift)
    ctypes.memmove(slot, argument, len(argument))
    return slot


def _words(argument: Argument) -> tuple[int, ...]:
    """The 64-bit words of an argument."""
    if isinstance(argument, tuple):
        return argument
    return (argument if isinstance(argument, int) else argument.address,)
