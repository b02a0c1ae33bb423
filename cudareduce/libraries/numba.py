"""Numba: cuda.reduce of a function of two values."""

from __future__ import annotations

from functools import cache, partial
from importlib import metadata
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
from cudareduce.libraries.interop import DeviceArray, identity_array, input_array

_EXPRESSIONS = {"sum": "a + b", "prod": "a * b", "min": "min(a, b)", "max": "max(a, b)"}


def _load() -> str:
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


def _prepare(request: CallRequest) -> PreparedCall:
    from numba import cuda

    out = DeviceArray(request.out, (1,), np.dtype(request.reduction.result_dtype))
    return PreparedCall(partial(
        _reduce(request.reduction.op.name), cuda.as_cuda_array(input_array(request)),
        init=identity_array(request.reduction)[0], res=cuda.as_cuda_array(out),
        stream=cuda.external_stream(request.stream),
    ))  # fmt: skip


def _called(problem: Problem) -> str:
    return f"cuda.reduce({_EXPRESSIONS[problem.reduction.op.name]})(x, res=)"


LIBRARIES = (
    Library(
        name="numba", package="numba-cuda", install="pip install 'numba-cuda[cu13]'",
        context="primary", ops=tuple(_EXPRESSIONS), takes_rows=False, refuses=own_type_only,
        dtypes=("float32", "float64", "int32", "uint32", "int64", "uint64"),
        load=_load, called=_called, prepare=_prepare,
    ),
)  # fmt: skip
