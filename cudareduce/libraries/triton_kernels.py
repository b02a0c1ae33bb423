"""The Triton kernels; Triton reads their source from this file.

`kind` is 0 for a sum, 1 for a minimum, 2 for a maximum. Elements beyond the end are replaced by the
first element, which does not change an extremum.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def combine(held, new, inside, kind: tl.constexpr):  # type: ignore[no-untyped-def]
    """Combine elementwise; elements that are not `inside` were loaded as 0."""
    if kind == 0:
        held += new
    elif kind == 1:
        held = tl.minimum(held, tl.where(inside, new, held))
    else:
        held = tl.maximum(held, tl.where(inside, new, held))
    return held


@triton.jit  # type: ignore[untyped-decorator]
def fold(held, axis: tl.constexpr, kind: tl.constexpr):  # type: ignore[no-untyped-def]
    """Reduce along an axis."""
    if kind == 0:
        result = tl.sum(held, axis)
    elif kind == 1:
        result = tl.min(held, axis)
    else:
        result = tl.max(held, axis)
    return result


@triton.jit  # type: ignore[untyped-decorator]
def is_better(new, held, kind: tl.constexpr):  # type: ignore[no-untyped-def]
    """True where `new` is smaller for a minimum, or larger for a maximum."""
    return (new < held) if kind == 1 else (new > held)


@triton.jit  # type: ignore[untyped-decorator]
def stage(  # type: ignore[no-untyped-def]
    x, out, n, count, kind: tl.constexpr, mean: tl.constexpr, block: tl.constexpr
):
    """Stores one partial result per program, of a grid-stride loop. `mean` divides it by
    `count`."""
    program = tl.program_id(0).to(tl.int64)
    stride = tl.num_programs(0).to(tl.int64) * block
    lanes = program * block + tl.arange(0, block)
    held = tl.load(x + lanes, mask=lanes < n, other=0).to(out.dtype.element_ty)
    if kind != 0:
        first = tl.load(x + program * block).to(out.dtype.element_ty)
        held = tl.where(lanes < n, held, first)
    for start in range(stride, n, stride):
        at = start + lanes
        new = tl.load(x + at, mask=at < n, other=0).to(out.dtype.element_ty)
        held = combine(held, new, at < n, kind)
    result = fold(held, 0, kind)
    if mean:
        result = result / count
    tl.store(out + program, result)


@triton.jit  # type: ignore[untyped-decorator]
def rows(  # type: ignore[no-untyped-def]
    x, out, n, count, kind: tl.constexpr, mean: tl.constexpr,
    height: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    """Stores one result per row of `n` elements: `height` rows per program, in steps of `width`."""
    row = tl.program_id(0).to(tl.int64) * height + tl.arange(0, height)
    line = (row * n)[:, None]
    there = (row < count)[:, None]
    lanes = tl.arange(0, width)[None, :]
    held = tl.load(x + line + lanes, mask=there & (lanes < n), other=0).to(out.dtype.element_ty)
    if kind != 0:
        first = tl.load(x + line, mask=there, other=0).to(out.dtype.element_ty)
        held = tl.where(lanes < n, held, first)
    for start in range(width, n, width):
        at = start + lanes
        new = tl.load(x + line + at, mask=there & (at < n), other=0).to(out.dtype.element_ty)
        held = combine(held, new, at < n, kind)
    result = fold(held, 1, kind)
    if mean:
        result = result / n
    tl.store(out + row, result, mask=row < count)


@triton.jit  # type: ignore[untyped-decorator]
def arg_rows(  # type: ignore[no-untyped-def]
    x, like, out, n, count, kind: tl.constexpr, height: tl.constexpr, width: tl.constexpr
):
    """Stores the index of the first extremum of each row. Compares in the type of `like`."""
    row = tl.program_id(0).to(tl.int64) * height + tl.arange(0, height)
    line = (row * n)[:, None]
    there = (row < count)[:, None]
    lanes = tl.arange(0, width)[None, :]
    held = tl.load(x + line + lanes, mask=there & (lanes < n), other=0).to(like.dtype.element_ty)
    first = tl.load(x + line, mask=there, other=0).to(like.dtype.element_ty)
    held = tl.where(lanes < n, held, first)
    index = (line * 0 + tl.where(lanes < n, lanes, 0)).to(tl.int64)
    for start in range(width, n, width):
        at = start + lanes
        new = tl.load(x + line + at, mask=there & (at < n), other=0).to(like.dtype.element_ty)
        better = is_better(new, held, kind) & (at < n)
        held = tl.where(better, new, held)
        index = tl.where(better, at, index)
    best = fold(held, 1, kind)
    result = tl.min(tl.where(held == best[:, None], index, n), 1)
    tl.store(out + row, result, mask=row < count)


@triton.jit  # type: ignore[untyped-decorator]
def arg_stage(  # type: ignore[no-untyped-def]
    x, where, values, indices, n, kind: tl.constexpr, last: tl.constexpr, block: tl.constexpr
):
    """Stores the first extremum per program and its index. The last stage is one block; it reads
    the indices of partial results from `where`."""
    program = tl.program_id(0).to(tl.int64)
    stride = tl.num_programs(0).to(tl.int64) * block
    lanes = program * block + tl.arange(0, block)
    held = tl.load(x + lanes, mask=lanes < n, other=0).to(values.dtype.element_ty)
    first = tl.load(x + program * block).to(values.dtype.element_ty)
    held = tl.where(lanes < n, held, first)
    index = tl.where(lanes < n, lanes, program * block)
    if last:
        index = tl.load(where + index)
    else:
        for start in range(stride, n, stride):
            at = start + lanes
            new = tl.load(x + at, mask=at < n, other=0).to(values.dtype.element_ty)
            better = is_better(new, held, kind) & (at < n)
            held = tl.where(better, new, held)
            index = tl.where(better, at, index)
    best = fold(held, 0, kind)
    tl.store(indices + program, tl.min(tl.where(held == best, index, 1 << 62), 0))
    if not last:
        tl.store(values + program, best)
