"""PyCUDA's own reductions: gpuarray.sum, and the ReductionKernel behind it."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np

from cudareduce.gpu import driver
from cudareduce.launch.plan import Problem
from cudareduce.peers.contract import Given, Peer, Ready, takes

_OPS = ("sum", "min", "max")
_DTYPES = ("float32", "float64", "int8", "uint8", "int32", "uint32", "int64", "uint64")


def load() -> str:
    """Import its reductions."""
    driver.submodule("reduction")
    return driver.release()


@cache
def _kernel(op: str, acc: str, dtype: str) -> Any:
    reduction = driver.submodule("reduction")
    if op == "sum":
        return reduction.get_sum_kernel(np.dtype(acc), np.dtype(dtype))
    return reduction.get_minmax_kernel(op, np.dtype(dtype))


def _array(given: Given, address: int, size: int, dtype: str) -> Any:
    array = driver.submodule("gpuarray").GPUArray
    return array((size,), np.dtype(dtype), gpudata=address)


def _prepare(given: Given) -> Ready:
    reduction, n = given.reduction, given.problem.n
    kernel = _kernel(reduction.op.name, reduction.acc.storage, reduction.dtype.storage)
    data = _array(given, given.address, n, reduction.dtype.storage)
    out = driver.submodule("gpuarray").GPUArray(
        (), np.dtype(reduction.acc.storage), gpudata=given.out
    )
    pool = driver.submodule("tools").DeviceMemoryPool()
    call = partial(kernel, data, stream=given.native, out=out, allocator=pool.allocate)

    def run() -> None:
        call()

    return Ready(run)


def _prepare_as_called(given: Given) -> Ready:
    array = driver.submodule("gpuarray")
    reduction = given.reduction
    data = _array(given, given.address, given.problem.n, reduction.dtype.storage)
    function = getattr(array, reduction.op.name)
    if reduction.op.name == "sum":
        function = partial(function, dtype=np.dtype(reduction.acc.storage))
    held: list[Any] = []

    def run() -> None:
        held[:] = [function(data, stream=given.native).get()]

    return Ready(run, lambda: held[0])


def _called(ending: str, problem: Problem) -> str:
    op = problem.reduction.op.name
    if ending:
        return f"gpuarray.{op}(x){ending}"
    return "get_sum_kernel(...)(x, out=)" if op == "sum" else f"get_minmax_kernel({op!r})(x, out=)"


def _why_not(problem: Problem) -> str | None:
    reason = takes(problem, _OPS, _DTYPES, rows=False)
    reduction = problem.reduction
    if reason is None and reduction.op.name != "sum" and reduction.dtype != reduction.acc:
        return f"answers {reduction.op.name} in the elements' own type"
    return reason


def _peer(name: str, ending: str, prepare: Any, **fields: Any) -> Peer:
    return Peer(
        name=name, package="pycuda", install="pip install pycuda", context="any", load=load,
        why_not=_why_not, called=partial(_called, ending), prepare=prepare, **fields,
    )  # fmt: skip


PEERS = (
    _peer("pycuda", "", _prepare),
    _peer("pycuda:as_called", ".get()", _prepare_as_called, as_called=True),
)
