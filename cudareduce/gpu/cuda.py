"""The GPU, through PyCUDA.

Uses the device's primary context, so that libraries on the runtime API share it, and prepared
asynchronous launches on one stream. `pycuda.autoinit` is never imported.
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

from cudareduce.backend import (
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
from cudareduce.gpu import bindings, driver
from cudareduce.gpu.driver import explained
from cudareduce.gpu.modules import CudaProgram, Modules
from cudareduce.gpu.nvml import NvmlMonitor, management_facts
from cudareduce.machine.device import DeviceInfo, DeviceLimits, theoretical_gb_s
from cudareduce.machine.host import host_name
from cudareduce.reduction.sizes import counted


def device_info(driver: Any, device: Any, nvcc: str | None) -> DeviceInfo:
    """What PyCUDA's driver module and, where installed, NVML say of a device; `nvcc` is the release
    of the compiler."""
    attribute, get = driver.device_attribute, device.get_attribute
    clock, bits = get(attribute.MEMORY_CLOCK_RATE), get(attribute.GLOBAL_MEMORY_BUS_WIDTH)
    version = driver.get_driver_version()
    facts = management_facts(device.pci_bus_id())
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
        uuid=facts.uuid,
        ecc=bool(get(attribute.ECC_ENABLED)),
        mig=facts.mig,
        power_limit_w=facts.power_limit_w,
        driver=facts.driver,
        cuda=f"{version // 1000}.{version % 1000 // 10}",
        nvcc=nvcc,
        host=host_name(),
    )


#: Bytes on either side: what a block of 1024 threads writes when its bound is off by one tile. A
#: multiple of 256, so that buffers stay as aligned as allocations are.
BAND = 4096
SET_BITS = 0xFF


class GuardedBuffer:
    """Device memory; `address` lies a band, and where asked for a misalignment, into its
    allocation."""

    def __init__(self, allocation: Any, nbytes: int, misalign: int = 0, band: int = BAND) -> None:
        self.allocation, self.nbytes, self._band = allocation, nbytes, band
        self.address = int(allocation) + band + misalign

    @property
    def bands(self) -> tuple[tuple[str, int, int], ...]:
        """Where each band lies, its address and its size."""
        start, end = int(self.allocation), self.address + self.nbytes
        if not self._band:
            return ()
        return (("before", start, self.address - start), ("behind", end, self._band))


def guarded(
    driver: Any, stream: Any, nbytes: int, misalign: int = 0, band: int = BAND
) -> GuardedBuffer:
    """Allocate `nbytes` bytes between bands, none if `band` is 0, and `misalign` bytes further on.
    Raises the driver's MemoryError."""
    whole = max(1, nbytes + misalign + 2 * band)
    buffer = GuardedBuffer(driver.mem_alloc(whole), nbytes, misalign, band)
    for _, address, size in buffer.bands:
        driver.memset_d8_async(address, SET_BITS, size, stream)
    return buffer


def damage(driver: Any, stream: Any, buffer: GuardedBuffer) -> str | None:
    """What was written outside a buffer, which is mended; None if nothing was."""
    found = None
    for where, address, size in buffer.bands:
        held = np.empty(size, np.uint8)
        driver.memcpy_dtoh(held, address)
        changed = np.flatnonzero(held != SET_BITS)
        if len(changed):
            driver.memset_d8_async(address, SET_BITS, size, stream)
            first = len(held) - changed[-1] if where == "before" else changed[0] + 1
            found = found or (
                f"{counted(len(changed), 'byte')} {where} a buffer of {buffer.nbytes}, the nearest "
                f"{counted(int(first), 'byte')} {where} it"
            )
    return found


#: Bytes of dynamic shared memory that a block has without asking.
_UNASKED = 48 * 1024


