"""cuda.compute: CUB through NVIDIA's Python package, compiled at run time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np

from cudareduce.launch.plan import Problem
from cudareduce.libraries.contract import AbsentError, CallRequest, Library, PreparedCall
from cudareduce.libraries.interop import (
    DeviceArray,
    ForeignStream,
    identity_array,
    input_array,
    result_array,
)

_KINDS = {"sum": "PLUS", "prod": "MULTIPLIES", "min": "MINIMUM", "max": "MAXIMUM"}


def _load() -> str:
    import cuda.compute

    version = metadata.version("cuda-cccl")
    if not hasattr(cuda.compute, "make_reduce_into"):
        raise AbsentError(f"cuda-cccl {version} is too old: it has no make_reduce_into")
    return version


def _prepare(mode: str, request: CallRequest) -> PreparedCall:
    if request.problem.rows != 1:
        return _prepare_rows(request)
    from cuda.compute import Determinism, OpKind, make_reduce_into

    words: dict[str, Any] = {
        "d_in": input_array(request),
        "d_out": DeviceArray(request.out, (1,), result_array(request).dtype),
        "op": getattr(OpKind, _KINDS[request.reduction.op.name]),
        "h_init": identity_array(request.reduction),  # its type is the accumulator's
    }
    program = make_reduce_into(**words, determinism=getattr(Determinism, mode))
    return _with_workspace(request, partial(program, **words, num_items=request.problem.n))


def _prepare_rows(request: CallRequest) -> PreparedCall:
    """A segmented reduction between offsets: there is no call for rows of one length."""
    from cuda.compute import OpKind, make_segmented_reduce

    n, rows = request.problem.n, request.problem.rows
    edges = n * np.arange(rows + 1, dtype=np.int64)
    offsets = DeviceArray(request.upload(edges), (rows,), edges.dtype)
    words: dict[str, Any] = {
        "d_in": DeviceArray(request.address, (n * rows,), input_array(request).dtype),
        "d_out": result_array(request), "h_init": identity_array(request.reduction),
        "start_offsets_in": offsets,
        "end_offsets_in": replace(offsets, address=offsets.address + edges.itemsize),
        "op": getattr(OpKind, _KINDS[request.reduction.op.name]),
    }  # fmt: skip
    program = make_segmented_reduce(**words)
    return _with_workspace(
        request, partial(program, **words, num_segments=rows, max_segment_size=n)
    )


def _with_workspace(request: CallRequest, call: Callable[..., Any]) -> PreparedCall:
    nbytes = max(int(call(temp_storage=None)), 1)
    workspace = DeviceArray(request.allocate(nbytes), (nbytes,), np.dtype("uint8"))
    return PreparedCall(partial(call, temp_storage=workspace, stream=ForeignStream(request.stream)))


def _called(mode: str, problem: Problem) -> str:
    kind = _KINDS[problem.reduction.op.name]
    if problem.rows != 1:
        return f"make_segmented_reduce(op={kind}), between offsets"
    return f"make_reduce_into(op={kind}), {mode.lower()}"


def _adds_only(problem: Problem) -> str | None:
    name = problem.reduction.op.name
    return None if name == "sum" else f"supports only sums in not_guaranteed, not {name}"


_COMPUTE = Library(
    name="compute", package="cuda-cccl", install="pip install 'cuda-cccl[minimal-cu13]'",
    context="any", ops=tuple(_KINDS),
    dtypes=("float32", "float64", "float16", "int8", "uint8", "int32", "uint32", "int64",
            "uint64"),
    load=_load, called=partial(_called, "RUN_TO_RUN"), prepare=partial(_prepare, "RUN_TO_RUN"),
)  # fmt: skip
LIBRARIES = (
    _COMPUTE,
    replace(
        _COMPUTE, name="compute:not_guaranteed", takes_rows=False, refuses=_adds_only,
        called=partial(_called, "NOT_GUARANTEED"), prepare=partial(_prepare, "NOT_GUARANTEED"),
    ),
)  # fmt: skip
