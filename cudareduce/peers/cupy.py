"""CuPy: its reductions go to a CUB of its own, or to kernels of its own."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np

from cudareduce.launch.plan import Problem
from cudareduce.peers.contract import AbsentError, Given, Peer, Ready, takes
from cudareduce.peers.interop import ForeignStream

_OPS = ("sum", "prod", "min", "max", "mean", "argmin", "argmax")
_DTYPES = ("float32", "float64", "float16", "int8", "uint8", "int32", "uint32", "int64", "uint64")


def load() -> str:
    """Import it."""
    import cupy

    if not hasattr(cupy.cuda.Stream, "from_external") and not hasattr(cupy.cuda, "ExternalStream"):
        raise AbsentError(f"CuPy {cupy.__version__} is too old: it takes no stream of ours")
    return str(cupy.__version__)


@cache
def _stream(handle: int) -> Any:
    """Kept, since CuPy does not keep what it was told to use."""
    import cupy

    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(ForeignStream(handle))
    return cupy.cuda.ExternalStream(handle)


def _array(given: Given) -> Any:
    """The input, with our stream made CuPy's current one."""
    import cupy

    _stream(given.stream).use()
    nbytes = given.problem.input_bytes
    memory = cupy.cuda.UnownedMemory(given.address, nbytes, given, device_id=0)
    place = cupy.cuda.MemoryPointer(memory, 0)
    return cupy.ndarray(given.shape, given.reduction.dtype.storage, place)


def _method(given: Given, data: Any) -> Any:
    """The method without `out`, which would cost a copy."""
    name, axis = given.reduction.op.name, None if given.problem.rows == 1 else 1
    method = partial(getattr(data, name), axis=axis)
    if name in ("sum", "prod", "mean"):
        return partial(method, dtype=given.reduction.acc.storage)
    return method


def _prepare(given: Given) -> Ready:
    import cupy

    method = _method(given, _array(given))
    held: list[Any] = []

    def run() -> None:
        held[:] = [method()]

    return Ready(run, lambda: cupy.asnumpy(held[0]))


def _prepare_as_called(given: Given) -> Ready:
    method = _method(given, _array(given))
    held: list[Any] = []

    def run() -> None:
        held[:] = [method().get()]

    return Ready(run, lambda: np.asarray(held[0]))


def _called(ending: str, problem: Problem) -> str:
    words = [] if problem.rows == 1 else ["axis=1"]
    if problem.reduction.op.name in ("sum", "prod", "mean"):
        words.append(f"dtype={problem.reduction.acc.name}")
    return f"x.{problem.reduction.op.name}({', '.join(words)}){ending}"


def _why_not(problem: Problem) -> str | None:
    return takes(problem, _OPS, _DTYPES)


def _peer(name: str, ending: str, prepare: Any, **fields: Any) -> Peer:
    return Peer(
        name=name, package="cupy-cuda13x", install="pip install cupy-cuda13x", context="primary",
        load=load, why_not=_why_not, called=partial(_called, ending), prepare=prepare, **fields,
    )  # fmt: skip


PEERS = (
    _peer("cupy", "", _prepare),
    _peer("cupy:as_called", ".get()", _prepare_as_called, as_called=True),
)
