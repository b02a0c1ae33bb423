"""A kernel's library, and how much shared memory it takes."""

from __future__ import annotations

import ctypes
import re
import struct
import subprocess
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from cudareduce.backend import Source
from cudareduce.emulator.runtime import Entry
from cudareduce.errors import BuildError, KernelFault
from cudareduce.problem.sizes import counted

#: Bytes a block that a kernel may declare, and take in all where nobody has allowed it more.
SHARED_LIMIT = 49152
#: Threads a block on every GPU; the runtime says so of more.
MAX_THREADS = 1024

_PT_TLS = 7
_SYMBOL = re.compile(
    r"\s*\d+: [0-9a-f]+\s+(?P<size>\w+)\s+(?P<kind>TLS|OBJECT)\s.*\s(?P<name>\S+)$"
)
_ENTRY = "cudaemu_entry_"
_BOUNDS = "cudaemu_bounds_"
_MARKER = "shared_segment_marker"


class CpuProgram:
    """A kernel's library and one of its entry points, loaded when it is first asked for: that runs
    constructors, which are a user's. Then raises KernelFault if it does not load. `others` are the
    same kernel for GPUs to which its text says something else. `symbol` is what the library calls
    the entry point, `kernels` are those of an external program."""

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
        """The address of a variable of an external program, and what it held at first."""
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
        """What the runtime calls."""
        return Entry.in_dll(self._library, f"{_ENTRY}{self._symbol}")

    def refusal(self, block: int, dynamic: int) -> str | None:
        """Why no GPU would launch it with `block` threads and `dynamic` bytes of shared memory a
        block, or None if one would."""
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
        """Bytes of shared memory that a block takes, `dynamic` of them given by the launch; those
        of other kernels in the file are told apart where all are too many."""
        all_kernels: int = self._runtime.cudaemu_shared_bytes(ctypes.byref(self.descriptor))
        if all_kernels + dynamic <= SHARED_LIMIT:
            return all_kernels + dynamic
        return _static_shared(self._path, self.entry) + dynamic

    def set_constant(self, name: str, *values: int) -> None:
        """Set a `__constant__` of the program, words of 64 bits. Raises KernelFault if there is
        none."""
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
    """The program in compiled libraries, the first of which is what there is to run as long as
    nobody asks for another GPU; they are bound to `runtime`. A BuildError if no GPU would take
    it."""
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
    """Bytes of a library's thread-local segment, which holds the shared memory of all its kernels:
    from the program headers of a 64-bit ELF file (elf(5))."""
    data = library.read_bytes()
    (start,), (size, count) = (
        struct.unpack_from("=Q", data, 32),
        struct.unpack_from("=HH", data, 54),
    )
    headers = [struct.unpack_from("=IIQQQQQ", data, start + k * size) for k in range(count)]
    return sum(header[6] for header in headers if header[0] == _PT_TLS)


def _static_shared(library: Path, entry: str) -> int:
    """Bytes of static shared memory of a kernel: all that its library has or, beside other kernels,
    what is declared in its own body, as nothing tells whose the rest is."""
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
