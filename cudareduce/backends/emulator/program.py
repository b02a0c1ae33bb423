"""Loads compiled kernels and the runtime library through ctypes, and launches kernels."""

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

from cudareduce.backends.emulator.toolchain import SHARED_LIMIT, resolve_locations
from cudareduce.backends.protocol import Argument, Dim3, Source
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
    """A memory access by a thread of block 0, or an exchange (shuffle or vote) by a warp of it.

    `offset` is the address relative to the start of the buffer or of shared memory. `barriers` and
    `collectives` count the barriers of the block and the exchanges of the warp before it. For an
    exchange, `thread` is the first thread of the warp, and `bytes` holds the mask of lanes."""

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
    """Memory traffic since the last call, as the counters named in TOTALS."""
    totals = Totals()
    runtime.cudaemu_take_traffic(ctypes.byref(totals))
    return {name: getattr(totals, name) for name in TOTALS}


def take_accesses(runtime: ctypes.CDLL) -> list[Access]:
    """The first 65 536 accesses of block 0 since the last call, in order of execution."""
    first = ctypes.POINTER(Event)()
    count = runtime.cudaemu_take_events(ctypes.byref(first))
    return [
        Access(_ACCESSES[e.kind], e.thread, e.barriers, e.collectives, e.offset, e.bytes)
        for e in first[:count]
    ]


def _load_once(runtime: Path) -> ctypes.CDLL:
    """Load the runtime library, or return the one of this name that is already loaded.

    The name contains a hash of the content. Kernel libraries link to the runtime by name, so all of
    them get the copy that was loaded first, whatever its folder.
    """
    try:
        return ctypes.CDLL(runtime.name, mode=os.RTLD_NOLOAD)
    except OSError:
        return ctypes.CDLL(str(runtime))


