"""Numba: its reduction of a function of two values."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np

from cudareduce.launch.plan import Problem
from cudareduce.peers.contract import AbsentError, Given, Peer, Ready, takes
from cudareduce.peers.interop import DeviceArray, given_array

_OPS = ("sum", "prod", "min", "max")
_DTYPES = ("float32", "float64", "int32", "uint32", "int64", "uint64")


def load() -> str:
    """Import it."""
    from importlib import metadata

    try:
        from numba import cuda
    except ImportError as error:
        raise AbsentError(f"numba has no CUDA ({error})") from None
    if not cuda.is_available():
        raise AbsentError("numba sees no GPU")
    try:
        return f"numba-cuda {metadata.version('numba-cuda')}"
    except metadata.PackageNotFoundError:
        return f"numba {metadata.version('numba')}"


@cache
def _reduce(op: str) -> Any:
    from numba import cuda

    if op == "sum":
        return cuda.reduce(lambda a, b: a + b)
    if op == "prod":
        return cuda.reduce(lambda a, b: a * b)
    if op == "min":
        return cuda.reduce(lambda a, b: min(a, b))
    return cuda.reduce(lambda a, b: max(a, b))


def _neutral(problem: Problem) -> Any:
    name, dtype = problem.reduction.op.name, np.dtype(problem.reduction.acc.storage)
    if name in ("sum", "prod"):
        return dtype.type(0 if name == "sum" else 1)
    if dtype.kind == "f":
        return dtype.type(np.inf if name == "min" else -np.inf)
    limits = np.iinfo(dtype)
    return dtype.type(limits.max if name == "min" else limits.min)


def _prepare(given: Given) -> Ready:
    from numba import cuda

    data = cuda.as_cuda_array(given_array(given))
    place = DeviceArray(given.out, (1,), np.dtype(given.reduction.result_dtype))
    stream = cuda.external_stream(given.stream)
    call = partial(
        _reduce(given.reduction.op.name), data, init=_neutral(given.problem),
        res=cuda.as_cuda_array(place), stream=stream,
    )  # fmt: skip

    def run() -> None:
        call()

    return Ready(run)


def _why_not(problem: Problem) -> str | None:
    reason = takes(problem, _OPS, _DTYPES, rows=False)
    reduction = problem.reduction
    if reason is None and reduction.dtype != reduction.acc:
        return f"reduces {reduction.dtype.name} in its own type, not in {reduction.acc.name}"
    return reason


def _called(problem: Problem) -> str:
    signs = {"sum": "a + b", "prod": "a * b", "min": "min(a, b)", "max": "max(a, b)"}
    return f"cuda.reduce({signs[problem.reduction.op.name]})(x, res=)"


PEERS = (
    Peer(
        name="numba", package="numba-cuda", install="pip install 'numba-cuda[cu13]'",
        context="primary", load=load, why_not=_why_not, called=_called, prepare=_prepare,
    ),
)  # fmt: skip
