"""The GPU backend on PyCUDA: memory, and prepared asynchronous launches in one stream.

It uses the device's primary context, like libraries that use the CUDA runtime API.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from cudareduce.backends.cuda import driver
from cudareduce.backends.cuda.driver import explained
from cudareduce.backends.cuda.modules import CudaProgram, Modules
from cudareduce.backends.cuda.nvml import NvmlMonitor
from cudareduce.backends.cuda.streams import CapturedGraph, StreamGate
from cudareduce.backends.protocol import (
    Argument,
    BackendName,
    Buffer,
    Gate,
    Graph,
    KernelCall,
    Launch,
    Monitor,
    Program,
    Source,
    TimedBackend,
    Traits,
)
from cudareduce.budget import Deadline
from cudareduce.errors import BuildError, EnvironmentProblem, KernelFault, OutOfMemory
from cudareduce.machine import DeviceInfo, DeviceLimits, host_name, theoretical_gb_s
from cudareduce.reduction.sizes import counted

#: Size in bytes of the guard bands around a buffer: one tile of 1024 threads, which catches a bound
#: that is off by one tile. A multiple of 256, which is the alignment of allocations.
BAND = 4096
SET_BITS = 0xFF


class GuardedBuffer:
    """Device memory between guard bands. `address` is `misalign` bytes past an aligned address."""

    def __init__(self, allocation: Any, nbytes: int, misalign: int = 0, band: int = BAND) -> None:
        self.allocation, self.nbytes, self._band = allocation, nbytes, band
        self.address = int(allocation) + band + misalign

    @property
    def bands(self) -> tuple[tuple[str, int, int], ...]:
        """The position, address and size in bytes of each guard band."""
        start, end = int(self.allocation), self.address + self.nbytes
        if not self._band:
            return ()
        return (("before", start, self.address - start), ("behind", end, self._band))


def guarded(
    driver: Any, stream: Any, nbytes: int, misalign: int = 0, band: int = BAND
) -> GuardedBuffer:
    """Allocate `nbytes` bytes between guard bands of `band` bytes. Raises PyCUDA's MemoryError."""
    whole = max(1, nbytes + misalign + 2 * band)
    buffer = GuardedBuffer(driver.mem_alloc(whole), nbytes, misalign, band)
    for _, address, size in buffer.bands:
        driver.memset_d8_async(address, SET_BITS, size, stream)
    return buffer


def damage(driver: Any, stream: Any, buffer: GuardedBuffer) -> str | None:
    """Describe writes into the guard bands of a buffer, and restore the bands. None if there are no
    such writes."""
    found = None
    for where, address, size in buffer.bands:
        held = np.empty(size, np.uint8)
        driver.memcpy_dtoh(held, address)
        changed = np.flatnonzero(held != SET_BITS)
        if len(changed):
            driver.memset_d8_async(address, SET_BITS, size, stream)
            nearest = len(held) - changed[-1] if where == "before" else changed[0] + 1
            found = found or (
                f"{counted(len(changed), 'byte')} {where} a buffer of {buffer.nbytes}, the nearest "
                f"{counted(int(nearest), 'byte')} {where} it"
            )
    return found


#: CU_MEMHOSTREGISTER_PORTABLE (in every context) | CU_MEMHOSTREGISTER_DEVICEMAP (kernels can read).
_REGISTER_FLAGS = 1 | 2


class PinnedMemory:
    """Host memory of an array, pinned until `free`; int() gives its device address. Raises
    OutOfMemory."""

    def __init__(self, library: Any, array: np.ndarray) -> None:
        self._library, self._array = library, array
        place, self._address = ctypes.c_void_p(array.ctypes.data), ctypes.c_uint64()
        code = library.cuMemHostRegister_v2(place, ctypes.c_size_t(array.nbytes), _REGISTER_FLAGS)
        code = code or library.cuMemHostGetDevicePointer_v2(ctypes.byref(self._address), place, 0)
        if code:
            raise OutOfMemory(
                f"the driver keeps no {array.nbytes / 2**30:.2f} GiB of the host's memory in place "
                f"({explained(library, code)}): give a smaller --n, or see ulimit -l"
            )

    def __int__(self) -> int:
        return self._address.value

    def free(self) -> None:
        """Unpin the array."""
        self._library.cuMemHostUnregister(ctypes.c_void_p(self._array.ctypes.data))