def launcher(
    driver: Any, function: Any, shape: tuple[int, int, int], values: Sequence[int], stream: Any
) -> Launch:
    """A launch of a function with these arguments into a stream; its shape is blocks, threads a
    block, and bytes of dynamic shared memory a block. Raises KernelFault, at once or when run."""
    grid, block, shared = shape
    if shared > _UNASKED:
        most = driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
        try:
            function.set_attribute(most, shared)
        except driver.Error as error:
            raise _refusal(f"{shared} bytes of shared memory", error) from None
    function.prepare("P" * len(values))  # pointers and sizes are both 64 bits wide
    call = function.prepared_async_call
    launch = partial(call, (grid, 1), (block, 1, 1), stream, *values, shared_size=shared)

    def checked() -> None:
        try:
            launch()
        except driver.Error as error:
            raise _refusal(f"to launch a grid of {grid} x {block} threads", error) from None

    return checked


def address_of(argument: Buffer | int) -> int:
    """A size as it is, and of memory where it begins."""
    return argument if isinstance(argument, int) else argument.address


def _refusal(what: str, error: Exception) -> KernelFault:
    return KernelFault(f"the GPU refuses {what}: {error}")


#: CU_MEMHOSTREGISTER_PORTABLE and CU_MEMHOSTREGISTER_DEVICEMAP: for every context, and for kernels.
_FOR_ALL, _FOR_KERNELS = 1, 2


class PinnedMemory:
    """An array of bytes, kept in memory where it lies; as a number, where the GPU finds it. Raises
    OutOfMemory where the driver keeps no more there."""

    def __init__(self, library: Any, array: np.ndarray) -> None:
        self._library, self._array = library, array
        place, self._address = ctypes.c_void_p(array.ctypes.data), ctypes.c_uint64()
        code = library.cuMemHostRegister_v2(
            place, ctypes.c_size_t(array.nbytes), _FOR_ALL | _FOR_KERNELS
        )
        code = code or library.cuMemHostGetDevicePointer_v2(ctypes.byref(self._address), place, 0)
        if code:
            raise OutOfMemory(
                f"the driver keeps no {array.nbytes / 2**30:.2f} GiB of the host's memory in place "
                f"({explained(library, code)}): give a smaller --n, or see ulimit -l"
            )

    def __int__(self) -> int:
        return self._address.value

    def free(self) -> None:
        """Let the memory move again."""
        self._library.cuMemHostUnregister(ctypes.c_void_p(self._array.ctypes.data))


