"""The kernels of the Triton peer; Triton reads their source from here.

`kind` is 0 for a sum, 1 for a minimum, 2 for a maximum, of values or of their places. What lies
beyond the end stands for the first element, which is as neutral as any.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def stage(  # type: ignore[no-untyped-def]
    x, out, n, count, kind: tl.constexpr, mean: tl.constexpr, block: tl.constexpr
):
    """One value of each program: of all elements that it meets in strides over the input."""
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
        if kind == 0:
            held += new
        elif kind == 1:
            held = tl.minimum(held, tl.where(at < n, new, held))
        else:
            held = tl.maximum(held, tl.where(at < n, new, held))
    if kind == 0:
        answer = tl.sum(held, 0)
    elif kind == 1:
        answer = tl.min(held, 0)
    else:
        answer = tl.max(held, 0)
    if mean:
        answer = answer / count
    tl.store(out + program, answer)


@triton.jit  # type: ignore[untyped-decorator]
def rows(  # type: ignore[no-untyped-def]
    x, out, n, count, kind: tl.constexpr, mean: tl.constexpr,
    height: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    """One value a row of `n` elements, `height` rows a program, `width` elements at a time."""
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
        if kind == 0:
            held += new
        elif kind == 1:
            held = tl.minimum(held, tl.where(at < n, new, held))
        else:
            held = tl.maximum(held, tl.where(at < n, new, held))
    if kind == 0:
        answer = tl.sum(held, 1)
    elif kind == 1:
        answer = tl.min(held, 1)
    else:
        answer = tl.max(held, 1)
    if mean:
        answer = answer / n
    tl.store(out + row, answer, mask=row < count)


@triton.jit  # type: ignore[untyped-decorator]
def arg_rows(  # type: ignore[no-untyped-def]
    x, like, out, n, count, kind: tl.constexpr, height: tl.constexpr, width: tl.constexpr
):
    """The place of the first extremum of each row; `like` has the type that is compared in."""
    row = tl.program_id(0).to(tl.int64) * height + tl.arange(0, height)
    line = (row * n)[:, None]
    there = (row < count)[:, None]
    lanes = tl.arange(0, width)[None, :]
    held = tl.load(x + line + lanes, mask=there & (lanes < n), other=0).to(like.dtype.element_ty)
    first = tl.load(x + line, mask=there, other=0).to(like.dtype.element_ty)
    held = tl.where(lanes < n, held, first)
    place = (line * 0 + tl.where(lanes < n, lanes, 0)).to(tl.int64)
    for start in range(width, n, width):
        at = start + lanes
        new = tl.load(x + line + at, mask=there & (at < n), other=0).to(like.dtype.element_ty)
        better = (new < held) if kind == 1 else (new > held)
        better = better & (at < n)
        held = tl.where(better, new, held)
        place = tl.where(better, at, place)
    best = tl.min(held, 1) if kind == 1 else tl.max(held, 1)
    answer = tl.min(tl.where(held == best[:, None], place, n), 1)
    tl.store(out + row, answer, mask=row < count)


@triton.jit  # type: ignore[untyped-decorator]
def arg_stage(  # type: ignore[no-untyped-def]
    x, where, values, places, n, kind: tl.constexpr, last: tl.constexpr, block: tl.constexpr
):
    """The first extremum that each program meets in strides over the input, and its place; in the
    last stage places of partial ones come from `where`, and all of them fit one block."""
    program = tl.program_id(0).to(tl.int64)
    stride = tl.num_programs(0).to(tl.int64) * block
    lanes = program * block + tl.arange(0, block)
    held = tl.load(x + lanes, mask=lanes < n, other=0).to(values.dtype.element_ty)
    first = tl.load(x + program * block).to(values.dtype.element_ty)
    held = tl.where(lanes < n, held, first)
    place = tl.where(lanes < n, lanes, program * block)
    if last:
        place = tl.load(where + place)
    else:
        for start in range(stride, n, stride):
            at = start + lanes
            new = tl.load(x + at, mask=at < n, other=0).to(values.dtype.element_ty)
            better = (new < held) if kind == 1 else (new > held)
            better = better & (at < n)
            held = tl.where(better, new, held)
            place = tl.where(better, at, place)
    best = tl.min(held, 0) if kind == 1 else tl.max(held, 0)
    tl.store(places + program, tl.min(tl.where(held == best, place, 1 << 62), 0))
    if not last:
        tl.store(values + program, best)
