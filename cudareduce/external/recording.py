"""The record of one run of host code: what it did on its simulated GPU.

The recorder writes a `Recording`. Roles, plans and verdicts are derived from it. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

Dim3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class DeviceBuffer:
    """One allocation, or one `__device__` or `__constant__` variable that the host uses by name.

    `address` is its address during the recording, to which pointers in copied data refer.
    `parameter` is the parameter of the host function that received this buffer; what the function's
    caller does with the buffer is not recorded.
    """

    id: int
    nbytes: int
    symbol: str | None = None
    managed: bool = False  # host and device both address it: managed or mapped pinned memory
    address: int = 0
    parameter: str | None = None
    element: str = ""  # C++ type of its elements; "" or void if that is not known
    used: bool = True  # False for a variable that the host does not use


@dataclass(frozen=True, slots=True)
class Pointer:
    """A kernel argument that points into a buffer; `buffer` None is a null or unknown pointer."""

    buffer: int | None
    offset: int
    element: str  # C++ type it points to, aliases resolved
    element_size: int  # 0 for void


@dataclass(frozen=True, slots=True)
class Scalar:
    """A kernel argument passed by value: its C++ type, bytes, and number if it is one.

    `pointers` are the struct members that point into a buffer: (offset in `data`, pointer); their
    element type is that of the allocation. `functions` are pointers to device functions, each with
    the address of a device variable that holds the same pointer, if there is one.
    """

    type: str
    data: bytes
    value: int | float | None
    pointers: tuple[tuple[int, Pointer], ...] = ()
    functions: tuple[tuple[int, Pointer], ...] = ()


Argument = Pointer | Scalar


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch. `kernel` is the instantiated name: `reduce6<float, 512u, false>`.
    `held` are pointers that the host copied to device variables before; recorded if the
    arguments contain less than an input and a result."""

    kernel: str
    template: str  # name without template arguments
    parameters: tuple[tuple[str, str], ...]  # (name, type with aliases resolved)
    grid: Dim3
    block: Dim3
    shared: int
    cooperative: bool
    stream: int  # 0 is the default stream
    arguments: tuple[Argument, ...]
    line: int  # of the launch in the file
    cluster: Dim3 = (1, 1, 1)
    held: tuple[Pointer, ...] = ()


@dataclass(frozen=True, slots=True)
class Fill:
    """cudaMemset of part of a buffer."""

    buffer: int
    offset: int
    nbytes: int
    byte: int


@dataclass(frozen=True, slots=True)
class CopyIn:
    """A copy from host to device, or a host write to managed memory. `data` is None if it is
    large. `pointers` are the buffer pointers in it: (offset in `data`, pointer)."""

    buffer: int
    offset: int
    nbytes: int
    data: bytes | None
    pointers: tuple[tuple[int, Pointer], ...] = ()


@dataclass(frozen=True, slots=True)
class CopyOut:
    """A copy from device to host, or the host's first read of managed memory after a
    synchronization."""

    buffer: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class CopyWithin:
    """A copy from device to device."""

    target: int
    target_offset: int
    source: int
    source_offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A call that launches library kernels, which are not recorded, such as `thrust::reduce`."""

    name: str
    line: int = 0


Step = Launch | Fill | CopyIn | CopyOut | CopyWithin | LibraryCall


@dataclass(frozen=True, slots=True)
class Recording:
    """All steps of one run in the order of the host's calls. Of identical steps, as in a timing
    loop, the first 256 are kept.

    The kernels are compiled from `source` if given (the file's text with its size constant
    changed), else from `path`; both with `include` and `define`.
    """

    path: Path
    entry: str  # "main" or the host function that was called, with its arguments in words
    size: int | None  # the n that this run was asked for; None: the size in the file
    buffers: tuple[DeviceBuffer, ...]
    steps: tuple[Step, ...]
    ended: str | None = None  # why the host ended early, in words; None: it returned
    varied: str | None = None  # what sets the size: "argument 1 of main", "const int N, line 7"
    source: str | None = None
    include: tuple[Path, ...] = ()
    define: tuple[str, ...] = ()  # "NAME=VALUE"
    is_largest: bool = False  # a launch with more elements lacks shared memory
    again: tuple[Step, ...] = ()  # of a second call of a host function on the same buffers

    @property
    def is_main(self) -> bool:
        """True if main() of the file was run, and not a host function or a generated main()."""
        return self.entry.partition(" ")[0] == "main"
