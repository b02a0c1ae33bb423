"""Device memory and streams under the protocols of Python libraries; launches of their cubins."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from cudareduce.backends.cuda.driver import library
from cudareduce.backends.cuda.driver_module import DriverModule
from cudareduce.backends.protocol import KernelCall, Launch
from cudareduce.libraries.contract import CallRequest
from cudareduce.reduction.inputs import Array
from cudareduce.reduction.operators import Reduction
from cudareduce.reduction.reference import identity


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """Device memory with the CUDA array interface. `stream` is None, since some libraries would
    synchronize with it."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "data": (self.address, False), "shape": self.shape, "typestr": self.dtype.str,
            "strides": None, "stream": None, "version": 3,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class ForeignStream:
    """A CUDA stream with the `__cuda_stream__` protocol."""

    handle: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def input_array(request: CallRequest) -> DeviceArray:
    """The input. The interface does not support bfloat16, which is passed as int16."""
    storage = request.reduction.dtype.storage
    dtype = np.dtype("int16" if request.reduction.dtype.name == "bfloat16" else storage)
    return DeviceArray(request.address, request.shape, dtype)


def result_array(request: CallRequest) -> DeviceArray:
    return DeviceArray(request.out, request.out_shape, np.dtype(request.reduction.result_dtype))


def identity_array(reduction: Reduction) -> Array:
    """The operator's identity, one element of the accumulator's type."""
    return np.frombuffer(identity(reduction), reduction.acc.storage).copy()


def in_order(*launches: Launch) -> Launch:
    def run() -> None:
        for launch in launches:
            launch()

    return run


@dataclass(frozen=True, slots=True)
class Cubin:
    """One kernel: machine code, entry name, threads per block and bytes of shared memory."""

    code: bytes
    entry: str
    threads: int
    shared: int


@cache
def _module(cubin: Cubin) -> DriverModule:
    """The module, loaded into the current context and never unloaded."""
    return DriverModule(library(), cubin.code, [cubin.entry])


def launcher(cubin: Cubin, grid: int, arguments: list[int], stream: int) -> Launch:
    """Prepare a launch of the kernel. Every argument is a 64-bit word."""
    call = KernelCall(
        kernel=0, grid=(grid, 1, 1), block=(cubin.threads, 1, 1), shared=cubin.shared,
        cooperative=False, arguments=tuple(arguments),
    )  # fmt: skip
    return _module(cubin).launcher(call, stream, 0)
