"""CuPy: its reductions call the CUB that it was built with, or its own kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

from cudareduce.launch.plan import Problem
from cudareduce.libraries.contract import TYPED, AbsentError, CallRequest, Library, PreparedCall
from cudareduce.libraries.interop import ForeignStream


def _load() -> str:
    import cupy

    if not hasattr(cupy.cuda.Stream, "from_external") and not hasattr(cupy.cuda, "ExternalStream"):
        raise AbsentError(
            f"CuPy {cupy.__version__} is too old: it does not support external streams"
        )
    return str(cupy.__version__)


@cache
def _stream(handle: int) -> Any:
    """CuPy's stream object, cached since CuPy holds no reference to the one in use."""
    import cupy

    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(ForeignStream(handle))
    return cupy.cuda.ExternalStream(handle)


def _method(request: CallRequest) -> Callable[[], Any]:
    """The method of an array at the input's address. Makes our stream the current one. `out` is not
    used, since CuPy would add a copy."""
    import cupy

    _stream(request.stream).use()
    memory = cupy.cuda.UnownedMemory(
        request.address, request.problem.input_bytes, request, device_id=0
    )  # fmt: skip
    pointer = cupy.cuda.MemoryPointer(memory, 0)
    data = cupy.ndarray(request.shape, request.reduction.dtype.storage, pointer)
    name = request.reduction.op.name
    method = partial(getattr(data, name), axis=None if request.problem.rows == 1 else 1)
    return partial(method, dtype=request.reduction.acc.storage) if name in TYPED else method


def _prepare(request: CallRequest) -> PreparedCall:
    import cupy

    return PreparedCall.keeping(_method(request), cupy.asnumpy)


def _prepare_as_called(request: CallRequest) -> PreparedCall:
    method = _method(request)
    return PreparedCall.keeping(lambda: method().get())


def _called(problem: Problem) -> str:
    name = problem.reduction.op.name
    words = [] if problem.rows == 1 else ["axis=1"]
    if name in TYPED:
        words.append(f"dtype={problem.reduction.acc.name}")
    return f"x.{name}({', '.join(words)})"


_CUPY = Library(
    name="cupy", package="cupy-cuda13x", install="pip install cupy-cuda13x", context="primary",
    ops=("sum", "prod", "min", "max", "mean", "argmin", "argmax"),
    dtypes=("float32", "float64", "float16", "int8", "uint8", "int32", "uint32", "int64",
            "uint64"),
    load=_load, called=_called, prepare=_prepare,
)  # fmt: skip
LIBRARIES = (
    _CUPY,
    replace(
        _CUPY, name="cupy:as_called", as_called=True, prepare=_prepare_as_called,
        called=lambda problem: f"{_called(problem)}.get()",
    ),
)  # fmt: skip
