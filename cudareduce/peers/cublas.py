"""cuBLAS: a dot product with ones for a sum, a matrix times ones for sums of rows."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from cudareduce.launch.plan import Problem
from cudareduce.machine.host import packaged
from cudareduce.peers.contract import AbsentError, Given, Peer, Ready, takes

_FILES = ("libcublas.so.13", "libcublas.so.12")
#: From cublas_api.h.
_POINTERS_ON_DEVICE, _TRANSPOSED = 1, 1
_LETTERS = {"float32": "S", "float64": "D"}
#: What cuBLAS asks for on Hopper; less would make it allocate.
_WORKSPACE_BYTES = 32 << 20


@cache
def _library() -> Any:
    """The library: of PyPI's packages, or where the system looks."""
    for name in _FILES:
        for path in [*map(str, packaged(f"lib/{name}")), name, f"/usr/local/cuda/lib64/{name}"]:
            try:
                return ctypes.CDLL(path)
            except OSError:
                continue
    raise AbsentError("libcublas was not found")


def load() -> str:
    """Load the library and ask for its version."""
    library, handle, version = _library(), _handle(), ctypes.c_int()
    _checked("cublasGetVersion_v2", library.cublasGetVersion_v2(handle, ctypes.byref(version)))
    number = version.value
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


@cache
def _handle() -> Any:
    """A handle of the context that is current."""
    handle = ctypes.c_void_p()
    _checked("cublasCreate_v2", _library().cublasCreate_v2(ctypes.byref(handle)))
    mode = _library().cublasSetPointerMode_v2(handle, _POINTERS_ON_DEVICE)
    _checked("cublasSetPointerMode_v2", mode)
    return handle


def _checked(name: str, code: int) -> None:
    if code:
        named = {3: "ALLOC_FAILED", 8: "ARCH_MISMATCH: no kernel image", 15: "NOT_SUPPORTED"}
        raise RuntimeError(f"{name} returns {named.get(code, code)}")


def _prepare(given: Given) -> Ready:
    library, handle = _library(), _handle()
    stream = library.cublasSetStream_v2(handle, ctypes.c_void_p(given.stream))
    _checked("cublasSetStream_v2", stream)
    place = ctypes.c_void_p(given.allocate(_WORKSPACE_BYTES))
    size = ctypes.c_size_t(_WORKSPACE_BYTES)
    _checked("cublasSetWorkspace_v2", library.cublasSetWorkspace_v2(handle, place, size))
    name, call = _dot(given) if given.problem.rows == 1 else _gemv(given)

    def run() -> None:
        code = call()
        if code:
            _checked(name, code)

    return Ready(run)


def _dot(given: Given) -> tuple[str, Callable[[], int]]:
    """The dot product with one 1, again and again: an increment of 0."""
    one = ctypes.c_void_p(given.upload(_ones(given, 1)))
    x, out = ctypes.c_void_p(given.address), ctypes.c_void_p(given.out)
    n, step, none = (ctypes.c_int64(value) for value in (given.problem.n, 1, 0))
    name = f"cublas{_LETTERS[given.reduction.dtype.name]}dot_v2_64"
    return name, partial(getattr(_library(), name), _handle(), n, x, step, one, none, out)


def _gemv(given: Given) -> tuple[str, Callable[[], int]]:
    """Rows times ones: in cuBLAS's order of columns rows are columns, so the matrix is
    transposed."""
    n, rows = given.problem.n, given.problem.rows
    ones = ctypes.c_void_p(given.upload(_ones(given, n)))
    one = ctypes.c_void_p(given.upload(_ones(given, 1)))
    zero = ctypes.c_void_p(given.upload(0 * _ones(given, 1)))
    x, out = ctypes.c_void_p(given.address), ctypes.c_void_p(given.out)
    length, count, step = (ctypes.c_int64(value) for value in (n, rows, 1))
    name = f"cublas{_LETTERS[given.reduction.dtype.name]}gemv_v2_64"
    words = (_TRANSPOSED, length, count, one, x, length, ones, step, zero, out, step)
    return name, partial(getattr(_library(), name), _handle(), *words)


def _ones(given: Given, count: int) -> Any:
    return np.ones(count, given.reduction.dtype.storage)


def _why_not(problem: Problem) -> str | None:
    reduction = problem.reduction
    if reduction.op.name == "sum" and reduction.dtype.size == 2:
        return "answers a dot product of 16 bits in 16 bits, and the table's answers are float32"
    reason = takes(problem, ("sum",), tuple(_LETTERS))
    if reason is None and reduction.dtype != reduction.acc:
        return f"adds {reduction.dtype.name} in its own type, not in {reduction.acc.name}"
    return reason


def _called(problem: Problem) -> str:
    letter = _LETTERS.get(problem.reduction.dtype.name, "")
    if problem.rows != 1:
        return f"cublas{letter}gemv_64 (T) with ones"
    return f"cublas{letter}dot_64 with one 1, incy = 0"


PEERS = (
    Peer(
        name="cublas", package="nvidia-cublas", install="pip install nvidia-cublas",
        context="primary", load=load, why_not=_why_not, called=_called, prepare=_prepare,
    ),
)  # fmt: skip
