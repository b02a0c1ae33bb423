"""cuda.compute: CUB as NVIDIA's Python packages call it, compiled at run time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from cudareduce.launch.plan import Problem
from cudareduce.peers.contract import AbsentError, Given, Peer, Ready, takes
from cudareduce.peers.interop import DeviceArray, ForeignStream, answers_array, given_array

_OPS = ("sum", "prod", "min", "max")
_KINDS = {"sum": "PLUS", "prod": "MULTIPLIES", "min": "MINIMUM", "max": "MAXIMUM"}
_DTYPES = ("float32", "float64", "float16", "int8", "uint8", "int32", "uint32", "int64", "uint64")


def load() -> str:
    """Import it."""
    from importlib import metadata

    import cuda.compute

    version = metadata.version("cuda-cccl")
    if not hasattr(cuda.compute, "make_reduce_into"):
        raise AbsentError(f"cuda-cccl {version} is too old: it has no make_reduce_into")
    return version


def first_value(problem: Problem) -> Any:
    """The accumulator's neutral element, which decides its type."""
    name, acc = problem.reduction.op.name, np.dtype(problem.reduction.acc.storage)
    if name in ("sum", "prod"):
        return np.full(1, 0 if name == "sum" else 1, acc)
    if acc.kind == "f":
        return np.full(1, np.inf if name == "min" else -np.inf, acc)
    limits = np.iinfo(acc)
    return np.full(1, limits.max if name == "min" else limits.min, acc)


def _prepare(mode: str, given: Given) -> Ready:
    if given.problem.rows != 1:
        return _by_rows(given)
    from cuda.compute import Determinism, OpKind, make_reduce_into

    data = given_array(given)
    out = DeviceArray(given.out, (1,), answers_array(given).dtype)
    op = getattr(OpKind, _KINDS[given.reduction.op.name])
    first, count = first_value(given.problem), given.problem.n
    made = make_reduce_into(
        d_in=data, d_out=out, op=op, h_init=first, determinism=getattr(Determinism, mode)
    )
    call = partial(made, d_in=data, d_out=out, num_items=count, op=op, h_init=first)
    return _with_workspace(given, call)


def _by_rows(given: Given) -> Ready:
    """Rows between offsets, since it has no call for rows of one length."""
    from cuda.compute import OpKind, make_segmented_reduce

    n, rows = given.problem.n, given.problem.rows
    edges = n * np.arange(rows + 1, dtype=np.int64)
    offsets = DeviceArray(given.upload(edges), (rows,), edges.dtype)
    words: dict[str, Any] = {
        "d_in": DeviceArray(given.address, (n * rows,), given_array(given).dtype),
        "d_out": answers_array(given), "h_init": first_value(given.problem),
        "start_offsets_in": offsets,
        "end_offsets_in": replace(offsets, address=offsets.address + edges.itemsize),
        "op": getattr(OpKind, _KINDS[given.reduction.op.name]),
    }  # fmt: skip
    made = make_segmented_reduce(**words)
    return _with_workspace(given, partial(made, **words, num_segments=rows, max_segment_size=n))


def _with_workspace(given: Given, call: Callable[..., Any]) -> Ready:
    nbytes = max(int(call(temp_storage=None)), 1)
    place = DeviceArray(given.allocate(nbytes), (nbytes,), np.dtype("uint8"))
    return Ready(partial(call, temp_storage=place, stream=ForeignStream(given.stream)))


def _why_not(mode: str, problem: Problem) -> str | None:
    reason = takes(problem, _OPS, _DTYPES, rows=mode == "RUN_TO_RUN")
    if reason is None and mode == "NOT_GUARANTEED" and problem.reduction.op.name != "sum":
        return f"adds only in {mode.lower()}, and this is {problem.reduction.op.name}"
    return reason


def _called(mode: str, problem: Problem) -> str:
    if problem.rows != 1:
        return f"make_segmented_reduce(op={_KINDS[problem.reduction.op.name]}), between offsets"
    return f"make_reduce_into(op={_KINDS[problem.reduction.op.name]}), {mode.lower()}"


def _peer(name: str, mode: str) -> Peer:
    return Peer(
        name=name, package="cuda-cccl", install="pip install 'cuda-cccl[minimal-cu13]'",
        context="any", load=load, why_not=partial(_why_not, mode),
        called=partial(_called, mode), prepare=partial(_prepare, mode),
    )  # fmt: skip


PEERS = (_peer("compute", "RUN_TO_RUN"), _peer("compute:not_guaranteed", "NOT_GUARANTEED"))
