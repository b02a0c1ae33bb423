"""What runs kernels: the protocol that the GPU and the CPU emulator share.

A backend compiles translation units, owns buffers, and turns a launch into a call without arguments
that only has to be made. It knows nothing of reductions. One whose launches can be timed is a
`TimedBackend`: it has events, contexts and a monitor besides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from cudareduce.budget import Deadline
from cudareduce.errors import BuildError
from cudareduce.machine.device import Conditions, DeviceInfo, DeviceLimits

if TYPE_CHECKING:
    import numpy as np

BackendName = Literal["cuda", "cpu"]
#: Those whose launches can be timed.
TIMED_BACKENDS: tuple[BackendName, ...] = ("cuda",)

Launch = Callable[[], None]
Dim3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Source:
    """A complete translation unit: `text` with its prelude, `entry` the kernel's symbol in it.

    An external program has no entry point of ours: `kernels` are its kernels as C++ names them
    (`ns::reduce<float, 256>`), `variables` its `__device__` and `__constant__` variables.
    """

    text: str
    entry: str
    path: Path
    kernels: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One launch of a program's kernel, by its index in `Source.kernels`; an argument is an address
    or the bytes of a value."""

    kernel: int
    grid: Dim3
    block: Dim3
    shared: int
    cooperative: bool
    arguments: tuple[int | bytes, ...]


