"""The protocols of backends, which the GPU and the CPU emulator implement.

A backend compiles translation units, owns buffers, and prepares launches as functions without
arguments. It is independent of reductions. A `TimedBackend` also has events, contexts and a
monitor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from cudareduce.budget import Deadline
from cudareduce.errors import BuildError
from cudareduce.machine import Conditions, DeviceInfo, DeviceLimits

if TYPE_CHECKING:
    import numpy as np

BackendName = Literal["cuda", "cpu"]
#: The backends whose launches can be timed.
TIMED_BACKENDS: tuple[BackendName, ...] = ("cuda",)

Launch = Callable[[], None]
Dim3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Source:
    """A complete translation unit: its `text` with the prelude, and the symbol of its kernel.

    An external program has kernels by their C++ names (`ns::reduce<float, 256>`) instead of one
    entry point, and `__device__` and `__constant__` variables.
    """

    text: str
    entry: str
    path: Path
    kernels: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A launch of a kernel by its index in `Source.kernels`; an argument is an address or the bytes
    of a value."""

    kernel: int
    grid: Dim3
    block: Dim3
    shared: int
    cooperative: bool
    arguments: tuple[int | bytes, ...]


class Buffer(Protocol):
    """Memory of a backend."""

    @property
    def address(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


#: An argument of a kernel: memory, a 64-bit size, or a structure of such words.
Argument = Buffer | int | tuple[int, ...]


class Program(Protocol):
    """A compiled and loaded translation unit."""

    @property
    def entry(self) -> str: ...

    @property
    def binary_sha(self) -> str | None:
        """SHA-256 of the machine code; None on the emulator."""

    def set_constant(self, name: str, *values: int) -> None:
        """Set a `__constant__` of 64-bit words."""


def require_built(results: Iterable[Program | BuildError | None]) -> list[Program]:
    """The programs of a build without a deadline. Raises the first BuildError."""
    programs = []
    for result in results:
        if isinstance(result, BuildError):
            raise result
        assert result is not None  # None only at a deadline
        programs.append(result)
    return programs


def build_all(backend: Backend, sources: Sequence[Source]) -> dict[str, Program]:
    """Compile and load all sources; the programs by entry point. Raises BuildError and
    EnvironmentProblem."""
    return {program.entry: program for program in require_built(backend.build(sources))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Properties of a backend that verification depends on.

    `isolated`: kernels run in child processes, since a fault ends the process. `large`: sizes
    beyond 2^24 elements, and beyond 2^32 bytes, are fast enough for every verification.
    `host_copies`: copies of an input in host memory. `lacks`: hardware features that a kernel may
    require and that are missing.
    """

    isolated: bool
    large: bool
    host_copies: int
    lacks: tuple[str, ...] = ()


class Backend(Protocol):
    """Compiles and runs kernels on one device."""

    @property
    def name(self) -> BackendName: ...

    @property
    def traits(self) -> Traits: ...

    def timed(self) -> TimedBackend | None:
        """This backend if its launches can be timed, else None."""

    def sparse(self) -> SparseBackend | None:
        """This backend if it can run single blocks on reserved memory, else None."""

    def info(self) -> DeviceInfo:
        """The device, as in result files."""

    def limits(self) -> DeviceLimits:
        """The limits of launch shapes."""

    def build(
        self, sources: Sequence[Source], progress: Callable[[], None] = ...,
        deadline: Deadline | None = None,
    ) -> list[Program | BuildError | None]:  # fmt: skip
        """Compile and load in parallel, with one `progress` call each; None for sources that the
        deadline left out. Raises EnvironmentProblem without a working compiler."""

    def upload(self, array: np.ndarray, misalign: int = 0) -> Buffer:
        """Copy an array to the device, `misalign` bytes after an aligned address. Raises
        OutOfMemory."""

    def allocate(self, nbytes: int) -> Buffer:
        """Allocate memory filled with set bits (see `poison`). Raises OutOfMemory."""

    def poison(self, buffer: Buffer, byte: int = 0xFF) -> None:
        """Fill a buffer with a byte, by default with set bits: NaN as a float, -1 as an integer."""

    def write(self, buffer: Buffer, array: np.ndarray, offset: int = 0) -> None:
        """Copy an array to offset `offset`, in bytes, of a buffer; no work may be in flight."""

    def zero(self, buffer: Buffer) -> None:
        """Fill a buffer with zeros."""

    def damage(self, buffer: Buffer) -> str | None:
        """Describe writes past either end of a buffer that did not fault; None without any."""

    def download(self, buffer: Buffer, dtype: str, count: int) -> np.ndarray:
        """Copy `count` elements to the host after all work in flight. Raises KernelFault."""

    def new_stream(self) -> StreamBackend:
        """A backend for the same device and memory with a new stream."""

    def pin(self, array: np.ndarray) -> Buffer:
        """Pin an array of whole pages in host memory until it is freed; kernels read it at the
        buffer's address. Raises OutOfMemory."""

    def free(self, *buffers: Buffer) -> None:
        """Free memory."""

    def launcher(
        self, program: Program, grid: int, block: int, args: Sequence[Argument],
        dynamic_shared: int = 0,
    ) -> Launch:  # fmt: skip
        """A ready launch of `grid` blocks of `block` threads with `dynamic_shared` bytes a block.
        Raises TooManyBlocks at once, and KernelFault when run."""

    def call(self, program: Program, call: KernelCall) -> Launch:
        """A function that launches a kernel of an external program. Raises as `launcher`."""

    def variable(self, program: Program, index: int, nbytes: int) -> tuple[Buffer, bytes]:
        """The memory of a variable of an external program, which must not be freed, and its initial
        bytes. Raises KernelFault if it has another size."""

    def schedules(self, repeats: int, *, quick: bool) -> Iterator[str]:
        """Thread schedules for the same launches, each in force until the next: one for each named
        order of the backend, the first alone if `quick`; or `repeats` unnamed ones of a device that
        schedules by itself."""

    def printed(self) -> list[str]:
        """Lines that kernels have printed since the last call, except on standard output."""

    def filler(self, buffer: Buffer, pattern: bytes, offset: int = 0) -> Launch:
        """A function that writes `pattern` to offset `offset`, in bytes, of a buffer."""

    def copier(
        self, target: Buffer, target_offset: int, source: Buffer, source_offset: int, nbytes: int
    ) -> Launch:
        """A function that copies from one buffer to another; offsets are in bytes."""

    def synchronize(self) -> None:
        """Wait for all work in flight. Raises KernelFault."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        tb: TracebackType | None,
    ) -> None: ...  # fmt: skip


class StreamBackend(Backend, Protocol):
    """A backend with its own stream for asynchronous copies and launches."""

    def copy_in(self, buffer: Buffer, array: np.ndarray) -> None:
        """Enqueue a copy of an array, which must not change until then, to a buffer's start."""

    def mark(self) -> Any:
        """Enqueue an event."""

    def follow(self, mark: Any) -> None:
        """Let the stream wait for an event, possibly of another stream."""

    def wait(self, mark: Any) -> None:
        """Let the host wait for an event. Raises KernelFault."""


class SparseBackend(Backend, Protocol):
    """Runs single blocks of launches that are larger than any memory."""

    def reserve(self, nbytes: int) -> Buffer:
        """Reserve zeroed address space, mostly without physical memory, between guard areas larger
        than a 32-bit index can span. Raises OutOfMemory."""

    def run_alone(
        self, number: int, most_s: float, program: Program, grid: int, block: int,
        args: Sequence[Argument], dynamic_shared: int = 0,
    ) -> float | None:  # fmt: skip
        """Run only block `number` of a grid, then restore the kernel's variables. Returns its CPU
        time in seconds, None if it was stopped after `most_s`. Raises KernelFault."""


class CountingBackend(Backend, Protocol):
    """Counts the memory accesses of warps."""

    def traffic(self) -> dict[str, int]:
        """The counters since the last call, by name (emulator/traffic.h)."""


class Monitor(Protocol):
    """Reads the state of one GPU. Values that it cannot read are None, and `problem` names the
    first of them and a remedy."""

    problem: str | None

    def read(self) -> Conditions:
        """The current state."""

    def energy_j(self) -> float | None:
        """Joules that the GPU has used since its driver was loaded."""

    def other_processes(self) -> int:
        """The number of processes on the GPU without this one and its children."""


class Gate(Protocol):
    """Holds a stream until the host opens it, without keeping the GPU busy."""

    def close(self) -> None:
        """Let the stream wait until the gate is opened. Raises EnvironmentProblem."""

    def open(self) -> None:
        """Let the stream continue."""


class Graph(Protocol):
    """Work captured from a stream."""

    @property
    def launch(self) -> Launch:
        """Enqueues all of it by one call."""

    def close(self) -> None:
        """Free the driver's memory."""


class TimedBackend(StreamBackend, Protocol):
    """A device with events, further contexts, and a monitor."""

    @property
    def stream_handle(self) -> int:
        """The driver's handle of the stream."""

    def another(self) -> AbstractContextManager[TimedBackend]:
        """Context manager for the same device in a new context, which is destroyed with its buffers
        on exit. Compiled kernels are loaded there. Raises OutOfMemory and EnvironmentProblem."""

    def monitor(self) -> Monitor:
        """The monitor of this device."""

    def overwrite(self, buffer: Buffer, offset: int, source: Buffer) -> None:
        """Enqueue a copy of `source` to offset `offset`, in bytes, of a buffer."""

    def reset_persisting(self) -> None:
        """Reset all persisting lines of the L2 cache to normal."""

    def reached(self, event: Any) -> bool:
        """True if the device has passed an event."""

    def elapsed_us(self, start: Any, end: Any) -> float:
        """Microseconds between two passed events."""

    def host_us(self) -> float:
        """The host's clock in microseconds."""

    def finish(self) -> None:
        """Wait for all work of the context, in all streams."""

    def gate(self) -> Gate:
        """A gate in the stream. Raises EnvironmentProblem."""

    def graph(self, run: Launch) -> Graph:
        """Capture the work that `run` enqueues as a graph. Raises EnvironmentProblem."""
