"""cuTile: a reduction in two stages of tiles, compiled ahead of time by its compiler."""

from __future__ import annotations

import io
import re
from functools import cache
from typing import Any

from cudareduce.backend import Launch
from cudareduce.launch.plan import Problem
from cudareduce.peers.contract import Given, Peer, Ready, takes
from cudareduce.peers.interop import Cubin, launcher

_DTYPES = ("float32", "float64", "int32", "int64")
#: Elements of a tile, and tiles of the first stage at most. One tile holds all partials.
_TILE, _BLOCKS = 4096, 1056
_DIVISOR = 16


def load() -> str:
    """Import it, and let its compiler make something, since that is a package of its own."""
    import cuda.tile

    _compiled("float32", (True, True), 90)
    return str(cuda.tile.__version__)


@cache
def _compiled(dtype: str, even: tuple[bool, bool], arch: int) -> Cubin:
    """One stage: `even` says of address and length whether they are multiples of 16."""
    import cuda.tile as ct
    from cuda.tile.compilation import (
        ArrayConstraint,
        CallingConvention,
        ConstantConstraint,
        KernelSignature,
        export_kernel,
    )

    from cudareduce.peers import cutile_kernels

    def array(place: bool, length: bool) -> Any:
        return ArrayConstraint(
            getattr(ct, dtype), 1, index_dtype=ct.int64, stride_lower_bound_incl=0,
            alias_groups=[], may_alias_internally=False, stride_constant=[1],
            shape_divisible_by=_DIVISOR if length else 1,
            base_addr_divisible_by=_DIVISOR if place else 1,
        )  # fmt: skip

    signature = KernelSignature(
        [array(*even), array(True, False), ConstantConstraint(_TILE)],
        CallingConvention.cutile_python_v1(),
    )
    made = io.BytesIO()
    export_kernel(
        cutile_kernels.stage, [signature], made, gpu_code=f"sm_{arch}", output_format="cubin"
    )
    code = made.getvalue()
    return Cubin(code, _entry(code), _threads(code), 0)


def _entry(code: bytes) -> str:
    """The kernel's name, after the section that holds its machine code."""
    found = re.search(rb"\.text\.([A-Za-z0-9_$]+)\0", code)
    if found is None:
        raise RuntimeError("its compiler made machine code without a kernel")
    return found[1].decode()


def _threads(code: bytes) -> int:
    """Threads of a block, as the attribute EIATTR_REQNTID of the kernel says."""
    found = re.search(rb"\x04\x10\x0c\x00(.{4})", code, re.DOTALL)
    return int.from_bytes(found[1], "little") if found else 128


def _prepare(given: Given) -> Ready:
    n, size = given.problem.n, given.reduction.acc.size
    blocks = max(1, min(_BLOCKS, -(-n // _TILE)))
    if blocks == 1:
        return Ready(_stage(given, given.address, given.out, n, 1))
    partials = given.allocate(blocks * size)
    first = _stage(given, given.address, partials, n, blocks)
    second = _stage(given, partials, given.out, blocks, 1)

    def run() -> None:
        first()
        second()

    return Ready(run)


def _stage(given: Given, source: int, target: int, n: int, blocks: int) -> Launch:
    even = source % _DIVISOR == 0, n % _DIVISOR == 0
    cubin = _compiled(given.reduction.dtype.name, even, given.arch)
    # Of each array its address, length and stride.
    return launcher(cubin, blocks, [source, n, 1, target, blocks, 1], given.stream)


def _why_not(problem: Problem) -> str | None:
    reason = takes(problem, ("sum",), _DTYPES, rows=False)
    reduction = problem.reduction
    if reason is None and reduction.dtype != reduction.acc:
        return f"is compiled for one type, not for {reduction.dtype.name} in {reduction.acc.name}"
    return reason


def _called(problem: Problem) -> str:
    return f"two stages of ct.sum, cubin, tiles of {_TILE}"


PEERS = (
    Peer(
        name="cutile", package="cuda-tile", install="pip install 'cuda-tile[tileiras]'",
        context="any", load=load, why_not=_why_not, called=_called, prepare=_prepare,
    ),
)  # fmt: skip
