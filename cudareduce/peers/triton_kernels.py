"""The kernel of the Triton peer; Triton reads its source from here."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def stage(  # type: ignore[no-untyped-def]
    x, out, n, count, kind: tl.constexpr, mean: tl.constexpr, block: tl.constexpr
):
    """One value of each program: of all elements that it meets in strides over the input. `kind` is
    0 for a sum, 1 for a minimum, 2 for a maximum."""
    program = tl.program_id(0).to(tl.int64)
    stride = tl.num_programs(0).to(tl.int64) * block
    lanes = program * block + tl.arange(0, block)
    held = tl.load(x + lanes, mask=lanes < n, other=0).to(out.dtype.element_ty)
    if kind != 0:  # each program has an element at least, which is as neutral as any
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
