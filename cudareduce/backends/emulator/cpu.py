"""The CPU emulator as a backend: kernels compiled by g++ and run thread by thread.

The emulator checks results and synchronisation; its times mean nothing. The C++ runtime in this
folder runs every CUDA thread as a fiber.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING, cast

import numpy as np

from cudareduce.backends.emulator.compiler import OutOfTime
from cudareduce.backends.emulator.program import (
    Access,
    Call,
    CpuProgram,
    load_runtime,
    program_in,
    take_accesses,
    take_traffic,
)
from cudareduce.backends.emulator.toolchain import Toolchain
from cudareduce.backends.emulator.translation import archs
from cudareduce.backends.protocol import BackendName, Source, Traits
from cudareduce.budget import Deadline
from cudareduce.errors import BuildError, EnvironmentProblem, KernelFault, OutOfMemory
from cudareduce.machine import (
    DEFAULT_LIMITS,
    DeviceInfo,
    DeviceLimits,
    cpu_count,
    cpu_model,
    host_name,
)
from cudareduce.temporary import temporary_folder

if TYPE_CHECKING:
    from types import TracebackType

    from cudareduce.backends.protocol import Argument, Buffer, KernelCall, Launch, Program

#: Limit of OS threads per launch: more do not make launches of emulated sizes faster.
MAX_OS_THREADS = 16

ORDERS = {"ascending": 0, "random": 1, "warp": 2}
#: Thread schedules: an order, with a random seed if it has one. No single schedule exposes every
#: missing barrier.
SCHEDULES = ("ascending", "random:1", "warp:1")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class CpuBuffer:
    """Memory between guard pages, freed when the last reference to this object is dropped."""

    address: int
    nbytes: int


class CpuBackend:
    """Runs kernels on the CPU, one launch at a time; not thread-safe. Raises EnvironmentProblem
    without g++."""

    name: BackendName = "cpu"
    traits = Traits(
        isolated=True, large=False, host_copies=2,
        lacks=("tma", "cluster", "inline_ptx"),
    )  # fmt: skip

    def __init__(
        self, *, cache: Path | None, hazards: bool = False, threads: int | None = None,
        counts: bool = False,
    ) -> None:  # fmt: skip
        self._schedule, self._hazards, self._counts = SCHEDULES[0], hazards, counts
        self._temporary = temporary_folder() if cache is None else None
        folder = Path(self._temporary.name) if self._temporary else cast(Path, cache)
        self._toolchain = Toolchain(folder, hazards, counts)
        self._os_threads = threads or min(cpu_count(), MAX_OS_THREADS)
        self._finalizers: dict[int, weakref.finalize[..., CpuBuffer]] = {}

    @cached_property
    def _runtime(self) -> ctypes.CDLL:
        path = self._toolchain.runtime()
        try:
            return load_runtime(path)
        except OSError as error:
            raise EnvironmentProblem(
                f"the emulator that g++ compiled does not load ({error}): check that g++ works"
            ) from None

    def catch_faults(self) -> None:
        """From now on, an invalid memory access of a kernel prints a line to stderr and ends the
        process with status 139; call this in child processes only. `resolve_locations` replaces
        the code address at the start of that line by file and line."""
        self._runtime.cudaemu_catch_faults()

    def build(
        self, sources: Sequence[Source], progress: Callable[[], None] = lambda: None,
        deadline: Deadline | None = None,
    ) -> list[Program | BuildError | None]:  # fmt: skip
        """Compile the sources in parallel, and call `progress` after each. The result is None for
        sources that were not compiled by the deadline. Kernels are loaded at their first launch,
        not here. Raises EnvironmentProblem if g++ is broken."""
        deadline = deadline or Deadline()

        def compile_one(source: Source) -> list[Path] | BuildError | None:
            try:
                if deadline.passed:
                    return None
                return [self._toolchain.kernel(source, deadline, arch) for arch in archs(source)]
            except BuildError as error:
                return error
            except OutOfTime:
                return None

        results: list[Program | BuildError | None] = []
        with suppress(OutOfTime):  # each kernel below raises it again
            self._toolchain.runtime(deadline)  # kernels link to it, so compile it first
        with ThreadPoolExecutor(cpu_count()) as pool:
            compiling = [pool.submit(compile_one, source) for source in sources]
            try:
                for source, future in zip(sources, compiling, strict=True):
                    built = future.result()
                    if isinstance(built, list):
                        results.append(program_in(built, source, self._runtime))
                    else:
                        results.append(built)
                    progress()
            except BaseException:
                running = [future for future in compiling if not future.cancel()]
                # Repeated, since a worker may start g++ after `stop`.
                while wait(running, timeout=0.1).not_done:
                    self._toolchain.stop()
                raise
        return results

    def printed(self) -> list[str]:
        """The output of printf in kernels since the last call, as lines with the kernel's name: at
        most 20 lines per kernel, then the number of lines left out."""
        return cast(bytes, self._runtime.cudaemu_printed()).decode(errors="replace").splitlines()

    def notes(self) -> list[str]:
        """Possible causes of a wrong result since the last call, such as a shuffle that reads an
        undefined value."""
        text = cast(bytes, self._runtime.cudaemu_take_notes()).decode(errors="replace")
        return text.splitlines()

    def _allocate(self, nbytes: int, misalign: int, cell_bytes: int) -> CpuBuffer:
        watched_bytes = cell_bytes if self._hazards else 0
        return self._buffer(self._runtime.cudaemu_allocate(nbytes, misalign, watched_bytes), nbytes)

    def _buffer(self, address: int | None, nbytes: int) -> CpuBuffer:
        if address is None:
            raise OutOfMemory(f"no memory for a buffer of {nbytes} bytes")
        buffer = CpuBuffer(address, nbytes)
        self._finalizers[address] = weakref.finalize(buffer, self._runtime.cudaemu_release, address)
        return buffer

    def reserve(self, nbytes: int) -> CpuBuffer:
        return self._buffer(self._runtime.cudaemu_reserve(nbytes), nbytes)

    def upload(self, array: np.ndarray, misalign: int = 0) -> CpuBuffer:
        """Copy an array to a buffer that starts `misalign` bytes past a multiple of 16 and ends at
        a guard page. Raises OutOfMemory.

        GPU buffers are aligned to 256 bytes. An alignment of 16 leaves fewer unguarded bytes
        between the end of the buffer and the guard page.
        """
        array = np.ascontiguousarray(array)
        buffer = self._allocate(array.nbytes, misalign, array.dtype.itemsize)
        ctypes.memmove(buffer.address, array.ctypes.data, array.nbytes)
        return buffer

    def allocate(self, nbytes: int) -> CpuBuffer:
        # The element size is unknown, and neighbouring elements must not share a shadow cell.
        cell_bytes = 1 if nbytes <= 4 << 20 else 4
        buffer = self._allocate(nbytes, 0, cell_bytes)
        self.poison(buffer)
        return buffer

    def poison(self, buffer: Buffer, byte: int = 0xFF) -> None:
        ctypes.memset(cast(CpuBuffer, buffer).address, byte, buffer.nbytes)

    def write(self, buffer: Buffer, array: np.ndarray, offset: int = 0) -> None:
        ctypes.memmove(cast(CpuBuffer, buffer).address + offset, array.ctypes.data, array.nbytes)

    def zero(self, buffer: Buffer) -> None:
        ctypes.memset(cast(CpuBuffer, buffer).address, 0, buffer.nbytes)

    def damage(self, buffer: Buffer) -> None:
        """None: a write past a buffer hits a guard page and faults at once."""

    def download(self, buffer: Buffer, dtype: str, count: int) -> np.ndarray:
        nbytes = count * np.dtype(dtype).itemsize
        return np.frombuffer(ctypes.string_at(cast(CpuBuffer, buffer).address, nbytes), dtype)

    def new_stream(self) -> CpuBackend:
        return self

    def pin(self, array: np.ndarray) -> CpuBuffer:
        """A buffer that refers to the memory of the array, without a copy."""
        buffer = CpuBuffer(array.ctypes.data, array.nbytes)
        self._finalizers[buffer.address] = weakref.finalize(buffer, array.view)
        return buffer

    def copy_in(self, buffer: Buffer, array: np.ndarray) -> None:
        self.write(buffer, array)

    def mark(self) -> None:
        """Does nothing: launches and copies are synchronous."""

    follow = wait = staticmethod(lambda mark: None)

    def free(self, *buffers: Buffer) -> None:
        for buffer in buffers:
            self._finalizers.pop(cast(CpuBuffer, buffer).address)()

    def launcher(
        self, program: Program, grid: int, block: int, args: Sequence[Argument],
        dynamic_shared: int = 0,
    ) -> Launch:  # fmt: skip
        """A function that launches the kernel. Integers are passed as 64-bit sizes, tuples as
        structures of them. The launch raises KernelFault, and so does this call if the kernel takes
        a different number of arguments."""
        call = self._call(program, grid, block, args, dynamic_shared)
        return self._launch(call, sum(arg for arg in args if isinstance(arg, int)))

    def call(self, program: Program, call: KernelCall) -> Launch:
        kernel = cast(CpuProgram, program).kernels[call.kernel]
        prepared = Call(kernel, call.grid, call.block, call.arguments, call.shared)
        return self._launch(self._configure(prepared), 0)

    def variable(self, program: Program, index: int, nbytes: int) -> tuple[CpuBuffer, bytes]:
        address, initial = cast(CpuProgram, program).variable(index)
        if len(initial) != nbytes:
            size = len(initial)
            raise KernelFault(f"{program.entry}: a variable has {size} bytes, not {nbytes}")
        return CpuBuffer(address, nbytes), initial

    def _launch(self, call: Call, sizes: int) -> Launch:
        def launch() -> None:
            order, _, seed = self._schedule.partition(":")
            call.request.order, call.request.seed = ORDERS[order], int(seed or 0)
            # The compiled variants of a kernel alternate with the schedule. Race detection uses
            # one schedule for most sizes, so there they alternate with the size.
            call.run(self._runtime, sizes if self._hazards else ORDERS[order])

        return launch

    def run_alone(
        self, number: int, most_s: float, program: Program, grid: int, block: int,
        args: Sequence[Argument], dynamic_shared: int = 0,
    ) -> float | None:  # fmt: skip
        """Run only block `number` of the grid. The result is its CPU time in seconds, None if it
        was stopped after `most_s`. Raises KernelFault."""
        call = self._call(program, grid, block, args, dynamic_shared)
        call.request.alone, call.request.only = 1, number
        call.request.most_ns = int(most_s * 1e9)
        began = thread_time()
        call.run(self._runtime, 0)
        return None if call.request.cut else thread_time() - began

    def _call(
        self, program: Program, grid: int, block: int, args: Sequence[Argument], shared: int
    ) -> Call:
        call = Call(cast(CpuProgram, program), (grid, 1, 1), (block, 1, 1), args, shared)
        return self._configure(call)

    def _configure(self, call: Call) -> Call:
        call.request.watched, call.request.counted = self._hazards, self._counts
        call.request.os_threads = self._os_threads
        return call

    def schedules(self, repeats: int, *, quick: bool) -> Iterator[str]:
        """Select each thread schedule in turn and yield its name; with `quick` only the first. Race
        detection uses the first and a random one, in which blocks see each other's intermediate
        values."""
        for schedule in SCHEDULES[: 1 if quick else 2 if self._hazards else None]:
            self._schedule = schedule
            yield f"schedule {schedule}"

    def traffic(self) -> dict[str, int]:
        return take_traffic(self._runtime)

    def accesses(self) -> list[Access]:
        """The memory accesses of block 0 since the last call; only a backend with `counts` records
        them."""
        return take_accesses(self._runtime)

    def timed(self) -> None:
        """None: the emulator supports no timing."""

    def sparse(self) -> CpuBackend:
        """This backend: it can reserve address space that is mostly untouched (`reserve`)."""
        return self

    def copier(
        self, target: Buffer, target_offset: int, source: Buffer, source_offset: int, nbytes: int
    ) -> Launch:
        def copy() -> None:
            start = source.address + source_offset
            ctypes.memmove(target.address + target_offset, start, nbytes)

        return copy

    def filler(self, buffer: Buffer, pattern: bytes, offset: int = 0) -> Launch:
        address = cast(CpuBuffer, buffer).address + offset

        def fill() -> None:
            _ = buffer
            ctypes.memmove(address, pattern, len(pattern))

        return fill

    def info(self) -> DeviceInfo:
        """The CPU, host and g++ version; fields that describe a GPU stay None."""
        gxx = self._toolchain.compiler_version
        return DeviceInfo(name="CPU emulator", cpu=cpu_model(), host=host_name(), gxx=gxx)

    def limits(self) -> DeviceLimits:
        """The default limits of a GPU, so that the emulator verifies launches as on a GPU."""
        return DEFAULT_LIMITS

    def synchronize(self) -> None:
        """Does nothing: launches are synchronous."""

    def close(self) -> None:
        """Free all buffers and delete the cache if it is temporary."""
        while self._finalizers:
            self._finalizers.popitem()[1]()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> CpuBackend:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()
