"""cuBLAS: a dot product with ones for a sum, a matrix times ones for sums of rows."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from cudareduce.launch.plan import Problem
from cudareduce.libraries.contract import (
    AbsentError,
    CallRequest,
    Library,
    PreparedCall,
    own_type_only,
)
from cudareduce.machine import packaged

_FILES = ("libcublas.so.13", "libcublas.so.12")
#: CUBLAS_POINTER_MODE_DEVICE and CUBLAS_OP_T of cublas_api.h.
_POINTERS_ON_DEVICE, _TRANSPOSED = 1, 1
_LETTERS = {"float32": "S", "float64": "D"}
#: The size that cuBLAS recommends for Hopper; with less it would allocate.
_WORKSPACE_BYTES = 32 << 20
_ERRORS = {3: "ALLOC_FAILED", 8: "ARCH_MISMATCH: no kernel image", 15: "NOT_SUPPORTED"}


@cache
def _library() -> Any:
    for name in _FILES:
        for path in [*map(str, packaged(f"lib/{name}")), name, f"/usr/local/cuda/lib64/{name}"]:
            try:
                return ctypes.CDLL(path)
            except OSError:
                continue
    raise AbsentError("libcublas was not found")


def _call(name: str, *arguments: Any) -> None:
    code = getattr(_library(), name)(*arguments)
    if code:
        raise RuntimeError(f"{name} returns {_ERRORS.get(code, code)}")


@cache
def _handle() -> Any:
    handle = ctypes.c_void_p()
    _call("cublasCreate_v2", ctypes.byref(handle))
    _call("cublasSetPointerMode_v2", handle, _POINTERS_ON_DEVICE)
    return handle


def _load() -> str:
    version = ctypes.c_int()
    _call("cublasGetVersion_v2", _handle(), ctypes.byref(version))
    number = version.value
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _prepare(request: CallRequest) -> PreparedCall:
    handle = _handle()
    _call("cublasSetStream_v2", handle, ctypes.c_void_p(request.stream))
    workspace = ctypes.c_void_p(request.allocate(_WORKSPACE_BYTES))
    _call("cublasSetWorkspace_v2", handle, workspace, ctypes.c_size_t(_WORKSPACE_BYTES))
    name, call = _dot(request) if request.problem.rows == 1 else _gemv(request)

    def run() -> None:
        code = call()
        if code:
            raise RuntimeError(f"{name} returns {_ERRORS.get(code, code)}")

    return PreparedCall(run)


def _dot(request: CallRequest) -> tuple[str, Callable[[], int]]:
    """The dot product with a vector of ones: one element with increment 0."""
    one = _upload(request, 1, 1)
    x, out = ctypes.c_void_p(request.address), ctypes.c_void_p(request.out)
    n, step, zero = (ctypes.c_int64(value) for value in (request.problem.n, 1, 0))
    name = f"cublas{_LETTERS[request.reduction.dtype.name]}dot_v2_64"
    return name, partial(getattr(_library(), name), _handle(), n, x, step, one, zero, out)


def _gemv(request: CallRequest) -> tuple[str, Callable[[], int]]:
    """The product of the matrix and a vector of ones, which is the sum of each row. The matrix is
    transposed, since cuBLAS is column-major."""
    ones, one, zero = (_upload(request, 1, request.problem.n), _upload(request, 1, 1),
                       _upload(request, 0, 1))  # fmt: skip
    x, out = ctypes.c_void_p(request.address), ctypes.c_void_p(request.out)
    n, rows, step = (
        ctypes.c_int64(value) for value in (request.problem.n, request.problem.rows, 1)
    )
    name = f"cublas{_LETTERS[request.reduction.dtype.name]}gemv_v2_64"
    words = (_TRANSPOSED, n, rows, one, x, n, ones, step, zero, out, step)
    return name, partial(getattr(_library(), name), _handle(), *words)


def _upload(request: CallRequest, value: int, count: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(request.upload(np.full(count, value, request.reduction.dtype.storage)))


def _called(problem: Problem) -> str:
    letter = _LETTERS[problem.reduction.dtype.name]
    if problem.rows != 1:
        return f"cublas{letter}gemv_64 (T) with ones"
    return f"cublas{letter}dot_64 with one 1, incy = 0"


LIBRARIES = (
    Library(
        name="cublas", package="nvidia-cublas", install="pip install nvidia-cublas",
        context="primary", ops=("sum",), dtypes=tuple(_LETTERS), refuses=own_type_only,
        load=_load, called=_called, prepare=_prepare,
    ),
)  # fmt: skip
