"""PyCUDA: gpuarray.sum, and the ReductionKernel that implements it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from cudareduce.backends.cuda import driver
from cudareduce.launch.plan import Problem
from cudareduce.libraries.contract import CallRequest, Library, PreparedCall


def _load() -> str:
    driver.submodule("reduction")
    return driver.release()


@cache
def _kernel(op: str, acc: str, dtype: str) -> Any:
    reduction = driver.submodule("reduction")
    if op == "sum":
        return reduction.get_sum_kernel(np.dtype(acc), np.dtype(dtype))
    return reduction.get_minmax_kernel(op, np.dtype(dtype))


def _gpu_array(shape: tuple[int, ...], dtype: str, address: int) -> Any:
    return driver.submodule("gpuarray").GPUArray(shape, np.dtype(dtype), gpudata=address)


def _prepare(request: CallRequest) -> PreparedCall:
    reduction = request.reduction
    kernel = _kernel(reduction.op.name, reduction.acc.storage, reduction.dtype.storage)
    data = _gpu_array(request.shape, reduction.dtype.storage, request.address)
    out = _gpu_array((), reduction.acc.storage, request.out)
    pool = driver.submodule("tools").DeviceMemoryPool()
    return PreparedCall(
        partial(kernel, data, stream=request.native, out=out, allocator=pool.allocate)
    )


def _prepare_as_called(request: CallRequest) -> PreparedCall:
    reduction = request.reduction
    data = _gpu_array(request.shape, reduction.dtype.storage, request.address)
    function = getattr(driver.submodule("gpuarray"), reduction.op.name)
    if reduction.op.name == "sum":
        function = partial(function, dtype=np.dtype(reduction.acc.storage))
    return PreparedCall.keeping(lambda: function(data, stream=request.native).get())


def _called(problem: Problem) -> str:
    op = problem.reduction.op.name
    return "get_sum_kernel(...)(x, out=)" if op == "sum" else f"get_minmax_kernel({op!r})(x, out=)"


def _refuses(problem: Problem) -> str | None:
    reduction = problem.reduction
    if reduction.op.name != "sum" and reduction.dtype != reduction.acc:
        return f"computes {reduction.op.name} in the elements' own type"
    return None


_PYCUDA = Library(
    name="pycuda", package="pycuda", install="pip install pycuda", context="any",
    ops=("sum", "min", "max"), takes_rows=False, refuses=_refuses,
    dtypes=("float32", "float64", "int8", "uint8", "int32", "uint32", "int64", "uint64"),
    load=_load, called=_called, prepare=_prepare,
)  # fmt: skip
LIBRARIES = (
    _PYCUDA,
    replace(
        _PYCUDA, name="pycuda:as_called", as_called=True, prepare=_prepare_as_called,
        called=lambda problem: f"gpuarray.{problem.reduction.op.name}(x).get()",
    ),
)  # fmt: skip