class Buffer(Protocol):
    """Memory of a backend; `address` is where it begins, for whoever launches by other means."""

    @property
    def address(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


#: What a kernel is given: memory, a 64-bit size, or a structure of such words.
Argument = Buffer | int | tuple[int, ...]


class Program(Protocol):
    """A compiled translation unit, loaded."""

    @property
    def entry(self) -> str: ...

    @property
    def binary_sha(self) -> str | None:
        """SHA-256 of the machine code, None where there is none for a GPU."""

    def set_constant(self, name: str, *values: int) -> None:
        """Set a `__constant__` of the program that holds so many words of 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What verification must know of a backend.

    `isolated`: a fault of a kernel is a fault of its process, so each is verified in a child.
    `watches`: it has a build that watches every access for hazards. `large`: sizes beyond 2^24
    elements, and beyond 2^32 bytes, are quick enough for every verification. `host_copies`: how
    many copies of an input lie in the host's memory. `lacks`: hardware that a kernel may require,
    and that is not there.
    """

    isolated: bool
    watches: bool
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
        """The same backend, if its launches can be timed."""

    def sparse(self) -> SparseBackend | None:
        """The same backend, if it can run single blocks on memory that is not there."""

    def info(self) -> DeviceInfo:
        """What a result says of the machine."""

    def limits(self) -> DeviceLimits:
        """What launch shapes depend on."""

    def build(
        self, sources: Sequence[Source], progress: Callable[[], None] = ...,
        deadline: Deadline | None = None,
    ) -> list[Program | BuildError | None]:  # fmt: skip
        """Compile in parallel; results in the order given, None for what there was no time for, one
        `progress` call each. Raises EnvironmentProblem if there is no compiler that works."""

    def upload(self, array: np.ndarray, misalign: int = 0) -> Buffer:
        """Copy an array to the device, its start `misalign` bytes off a 256-byte boundary. Raises
        OutOfMemory."""

    def allocate(self, nbytes: int) -> Buffer:
        """Fresh memory, every bit set: NaN as a float, -1 as an integer. Raises OutOfMemory."""

    def poison(self, buffer: Buffer, byte: int = 0xFF) -> None:
        """Fill a buffer with a byte, by default with every bit set again."""

    def write(self, buffer: Buffer, array: np.ndarray, offset: int = 0) -> None:
        """Copy an array to `offset` bytes into a buffer; no work may be in flight."""

    def zero(self, buffer: Buffer) -> None:
        """Clear every bit of a buffer."""

    def damage(self, buffer: Buffer) -> str | None:
        """What has been written outside a buffer; None if nothing was. For a backend that does not
        fault at once."""

    def download(self, buffer: Buffer, dtype: str, count: int) -> np.ndarray:
        """Copy `count` elements back, after all work in flight. Raises KernelFault."""

    def lane(self) -> Lane:
        """The same device and memory, for launches beside those that are made here."""

    def pin(self, array: np.ndarray) -> Buffer:
        """Keep bytes of the host, whole pages, where they lie: they are copied without a detour,
        and kernels read them at the buffer's address, until it is freed. Raises OutOfMemory."""

    def free(self, *buffers: Buffer) -> None:
        """Give memory back."""

    def launcher(
        self, program: Program, grid: int, block: int, args: Sequence[Argument],
        dynamic_shared: int = 0,
    ) -> Launch:  # fmt: skip
        """A ready launch of `grid` blocks of `block` threads with `dynamic_shared` bytes a block.
        May raise KernelFault when run, and TooManyBlocks at once."""

    def call(self, program: Program, call: KernelCall) -> Launch:
        """A ready launch of one of a program's `kernels`. Raises as `launcher` does."""

    def variable(self, program: Program, index: int, nbytes: int) -> tuple[Buffer, bytes]:
        """The memory of one of a program's `variables`, which is not to be freed, and what it held
        when this was first called. Raises KernelFault if it has another size."""

    def ways(self, repeats: int, *, quick: bool) -> Iterator[str]:
        """Ways to run the same launches again, each in force until the next is taken: `repeats` of
        them where the device has an order of its own, which no words tell apart; else one for each
        order that the backend can impose, named, and the first of them alone if `quick`."""

    def printed(self) -> list[str]:
        """Lines that kernels have printed since the last call, but for those on standard output."""

    def filler(self, buffer: Buffer, pattern: bytes, offset: int = 0) -> Launch:
        """A ready asynchronous write of some bytes to `offset` bytes into a buffer."""

    def copier(
        self, target: Buffer, target_offset: int, source: Buffer, source_offset: int, nbytes: int
    ) -> Launch:
        """A ready asynchronous copy from one buffer to another, offsets in bytes."""

    def synchronize(self) -> None:
        """Wait for all work in flight; raises KernelFault if any of it failed."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:  # fmt: skip
        """Give everything back."""


class Lane(Backend, Protocol):
    """A backend's device and memory with a stream of its own."""

    def copy_in(self, buffer: Buffer, array: np.ndarray) -> None:
        """Enqueue a copy of an array, which stays as it is until then, to a buffer's start."""

    def mark(self) -> Any:
        """A mark behind all work enqueued here so far."""

    def follow(self, mark: Any) -> None:
        """Let what is enqueued here from now on wait for a mark, be it of another lane."""

    def wait(self, mark: Any) -> None:
        """Let the host wait for a mark. Raises KernelFault."""


class SparseBackend(Backend, Protocol):
    """Runs single blocks of launches that are larger than any memory. `readers` is how many blocks
    of the last launch have read from the buffer of its first argument, None where accesses are not
    watched."""

    readers: int | None

    def reserve(self, nbytes: int) -> Buffer:
        """Address space for a buffer of which little is ever touched, 0 until written, between
        guards that no index of 32 bits passes. Raises OutOfMemory."""

    def run_alone(
        self, number: int, most_s: float, program: Program, grid: int, block: int,
        args: Sequence[Argument], dynamic_shared: int = 0,
    ) -> float | None:  # fmt: skip
        """Run one block of a grid and no other, and put back what it has made of the kernel's own
        variables; the seconds of a processor that it took, or None if it had not ended after
        `most_s`. Raises KernelFault."""


class CountingBackend(Backend, Protocol):
    """Counts what the warps of its launches ask of memory, from the addresses of their lanes."""

    def traffic(self) -> dict[str, int]:
        """What has been counted since the last call, by name (emulator/traffic.h)."""


class Monitor(Protocol):
    """Reads the state of one GPU again and again. What it cannot read is None, and `problem` says
    once, in words, what is missing and what to do about it."""

    problem: str | None

    def read(self) -> Conditions:
        """The state at this moment."""

    def energy_j(self) -> float | None:
        """Joules that the GPU has taken since its driver was loaded."""

    def other_processes(self) -> int:
        """How many processes besides this one and its children compute on the GPU."""


class Gate(Protocol):
    """Lets a stream wait for the host without keeping the GPU busy."""

    def close(self) -> None:
        """Enqueue a wait that ends when the gate is opened."""

    def open(self) -> None:
        """Let the stream go on."""


class Graph(Protocol):
    """Work captured from a stream, to be enqueued by one call."""

    @property
    def launch(self) -> Launch:
        """One call that enqueues all of it."""

    def close(self) -> None:
        """Give the driver's memory back."""


class TimedBackend(Lane, Protocol):
    """A device with events on its stream, further contexts, and a monitor."""

    @property
    def stream_handle(self) -> int:
        """The stream that launches go to, as the driver's handle."""

    def another(self) -> AbstractContextManager[TimedBackend]:
        """The same device in a context of its own, which ends with its buffers on leaving; what has
        been compiled is loaded there and not compiled again. Raises OutOfMemory and
        EnvironmentProblem."""

    def monitor(self) -> Monitor:
        """What reads clocks, power and temperature of this device."""

    def overwrite(self, buffer: Buffer, offset: int, source: Buffer) -> None:
        """Copy all of `source` into a buffer, to begin `offset` bytes into it."""

    def copy_out(self, array: np.ndarray, buffer: Buffer) -> None:
        """Enqueue a copy of a buffer's start to all of an array, which nobody reads until then."""

    def reset_persisting(self) -> None:
        """Make lines of the L2 that were to persist ordinary ones, which other data displaces."""

    def reached(self, event: Any) -> bool:
        """True if the device has already passed an event."""

    def elapsed_us(self, start: Any, end: Any) -> float:
        """Microseconds between two events that have both been reached."""

    def host_us(self) -> float:
        """Microseconds on the host's clock."""

    def finish(self) -> None:
        """Wait for all work of the context, whichever stream it may have gone to."""

    def require_bindings(self) -> None:
        """Raise EnvironmentProblem if gates and graphs cannot be had here."""

    def gate(self) -> Gate:
        """A gate in the stream. Raises EnvironmentProblem."""

    def graph(self, run: Launch) -> Graph:
        """What `run` enqueues, captured. Raises EnvironmentProblem."""


def build_all(backend: Backend, sources: Sequence[Source]) -> dict[str, Program]:
    """Compile and load sources, all of them; the programs by entry point. Raises BuildError and
    EnvironmentProblem."""
    programs: dict[str, Program] = {}
    for program in backend.build(sources):
        if isinstance(program, BuildError):
            raise program
        assert program is not None  # without a deadline all are built
        programs[program.entry] = program
    return programs
