"""What runs kernels: the protocol that the GPU and the CPU emulator share.

A backend compiles translation units, owns buffers, and turns a launch into a call without arguments
that only has to be made. It knows nothing of reductions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from cudareduce.errors import CudareduceError, UsageError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What a launch shape depends on."""

    sm_count: int
    threads_per_sm: int


#: An H200, which a plan is made for where there is no GPU.
DEFAULT_LIMITS = DeviceLimits(sm_count=132, threads_per_sm=2048)

Launch = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Source:
    """A complete translation unit: `text` with its prelude, `entry` the kernel's symbol in it."""

    text: str
    entry: str
    path: Path


class BuildError(UsageError):
    """A kernel does not compile; the message holds the compiler's own lines."""


class KernelFault(CudareduceError):
    """A launch went wrong: invalid access, deadlock, a hazard, a launch the device refuses."""

    exit_code = 3


class OutOfMemory(CudareduceError):
    """The device has not enough memory; the combination is skipped."""

    exit_code = 6


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What a result must say of the machine it was made on; None is unknown.

    `peak_gb_s` is theory: twice the memory clock (two transfers a cycle, as the driver reports it)
    times the bus width.
    """

    name: str
    cc: str | None = None
    sm_count: int | None = None
    threads_per_sm: int | None = None
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    memory_clock_khz: int | None = None
    bus_bits: int | None = None
    peak_gb_s: float | None = None
    uuid: str | None = None
    ecc: bool | None = None
    mig: bool | None = None
    power_limit_w: float | None = None
    driver: str | None = None
    cuda: str | None = None
    nvcc: str | None = None


def theoretical_gb_s(memory_clock_khz: int, bus_bits: int) -> float | None:
    """Peak bandwidth from what the driver reports; None where it reports 0, as on some boards."""
    return 2 * memory_clock_khz * bus_bits / 8 / 1e6 or None


class Buffer(Protocol):
    """Memory of a backend."""

    @property
    def nbytes(self) -> int: ...


class Program(Protocol):
    """A compiled translation unit, loaded."""

    @property
    def entry(self) -> str: ...

    @property
    def binary_sha(self) -> str | None:
        """SHA-256 of the machine code, None where there is none for a GPU."""

    def set_constant(self, name: str, value: int) -> None:
        """Set a 64-bit `__constant__` of the program."""


class Backend(Protocol):
    """Compiles and runs kernels on one device."""

    schedule: str  # the order in which the emulator runs threads; the GPU has its own

    @property
    def name(self) -> str: ...

    def info(self) -> DeviceInfo:
        """What a result says of the machine."""

    def limits(self) -> DeviceLimits:
        """What launch shapes depend on."""

    def build(
        self, sources: Sequence[Source], progress: Callable[[], None] = ...
    ) -> list[Program | BuildError]:
        """Compile in parallel and load; results in the order given, one `progress` call each."""

    def upload(self, array: np.ndarray, misalign: int = 0) -> Buffer:
        """Copy an array to the device, its start `misalign` bytes off a 256-byte boundary."""

    def allocate(self, nbytes: int) -> Buffer:
        """Fresh memory, every bit set: NaN as a float, -1 as an integer."""

    def poison(self, buffer: Buffer) -> None:
        """Set every bit of a buffer again."""

    def zero(self, buffer: Buffer) -> None:
        """Clear every bit of a buffer."""

    def damage(self, buffer: Buffer) -> str | None:
        """What has been written outside a buffer; None if nothing was. For a backend that does not
        fault at once."""

    def download(self, buffer: Buffer, dtype: str, count: int) -> np.ndarray:
        """Copy `count` elements back, after all work in flight."""

    def free(self, *buffers: Buffer) -> None:
        """Give memory back."""

    def launcher(
        self,
        program: Program,
        grid: int,
        block: int,
        args: Sequence[Buffer | int],
        dynamic_shared: int = 0,
    ) -> Launch:
        """A ready launch; integers are passed as 64-bit sizes. May raise KernelFault when run."""

    def filler(self, buffer: Buffer, pattern: bytes) -> Launch:
        """A ready asynchronous write of a few bytes to the start of a buffer."""

    def synchronize(self) -> None:
        """Wait for all work in flight; raises KernelFault if any of it failed."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Give everything back."""
