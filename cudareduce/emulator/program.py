"""A kernel's library, loaded, and how much shared memory it takes."""

from __future__ import annotations

import ctypes
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cudareduce.backend import BuildError, KernelFault, Source
from cudareduce.emulator.runtime import Entry

#: Bytes a block that a kernel may declare, and take in all where nobody has allowed it more.
SHARED_LIMIT = 49152

_SYMBOL = re.compile(
    r"\s*\d+: [0-9a-f]+\s+(?P<size>\w+)\s+(?P<kind>TLS|OBJECT)\s.*\s(?P<name>\S+)$"
)
_ENTRY = "cudaemu_entry_"
_MARKER = "shared_segment_marker"


@dataclass(frozen=True, slots=True)
class CpuProgram:
    """A kernel's library, loaded, and one of its entry points."""

    entry: str
    binary_sha: str | None
    library: ctypes.CDLL
    runtime: ctypes.CDLL
    descriptor: Entry
    path: Path

    def shared_with(self, dynamic: int) -> int:
        """Bytes of shared memory that a block takes, `dynamic` of them given by the launch; those
        of other kernels in the file are told apart where all are too many."""
        all_kernels: int = self.runtime.cudaemu_shared_bytes(ctypes.byref(self.descriptor))
        if all_kernels + dynamic <= SHARED_LIMIT:
            return all_kernels + dynamic
        return _static_shared(self.path, self.entry) + dynamic

    def set_constant(self, name: str, value: int) -> None:
        """Set a 64-bit `__constant__` of the program. Raises KernelFault if there is none."""
        try:
            symbol = ctypes.c_uint64.in_dll(self.library, name)
        except ValueError:
            raise KernelFault(f"{self.entry} has no __constant__ named {name}") from None
        data = ctypes.c_uint64(value % 2**64)
        size = self.runtime.cudaemu_set_symbol(ctypes.addressof(symbol), ctypes.byref(data), 8)
        if size != 8:
            raise KernelFault(f"{name} of {self.entry} has {size} bytes, not 8")


def load_program(runtime: ctypes.CDLL, source: Source, path: Path) -> CpuProgram | BuildError:
    """The program in a compiled library, which is bound to `runtime`; a BuildError if no GPU would
    take it."""
    library = ctypes.CDLL(str(path))
    descriptor = Entry.in_dll(library, f"{_ENTRY}{source.entry}")
    program = CpuProgram(source.entry, None, library, runtime, descriptor, path)
    shared = program.shared_with(0)
    if shared > SHARED_LIMIT:
        return BuildError(
            f"{source.path}: error: {source.entry} declares {shared} bytes of shared memory, and "
            f"no kernel may declare more than {SHARED_LIMIT}"
        )
    return program


def _static_shared(library: Path, entry: str) -> int:
    """Bytes of static shared memory of a kernel: all that its library has or, beside other kernels,
    what is declared in its own body, as nothing tells whose the rest is."""
    table = subprocess.run(
        ["readelf", "--symbols", "--wide", str(library)], capture_output=True, text=True, check=True
    ).stdout
    found = [match for match in map(_SYMBOL.match, table.splitlines()) if match]
    kernels = {match["name"] for match in found if match["name"].startswith(_ENTRY)}
    own = f"_ZZ{len(entry)}{entry}E" if len(kernels) > 1 else ""
    return sum(
        int(match["size"], 0)
        for match in found
        if match["kind"] == "TLS" and match["name"].startswith(own) and _MARKER not in match["name"]
    )