def load_runtime(path: Path) -> ctypes.CDLL:
    """Load the runtime library, and declare the types of its functions."""
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
    """A kernel in a compiled library. The library is loaded at first use, since loading runs global
    constructors of the user's code; this raises KernelFault if it fails.

    `variants` are the same kernel compiled for other values of __CUDA_ARCH__. `symbol` names the
    entry point in the library. `kernels` names the kernels of an external program."""

    binary_sha: str | None = None

    def __init__(
        self, path: Path, entry: str, runtime: ctypes.CDLL, variants: Sequence[CpuProgram] = (),
        symbol: str = "", kernels: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.entry, self._path, self._runtime = entry, path, runtime
        self.variants, self._symbol = tuple(variants), symbol or entry
        self.kernels = tuple(
            CpuProgram(path, name, runtime, symbol=f"kernel{k}") for k, name in enumerate(kernels)
        )

        self._initial: dict[int, bytes] = {}

    def variable(self, index: int) -> tuple[int, bytes]:
        """The address and the initial bytes of a variable of an external program."""
        address = ctypes.c_uint64.in_dll(self._library, f"cudaemu_address_variable{index}").value
        size = ctypes.c_ulong.in_dll(self._library, f"cudaemu_size_variable{index}").value
        initial = self._initial.setdefault(index, ctypes.string_at(address, size))
        return address, initial

    @cached_property
    def _library(self) -> ctypes.CDLL:
        try:
            return ctypes.CDLL(str(self._path))
        except OSError as error:
            raise KernelFault(f"{self.entry} cannot be loaded: {error}") from None

    @cached_property
    def descriptor(self) -> Entry:
        """The kernel's entry point, as the runtime library takes it."""
        return Entry.in_dll(self._library, f"{_ENTRY}{self._symbol}")

    def refusal(self, block: int, dynamic: int) -> str | None:
        """Why a GPU would reject a launch with `block` threads and `dynamic` bytes of dynamic
        shared memory per block; None if it would not."""
        allowed = ctypes.c_uint.in_dll(self._library, f"{_BOUNDS}{self._symbol}").value
        if allowed < block <= MAX_THREADS:
            return (
                f"is launched with {counted(block, 'thread')} per block, and its __launch_bounds__ "
                f"allow {allowed} at most"
            )
        shared = self.shared_bytes(dynamic)
        if shared > SHARED_LIMIT:
            return (
                f"uses {shared} bytes of shared memory per block, {dynamic} of them dynamic, and a "
                f"launch has {SHARED_LIMIT} at most"
            )
        return None

    def shared_bytes(self, dynamic: int) -> int:
        """Shared memory per block in bytes: static, and `dynamic` bytes that the launch sets.

        This includes the static shared memory of the library's other kernels, which is quick to
        get. Only if that exceeds the limit does it count this kernel alone."""
        all_kernels: int = self._runtime.cudaemu_shared_bytes(ctypes.byref(self.descriptor))
        if all_kernels + dynamic <= SHARED_LIMIT:
            return all_kernels + dynamic
        return _static_shared(self._path, self.entry) + dynamic

    def set_constant(self, name: str, *values: int) -> None:
        """Set a `__constant__` of 64-bit words; raises KernelFault if there is none."""
        for variant in self.variants:
            variant.set_constant(name, *values)
        try:
            symbol = ctypes.c_uint64.in_dll(self._library, name)
        except ValueError:
            raise KernelFault(f"{self.entry} has no __constant__ named {name}") from None
        data = (ctypes.c_uint64 * len(values))(*(value % 2**64 for value in values))
        nbytes = ctypes.sizeof(data)
        address = ctypes.addressof(symbol)
        size = self._runtime.cudaemu_set_symbol(address, ctypes.byref(data), nbytes)
        if size != nbytes:
            raise KernelFault(f"{name} of {self.entry} has {size} bytes, not {nbytes}")


def program_in(
    libraries: Sequence[Path], source: Source, runtime: ctypes.CDLL
) -> CpuProgram | BuildError:
    """The program in `libraries`, which hold the same source compiled for different values of
    __CUDA_ARCH__, the default first. A BuildError if it declares too much shared memory."""
    for library in () if source.kernels else libraries:
        if _thread_local(library) > SHARED_LIMIT:
            shared = _static_shared(library, source.entry)
            if shared > SHARED_LIMIT:
                return BuildError(
                    f"{source.path}: error: {source.entry} declares {shared} bytes of shared "
                    f"memory, and no kernel may declare more than {SHARED_LIMIT}"
                )
    first, *rest = libraries
    # Launches of an external program share variables, so they must all use the same library.
    if source.kernels:
        return CpuProgram(first, source.entry, runtime, kernels=source.kernels)
    variants = [CpuProgram(path, source.entry, runtime) for path in rest]
    return CpuProgram(first, source.entry, runtime, variants)


def _thread_local(library: Path) -> int:
    """Size in bytes of a library's thread-local segment, which holds the static shared memory of
    all its kernels. Read from the ELF program headers (elf(5))."""
    data = library.read_bytes()
    (start,), (size, count) = (
        struct.unpack_from("=Q", data, 32),
        struct.unpack_from("=HH", data, 54),
    )
    headers = [struct.unpack_from("=IIQQQQQ", data, start + k * size) for k in range(count)]
    return sum(header[6] for header in headers if header[0] == _PT_TLS)


def _static_shared(library: Path, entry: str) -> int:
    """Static shared memory of a kernel in bytes. If the library has several kernels, only variables
    declared in this kernel's body count, else all variables of the library."""
    table = subprocess.run(
        ["readelf", "--symbols", "--wide", str(library)], capture_output=True, text=True, check=True
    ).stdout
    symbols = [match for match in map(_SYMBOL.match, table.splitlines()) if match]
    kernels = {symbol["name"] for symbol in symbols if symbol["name"].startswith(_ENTRY)}
    name = entry.partition("<")[0].rpartition("::")[2]
    own = rf"_ZZ\w*?{len(name)}{name}[EI]" if len(kernels) > 1 else ""
    return sum(
        int(symbol["size"], 0)
        for symbol in symbols
        if symbol["kind"] == "TLS"
        and re.match(own, symbol["name"])
        and _MARKER not in symbol["name"]
    )


#: At most this many faults of a launch are shown. A kernel without barriers has one data race for
#: each pair of source lines.
_MOST_SHOWN = 3
#: Part of a data race between lanes of one warp, and what is said once where all are of that kind.
_IN_A_WARP = "no __syncwarp()"
_LOCKSTEP = "warps do not run in lockstep: each step needs `__syncwarp()` since Volta"
_RACE = re.compile(
    r"(?P<now>\S+:\d+): data race in (?P<space>\w+) memory: .* at (?P<earlier>\S+:\d+), "
)


class Call:
    """A prepared launch, which keeps references to its arguments. Raises KernelFault if the kernel
    takes a different number of arguments."""

    def __init__(
        self, program: CpuProgram, grid: Dim3, block: Dim3, arguments: Sequence[Argument | bytes],
        dynamic_shared: int,
    ) -> None:  # fmt: skip
        expected = program.descriptor.parameters
        if len(arguments) != expected:
            raise KernelFault(f"{program.entry} takes {expected} arguments, not {len(arguments)}")
        self._variants = (program, *program.variants)
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
        """Launch the kernel in its variant number `turn` modulo the number of variants. Raises
        KernelFault for faults found during the launch."""
        entry = self._variants[0].entry
        if self._refusal is not None:
            raise KernelFault(f"{entry} {self._refusal}")
        variant = self._variants[turn % len(self._variants)]
        self.request.entry = ctypes.addressof(variant.descriptor)
        if runtime.cudaemu_launch(ctypes.byref(self.request)) != 0:
            text = runtime.cudaemu_diagnostics().decode(errors="replace")
            faults = merged_races(resolve_locations(text).splitlines())
            if len(faults) > 1 and all(_IN_A_WARP in fault for fault in faults):
                raise KernelFault(f"{entry}: {faults[0]}; {_LOCKSTEP}")
            more = [f"and {len(faults) - _MOST_SHOWN} more"] if len(faults) > _MOST_SHOWN else []
            raise KernelFault(f"{entry}: {'; '.join(faults[:_MOST_SHOWN] + more)}")


def merged_races(faults: Sequence[str]) -> list[str]:
    """The faults of a launch, with one data race per pair of source lines. A race between warps is
    kept rather than one within a warp, since only it shows that __syncwarp() is not enough."""
    kept: dict[object, str] = {}
    for fault in faults:
        race = _RACE.match(fault)
        key = (frozenset((race["now"], race["earlier"])), race["space"]) if race else fault
        if key not in kept or _IN_A_WARP in kept[key]:
            kept[key] = fault
    wide = [fault for fault in kept.values() if _IN_A_WARP not in fault]
    return [*wide, *(fault for fault in kept.values() if fault not in wide)]


def _slot(argument: Argument | bytes) -> ctypes.Array[ctypes.c_uint64]:
    """A copy of an argument in memory; an argument of type bytes is aligned to 16 bytes."""
    if not isinstance(argument, bytes):
        words = _words(argument)
        return (ctypes.c_uint64 * len(words))(*words)
    count = -(-len(argument) // 8)
    memory = (ctypes.c_uint64 * (count + 2))()
    shift = -ctypes.addressof(memory) % 16
    slot = (ctypes.c_uint64 * (count + 1)).from_buffer(memory, shift)
    ctypes.memmove(slot, argument, len(argument))
    return slot


def _words(argument: Argument) -> tuple[int, ...]:
    """An argument as 64-bit words."""
    if isinstance(argument, tuple):
        return argument
    return (argument if isinstance(argument, int) else argument.address,)