class CudaBackend:
    """One GPU, as a context manager that releases the primary context on exit. A `bare` backend has
    no guard bands and does not poison memory, for tools such as compute-sanitizer. Raises
    EnvironmentProblem without driver, PyCUDA or this GPU."""

    name: BackendName = "cuda"
    traits = Traits(isolated=False, large=True, host_copies=1)

    def __init__(self, index: int = 0, *, cache: Path | None = None, bare: bool = False) -> None:
        self._bare = bare
        self._driver = driver.load()
        count = self._driver.Device.count()
        if index >= count:
            raise EnvironmentProblem(f"there is no GPU {index}: the driver sees {count}")
        self._device = self._driver.Device(index)
        self._context = self._device.retain_primary_context()
        self._context.push()
        self._modules = Modules(self._driver, self._device, cache=cache)
        self.stream = self._driver.Stream()
        self._buffers: set[GuardedBuffer] = set()

    def timed(self) -> TimedBackend:
        return self

    def sparse(self) -> None:
        """None: a GPU cannot run on memory that is not allocated."""

    @property
    def stream_handle(self) -> int:
        return int(self.stream.handle)

    @staticmethod
    def schedules(repeats: int, *, quick: bool) -> Iterator[str]:
        """`repeats` launches with the GPU's own schedule, which varies between launches."""
        yield from [""] * repeats

    def __enter__(self) -> CudaBackend:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:  # fmt: skip
        self.free(*self._buffers)
        # Detach while the context is current. Otherwise PyCUDA's garbage collection makes it
        # current later, during the work of another context, and leaves it current.
        self._context.detach()
        self._modules.close()

    @contextmanager
    def another(self) -> Iterator[CudaBackend]:
        """Context manager for the same GPU in a new CUDA context, which is destroyed with its
        buffers on exit. The new context loads kernels that are already compiled."""
        try:
            context = self._device.make_context()
        except self._driver.MemoryError:
            raise OutOfMemory("out of GPU memory: there is none left for a context") from None
        except self._driver.Error as error:
            raise EnvironmentProblem(
                f"the driver makes no context to measure in ({error}): see nvidia-smi -q for the "
                "compute mode of this GPU, and whether other processes hold it"
            ) from None
        try:
            other = copy(self)
            other.stream, other._buffers = self._driver.Stream(), set()
            try:
                yield other
            finally:
                other.free(*other._buffers)
        finally:
            context.pop()
            context.detach()

    def info(self) -> DeviceInfo:
        attribute, device = self._driver.device_attribute, self._device
        get = device.get_attribute
        clock, bits = get(attribute.MEMORY_CLOCK_RATE), get(attribute.GLOBAL_MEMORY_BUS_WIDTH)
        version = self._driver.get_driver_version()
        return DeviceInfo(
            name=device.name(),
            cc="{}.{}".format(*device.compute_capability()),
            sm_count=get(attribute.MULTIPROCESSOR_COUNT),
            threads_per_sm=get(attribute.MAX_THREADS_PER_MULTIPROCESSOR),
            l2_bytes=get(attribute.L2_CACHE_SIZE),
            memory_bytes=device.total_memory(),
            memory_clock_khz=clock,
            bus_bits=bits,
            peak_gb_s=theoretical_gb_s(clock, bits),
            ecc=bool(get(attribute.ECC_ENABLED)),
            cuda=f"{version // 1000}.{version % 1000 // 10}",
            nvcc=self._modules.nvcc_release,
            host=host_name(),
            **NvmlMonitor(device.pci_bus_id()).facts(),
        )

    def limits(self) -> DeviceLimits:
        attribute, get = self._driver.device_attribute, self._device.get_attribute
        return DeviceLimits(
            get(attribute.MULTIPROCESSOR_COUNT), get(attribute.MAX_THREADS_PER_MULTIPROCESSOR)
        )

    def build(
        self, sources: Sequence[Source], progress: Callable[[], None] = lambda: None,
        deadline: Deadline | None = None,
    ) -> list[Program | BuildError | None]:  # fmt: skip
        return self._modules.build(sources, progress, deadline)

    def upload(self, array: np.ndarray, misalign: int = 0) -> GuardedBuffer:
        buffer = self._allocate(array.nbytes, misalign)
        if array.nbytes:
            self._driver.memcpy_htod(buffer.address, np.ascontiguousarray(array))
        return buffer

    def allocate(self, nbytes: int) -> GuardedBuffer:
        buffer = self._allocate(nbytes, 0)
        self.poison(buffer)
        return buffer

    def _allocate(self, nbytes: int, misalign: int) -> GuardedBuffer:
        try:
            band = 0 if self._bare else BAND
            buffer = guarded(self._driver, self.stream, nbytes, misalign, band)
        except self._driver.MemoryError:
            free, _ = self._driver.mem_get_info()
            raise OutOfMemory(
                f"out of GPU memory: {nbytes / 2**30:.2f} GiB wanted, {free / 2**30:.2f} GiB free"
            ) from None
        self._buffers.add(buffer)
        return buffer

    def damage(self, buffer: Buffer) -> str | None:
        assert isinstance(buffer, GuardedBuffer)
        self.synchronize()
        return damage(self._driver, self.stream, buffer)

    def poison(self, buffer: Buffer, byte: int = SET_BITS) -> None:
        if not self._bare:
            self._set(buffer, byte)

    def write(self, buffer: Buffer, array: np.ndarray, offset: int = 0) -> None:
        self._driver.memcpy_htod(buffer.address + offset, array)

    def zero(self, buffer: Buffer) -> None:
        self._set(buffer, 0)

    def _set(self, buffer: Buffer, byte: int) -> None:
        if buffer.nbytes:
            self._driver.memset_d8_async(buffer.address, byte, buffer.nbytes, self.stream)

    def download(self, buffer: Buffer, dtype: str, count: int) -> np.ndarray:
        values = np.empty(count, dtype)
        self.synchronize()
        if count:
            self._driver.memcpy_dtoh(values, buffer.address)
        return values

    def new_stream(self) -> CudaBackend:
        """A copy with its own stream."""
        other = copy(self)
        other.stream = self._driver.Stream()
        return other

    def pin(self, array: np.ndarray) -> GuardedBuffer:
        buffer = GuardedBuffer(PinnedMemory(driver.library(), array), array.nbytes, band=0)
        self._buffers.add(buffer)
        return buffer

    def copy_in(self, buffer: Buffer, array: np.ndarray) -> None:
        self._driver.memcpy_htod_async(buffer.address, array, self.stream)

    def free(self, *buffers: Buffer) -> None:
        for buffer in buffers:
            assert isinstance(buffer, GuardedBuffer)
            self._buffers.discard(buffer)
            with suppress(self._driver.Error):  # after a fault a context cannot free memory
                buffer.allocation.free()

    def launcher(
        self, program: Program, grid: int, block: int, args: Sequence[Argument],
        dynamic_shared: int = 0,
    ) -> Launch:  # fmt: skip
        assert isinstance(program, CudaProgram)
        words = [
            arg if isinstance(arg, tuple) else (arg if isinstance(arg, int) else arg.address,)
            for arg in args
        ]
        if program.driver_module:
            data = tuple(b"".join(word.to_bytes(8, "little") for word in some) for some in words)
            call = KernelCall(0, (grid, 1, 1), (block, 1, 1), dynamic_shared, True, data)
            return self.call(program, call)
        if dynamic_shared > driver.DEFAULT_SHARED:
            attribute = self._driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
            try:
                program.function.set_attribute(attribute, dynamic_shared)
            except self._driver.Error as error:
                shared = f"{dynamic_shared} bytes of shared memory"
                raise KernelFault(f"the GPU refuses {shared}: {error}") from None
        values = [word for some in words for word in some]
        program.function.prepare("P" * len(values))  # pointers and sizes are both 64 bits wide
        launch = partial(
            program.function.prepared_async_call, (grid, 1), (block, 1, 1), self.stream, *values,
            shared_size=dynamic_shared,
        )  # fmt: skip

        def checked() -> None:
            try:
                launch()
            except self._driver.Error as error:
                shape = f"a grid of {grid} x {block} threads"
                raise KernelFault(f"the GPU refuses to launch {shape}: {error}") from None

        return checked

    def call(self, program: Program, call: KernelCall) -> Launch:
        assert isinstance(program, CudaProgram) and program.driver_module is not None
        return program.driver_module.launcher(call, self.stream_handle, self.limits().sm_count)

    def variable(self, program: Program, index: int, nbytes: int) -> tuple[GuardedBuffer, bytes]:
        assert isinstance(program, CudaProgram) and program.driver_module is not None
        name = program.variables[index].rpartition("::")[2]
        address, size = program.driver_module.variable(name)
        if size != nbytes:
            raise KernelFault(f"{program.entry}: a variable has {size} bytes, not {nbytes}")
        buffer, known = GuardedBuffer(address, nbytes, band=0), program.driver_module.initial
        if index not in known:
            known[index] = self.download(buffer, "uint8", nbytes).tobytes()
        return buffer, known[index]

    def copier(
        self, target: Buffer, target_offset: int, source: Buffer, source_offset: int, nbytes: int
    ) -> Launch:
        copy = self._driver.memcpy_dtod_async
        ends = target.address + target_offset, source.address + source_offset
        return partial(copy, *ends, nbytes, self.stream)

    @staticmethod
    def printed() -> list[str]:
        """Empty: on a GPU, the driver prints the output of kernels to standard output."""
        return []

    def filler(self, buffer: Buffer, pattern: bytes, offset: int = 0) -> Launch:
        assert isinstance(buffer, GuardedBuffer)
        address = buffer.address + offset
        words = np.frombuffer(pattern, np.uint8 if len(pattern) % 4 else np.uint32)
        if words.itemsize == 4 and (words == words[:1]).all():
            memset = self._driver.memset_d32_async
            return partial(memset, address, int(words[0]), len(words), self.stream)
        kept = self.upload(words)
        copy = self._driver.memcpy_dtod_async
        return partial(copy, address, kept.address, len(pattern), self.stream)

    def synchronize(self) -> None:
        self.wait(self.stream)

    def wait(self, mark: Any) -> None:
        try:
            mark.synchronize()
        except self._driver.Error as error:
            raise KernelFault(
                f"the GPU reports: {error}; run it under compute-sanitizer to see where"
            ) from None

    def follow(self, mark: Any) -> None:
        self.stream.wait_for_event(mark)

    def finish(self) -> None:
        self._driver.Context.synchronize()

    def overwrite(self, buffer: Buffer, offset: int, source: Buffer) -> None:
        place = buffer.address + offset
        self._driver.memcpy_dtod_async(place, source.address, source.nbytes, self.stream)

    @staticmethod
    def reset_persisting() -> None:
        # Returns an error, which is ignored, below compute capability 8.0 (no persisting lines).
        driver.library().cuCtxResetPersistingL2Cache()

    def monitor(self) -> Monitor:
        return NvmlMonitor(self._device.pci_bus_id())

    def gate(self) -> Gate:
        flags = self._driver.host_alloc_flags.DEVICEMAP
        word = self._driver.pagelocked_zeros(1, np.uint32, mem_flags=flags)
        address = int(word.base.get_device_pointer())
        return StreamGate(driver.library(), self.stream_handle, word, address)

    def graph(self, run: Launch) -> Graph:
        return CapturedGraph(driver.library(), self.stream_handle, run)

    @staticmethod
    def host_us() -> float:
        return time.perf_counter_ns() / 1e3

    def mark(self) -> Any:
        return self._driver.Event().record(self.stream)

    def reached(self, event: Any) -> bool:
        return bool(event.query())

    def elapsed_us(self, start: Any, end: Any) -> float:
        return float(end.time_since(start)) * 1e3
