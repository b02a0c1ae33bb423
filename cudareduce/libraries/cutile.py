"""cuTile: a two-stage reduction of tiles, compiled ahead of time by its own compiler."""

from __future__ import annotations

import io
import re
from functools import cache
from typing import Any

from cudareduce.backends.protocol import Launch
from cudareduce.libraries.contract import CallRequest, Library, PreparedCall, own_type_only
from cudareduce.libraries.interop import Cubin, in_order, launcher

#: Elements of a tile, and most blocks of the first stage: one tile holds all partial results.
_TILE, _BLOCKS = 4096, 1056
_DIVISOR = 16


def _load() -> str:
    """Import cuTile and compile a kernel, since the compiler is a separate package."""
    import cuda.tile

    _compiled("float32", (True, True), 90)
    return str(cuda.tile.__version__)


@cache
def _compiled(dtype: str, divisible: tuple[bool, bool], arch: int) -> Cubin:
    """Compile one stage. `divisible`: whether address and length are multiples of 16."""
    import cuda.tile as ct
    from cuda.tile.compilation import (
        ArrayConstraint,
        CallingConvention,
        ConstantConstraint,
        KernelSignature,
        export_kernel,
    )

    from cudareduce.libraries import cutile_kernels

    def array(address: bool, length: bool) -> Any:
        return ArrayConstraint(
            getattr(ct, dtype), 1, index_dtype=ct.int64, stride_lower_bound_incl=0,
            alias_groups=[], may_alias_internally=False, stride_constant=[1],
            shape_divisible_by=_DIVISOR if length else 1,
            base_addr_divisible_by=_DIVISOR if address else 1,
        )  # fmt: skip

    signature = KernelSignature(
        [array(*divisible), array(True, False), ConstantConstraint(_TILE)],
        CallingConvention.cutile_python_v1(),
    )
    cubin = io.BytesIO()
    export_kernel(
        cutile_kernels.stage, [signature], cubin, gpu_code=f"sm_{arch}", output_format="cubin"
    )
    code = cubin.getvalue()
    # the ELF section .text.NAME has the kernel's name, EIATTR_REQNTID its threads per block
    entry = re.search(rb"\.text\.([A-Za-z0-9_$]+)\0", code)
    threads = re.search(rb"\x04\x10\x0c\x00(.{4})", code, re.DOTALL)
    if entry is None:
        raise RuntimeError("its compiler produced no kernel")
    return Cubin(
        code, entry[1].decode(), int.from_bytes(threads[1], "little") if threads else 128, 0
    )


def _prepare(request: CallRequest) -> PreparedCall:
    n = request.problem.n
    blocks = max(1, min(_BLOCKS, -(-n // _TILE)))
    if blocks == 1:
        return PreparedCall(_stage(request, request.address, request.out, n, 1))
    partials = request.allocate(blocks * request.reduction.acc.size)
    return PreparedCall(in_order(
        _stage(request, request.address, partials, n, blocks),
        _stage(request, partials, request.out, blocks, 1),
    ))  # fmt: skip


def _stage(request: CallRequest, source: int, target: int, n: int, blocks: int) -> Launch:
    divisible = source % _DIVISOR == 0, n % _DIVISOR == 0
    cubin = _compiled(request.reduction.dtype.name, divisible, request.arch)
    # An array is passed as address, length and stride.
    return launcher(cubin, blocks, [source, n, 1, target, blocks, 1], request.stream)


LIBRARIES = (
    Library(
        name="cutile", package="cuda-tile", install="pip install 'cuda-tile[tileiras]'",
        context="any", ops=("sum",), dtypes=("float32", "float64", "int32", "int64"),
        takes_rows=False, refuses=own_type_only, load=_load, prepare=_prepare,
        called=lambda problem: f"two stages of ct.sum, cubin, tiles of {_TILE}",
    ),
)  # fmt: skip