class CudaBackend:
    """One GPU. Enter it as a context manager; the primary context is released on exit. No driver,
    no PyCUDA or no such GPU is an EnvironmentProblem. A `bare` one leaves memory as the driver
    gives it, for tools that watch it: between no guards, and not poisoned."""

    name: BackendName = "cuda"
    traits = Traits(isolated=False, watches=False, large=True, host_copies=1)

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
        """Nothing: what a GPU reads must be there."""

    @property
    def stream_handle(self) -> int:
        return int(self.stream.handle)

    @staticmethod
    def ways(repeats: int, *, quick: bool) -> Iterator[str]:
        """The GPU has an order of its own, another at each launch."""
        yield from [""] * repeats

    def __enter__(self) -> CudaBackend:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:  # fmt: skip
        self.free(*self._buffers)
        # While it is current: later, when it happens to be collected, PyCUDA would make it current
        # to release it, in the middle of whatever another context is doing then, and leave it so.
        self._context.detach()
        self._modules.close()

    @contextmanager
    def another(self) -> Iterator[CudaBackend]:
        """The same GPU in a context of its own, which ends with its buffers on leaving.

        What has been compiled is loaded there and not compiled again.
        """
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
        """What the driver and, where installed, NVML say of this GPU."""
        return device_info(self._driver, self._device, self._modules.nvcc_release)

    def limits(self) -> DeviceLimits:
        """What launch shapes depend on."""
        attribute = self._driver.device_attribute
        return DeviceLimits(
            self._device.get_attribute(attribute.MULTIPROCESSOR_COUNT),
            self._device.get_attribute(attribute.MAX_THREADS_PER_MULTIPROCESSOR),
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

    def lane(self) -> CudaBackend:
        """This one with a stream of its own."""
        other = copy(self)
        other.stream = self._driver.Stream()
        return other

    def pin(self, array: np.ndarray) -> GuardedBuffer:
        buffer = GuardedBuffer(PinnedMemory(driver.library(), array), array.nbytes, band=0)
        self._buffers.add(buffer)
        return buffer

    def copy_in(self, buffer: Buffer, array: np.ndarray) -> None:
        self._driver.memcpy_htod_async(buffer.address, array, self.stream)

    def copy_out(self, array: np.ndarray, buffer: Buffer) -> None:
        self._driver.memcpy_dtoh_async(array, buffer.address, self.stream)

    def free(self, *buffers: Buffer) -> None:
        for buffer in buffers:
            assert isinstance(buffer, GuardedBuffer)
            self._buffers.discard(buffer)
            with suppress(self._driver.Error):  # after a fault the context frees nothing any more
                buffer.allocation.free()

    def launcher(
        self, program: Program, grid: int, block: int, args: Sequence[Argument],
        dynamic_shared: int = 0,
    ) -> Launch:  # fmt: skip
        assert isinstance(program, CudaProgram)
        words = [arg if isinstance(arg, tuple) else (address_of(arg),) for arg in args]
        if program.cooperative:
            return program.cooperative.launcher(
                grid, block, words, dynamic_shared, self.stream_handle, self.limits().sm_count
            )
        shape = grid, block, dynamic_shared
        values = [word for some in words for word in some]
        return launcher(self._driver, program.function, shape, values, self.stream)

    def call(self, program: Program, call: KernelCall) -> Launch:
        assert isinstance(program, CudaProgram) and program.external is not None
        return program.external.launcher(call, self.stream_handle, self.limits().sm_count)

    def variable(self, program: Program, index: int, nbytes: int) -> tuple[GuardedBuffer, bytes]:
        assert isinstance(program, CudaProgram) and program.external is not None
        address, size = program.external.variable(index)
        if size != nbytes:
            raise KernelFault(f"{program.entry}: a variable has {size} bytes, not {nbytes}")
        buffer, known = GuardedBuffer(address, nbytes, band=0), program.external.initial
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
        """None: the driver prints them itself."""
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
        """Wait for an event, or a stream."""
        try:
            mark.synchronize()
        except self._driver.Error as error:
            raise KernelFault(
                f"the GPU reports: {error}; run it under compute-sanitizer to see where"
            ) from None

    def follow(self, mark: Any) -> None:
        self.stream.wait_for_event(mark)

    def finish(self) -> None:
        """Wait for all work of the context, whichever stream it may have gone to."""
        self._driver.Context.synchronize()

    def overwrite(self, buffer: Buffer, offset: int, source: Buffer) -> None:
        place = buffer.address + offset
        self._driver.memcpy_dtod_async(place, source.address, source.nbytes, self.stream)

    @staticmethod
    def reset_persisting() -> None:
        driver.reset_persisting_l2()

    def monitor(self) -> Monitor:
        return NvmlMonitor(self._device.pci_bus_id())

    def require_bindings(self) -> None:
        bindings.load()

    def gate(self) -> Gate:
        """A gate on a word of host memory that the GPU sees too."""
        flags = self._driver.host_alloc_flags.DEVICEMAP
        word = self._driver.pagelocked_zeros(1, np.uint32, mem_flags=flags)
        return bindings.StreamGate(self.stream_handle, word, int(word.base.get_device_pointer()))

    def graph(self, run: Launch) -> Graph:
        return bindings.CapturedGraph(self.stream_handle, run)

    @staticmethod
    def host_us() -> float:
        return time.perf_counter_ns() / 1e3

    def mark(self) -> Any:
        """Record an event behind all work enqueued so far."""
        return self._driver.Event().record(self.stream)

    def reached(self, event: Any) -> bool:
        """True if the GPU has already passed an event."""
        return bool(event.query())

    def elapsed_us(self, start: Any, end: Any) -> float:
        """Microseconds between two events that have both been reached."""
        return float(end.time_since(start)) * 1e3
