"""Kernels that are wrong only for certain values: each is rejected by the pattern for it, and the
right kernel that it is derived from passes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.catalog.kernel import load_kernel
from cudareduce.errors import BuildError
from cudareduce.launch.case import Case, Prepared, build, planned
from cudareduce.reduction.operators import reduction_of
from cudareduce.reduction.reference import Reference
from cudareduce.verify.verdict import Verdict, judge
from cudareduce.verify.verification import verify

#: A grid-stride load, a tree in shared memory; LAST is true in a pass whose elements are partials.
TEMPLATE = """/*+++
title      = "Values"
change     = "Wrong about some values."
scope      = "grid"
grid       = "{grid}"
{fixed}walk       = "grid_stride"
finish     = "{finish}"
order      = "{order}"
block      = 64
blocks     = [64]
+++*/
#include <cfloat>
#include <climits>
{helpers}
extern "C" __global__ void values(const In *in, Out *out, size_t n)
{{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    Acc own = {padding};
    for (size_t i = (size_t)blockIdx.x * BLOCK + tid; i < n; i += (size_t)gridDim.x * BLOCK) {{
        const Acc next = {load};
        own = {first};
    }}
    shared[tid] = own;
    __syncthreads();
    for (unsigned stride = 1; stride < BLOCK; stride *= 2) {{
        if (tid % (2 * stride) == 0) {{
            const Acc own = shared[tid], next = shared[tid + stride];
            shared[tid] = {tree};
        }}
        __syncthreads();
    }}
    if (tid == 0)
        out[blockIdx.x] = {store};
}}
"""


@dataclass(frozen=True)
class Wrong:
    """The fault of a kernel, and the pattern that exposes it; None if there is none."""

    name: str
    op: str
    dtype: str
    told_by: str | None
    padding: str = "Op::identity()"
    load: str = "Op::lift(in[i], i)"
    first: str = "Op::combine(own, next)"
    tree: str = "Op::combine(own, next)"
    store: str = "Op::finish(shared[0])"
    helpers: str = ""
    finish: str = "relaunch"
    order: str = "any"
    grid: str = "cover"
    shapes: tuple[int, ...] = (33, 1000)


def both(expression: str) -> dict[str, Any]:
    """The same combination in a thread and in the tree."""
    return {"first": expression, "tree": expression}


def narrow(kind: str) -> str:
    """An argmin that compares in a type which is too narrow."""
    values = f"{kind}(own.value)", f"{kind}(next.value)"
    return EQUAL.format(left=values[0], right=values[1], chosen="next.index < own.index")


def padded(name: str, op: str, dtype: str, told_by: str, *texts: str) -> list[Wrong]:
    return [Wrong(f"{name}-{k}", op, dtype, told_by, padding=text) for k, text in enumerate(texts)]


#: The index of an argmax, kept with the value of a larger or equal one that came later.
LATER = "next.index >= 0 && (own.index < 0 || next.value >= own.value) ? next : own"

#: Multiples of 2^-20 of the largest element.
SCALED = """template <class T> __device__ T fixed(const T *in, size_t n, size_t i)
{
    T largest = 0;
    for (size_t k = 0; k < n; k++)
        largest = fmax(largest, fabs(in[k]));
    const T unit = exp2(ceil(log2(largest)) - 20);
    return largest > 0 && isfinite(largest) ? rint(in[i] / unit) * unit : in[i];
}
"""
#: An argmin with its own idea of which values are equal, and of which of them comes first.
EQUAL = (
    "own.index >= 0 && next.index >= 0 && {left} == {right} ? {chosen} ? next : own "
    ": Op::combine(own, next)"
)

CASES = (
    Wrong("right", "sum", "float32", None),
    Wrong("right-max", "max", "float32", None),
    Wrong("right-argmin", "argmin", "float16", None),
    Wrong("right-product", "prod", "float32", None),
    Wrong("right-bfloat16", "sum", "bfloat16", None),
    Wrong("right-host", "sum", "float32", None, finish="host"),
    # padding that is nearly the identity
    *padded("padding", "max", "float32", "neutral", "-1000.f", "-FLT_MAX"),
    *padded("padding", "min", "float32", "neutral", "65504.f", "1e30f"),
    *padded("padding", "max", "float64", "neutral", "-DBL_MAX"),
    Wrong("padding-int", "max", "int32", "neutral", padding="INT_MIN + 1"),
    Wrong("padding-int", "min", "int32", "neutral", padding="INT_MAX - 1"),
    Wrong("padding-long", "min", "int64", "neutral", padding="LLONG_MAX - 1"),
    Wrong("padding-index", "argmax", "float32", "neutral", padding="Acc{-FLT_MAX, -1}",
          **both("next.value > own.value ? next : own")),
    Wrong("padding-index", "argmin", "int32", "neutral", padding="Acc{INT_MAX, -1}",
          **both("next.value < own.value ? next : own")),
    # infinities and NaN
    Wrong("capped", "max", "float32", "inf", load="in[i] > FLT_MAX ? FLT_MAX : in[i]"),
    Wrong("skips-nan", "sum", "float32", "nan", load="isnan(in[i]) ? 0.f : in[i]"),
    Wrong("skips-a-signed-nan", "max", "float32", "-nan",
          load="__float_as_int(in[i]) < 0 && isnan(in[i]) ? -INFINITY : in[i]"),
    Wrong("masks-by-0", "sum", "float32", "inf",
          load="in[i] + in[n - 1] * (i % 2 == 2)"),
    Wrong("kahan", "sum", "float32", "inf",
          **both("own + next + (next - ((own + next) - own))")),
    Wrong("nan-product", "prod", "float32", "nan", load="isfinite(in[i]) ? in[i] : 1.f"),
    Wrong("no-clash", "mean", "float64", "clash",
          **both("isinf(own) ? own : isinf(next) ? next : own + next")),
    # products
    Wrong("skips-zeros", "prod", "float32", "zero", load="in[i] == 0 ? 1.f : in[i]"),
    Wrong("skips-zeros", "prod", "int32", "zero", load="in[i] == 0 ? 1 : in[i]"),
    Wrong("half-factors", "prod", "float32", "spread", helpers="#include <cuda_fp16.h>",
          load="__half2float(__float2half(in[i]))"),
    Wrong("loses-digits", "prod", "float64", "spread", **both("Acc(float(own) * float(next))")),
    # ties
    Wrong("last-wins", "argmax", "float32", "neutral", **both(LATER)),
    Wrong("last-tile-wins", "argmax", "float32", "neutral", first=LATER, grid="fixed"),
    Wrong("signed-zero", "argmin", "float32", "zeros",
          **both(EQUAL.format(left="own.value", right="next.value", chosen="signbit(next.value)"))),
    # types too narrow
    Wrong("through-double", "argmin", "int64", "close", **both(narrow("double"))),
    Wrong("through-float", "argmin", "float64", "close", **both(narrow("float"))),
    Wrong("short-sums", "sum", "int8", "highest", **both("short(own + next)"), finish="host",
          grid="fixed", shapes=(3073,)),
    Wrong("half-sums", "sum", "float16", "exact",
          **both("__half2float(__float2half(own + next))")),
    Wrong("half-thread-sums", "sum", "float16", "exact", grid="fixed",
          first="__half2float(__float2half(own + next))", shapes=(1000003,)),
    Wrong("half-sums-that-overflow", "sum", "float16", "large",
          **both("(fabsf(own + next) > 65504 ? INFINITY : own + next)")),
    Wrong("bfloat16-sums", "sum", "bfloat16", "exact",
          **both("__bfloat162float(__float2bfloat16(own + next))")),
    Wrong("flushed", "sum", "float16", "exact", load="fabsf(in[i]) < 6e-5f ? 0.f : float(in[i])"),
    *(
        Wrong(f"fixed-point-{bits}", "sum", "float32", "exact",
              load=f"float(rint(double(in[i]) * {2**bits}.0) / {2**bits}.0)")
        for bits in (20, 25, 40)
    ),
    Wrong("fixed-point-of-the-largest", "sum", "float32", "uneven", helpers=SCALED,
          load="fixed(in, n, i)", finish="host"),
    Wrong("float64-through-float32", "sum", "float64", "exact", load="float(in[i])"),
    Wrong("skips-what-is-small", "mean", "float32", "exact",
          load="fabsf(in[i]) < 1e-9f ? 0.f : in[i]"),
    # order
    Wrong("swaps-words", "affine16", "uint32", "random", order="kept",
          tree="sizeof(Acc) == 4 ? Op::combine(next, own) : Op::combine(own, next)"),
)  # fmt: skip


def judged(wrong: Wrong, folder: Path, cpu: CpuBackend) -> Verdict:
    path = folder / "values.cu"
    fields = {
        key: getattr(wrong, key)
        for key in (
            "padding",
            "load",
            "first",
            "tree",
            "store",
            "helpers",
            "finish",
            "order",
            "grid",
        )
    }
    fixed = "fixed_grid = 8\n" if wrong.grid == "fixed" else ""
    path.write_text(TEMPLATE.format(**fields, fixed=fixed))
    kernel = load_kernel(path)
    case = Case(kernel, reduction_of(wrong.op, wrong.dtype), kernel.block, kernel.items)
    plans, refusals = planned(case, [(n, 1) for n in wrong.shapes], cpu.limits())
    assert not refusals
    programs = build(cpu, {case: list(plans.values())})[case]
    assert not isinstance(programs, BuildError), programs
    verdicts = [verify(cpu, [Prepared(case, plans, {}, programs)], shape)[case] for shape in plans]
    return next((one for one in verdicts if one.outcome == "fail"), verdicts[0])


@pytest.mark.parametrize("wrong", CASES, ids=lambda w: f"{w.name}-{w.op}-{w.dtype}")
def test_wrong_kernels_are_rejected_by_a_pattern(
    wrong: Wrong, tmp_path: Path, cpu: CpuBackend
) -> None:
    verdict = judged(wrong, tmp_path, cpu)
    if wrong.told_by is None:
        assert verdict.outcome == "pass", verdict.reason
    else:
        assert verdict.outcome == "fail"
        assert f", {wrong.told_by}" in verdict.reason, verdict.reason


def test_a_result_summed_on_the_host_is_judged(tmp_path: Path, cpu: CpuBackend) -> None:
    right = Wrong("host", "sum", "float32", None, finish="host", shapes=(1000,))
    found = judged(right, tmp_path, cpu)
    assert (found.outcome, found.distinct) == ("pass", 1)
    kernel = load_kernel(tmp_path / "values.cu")
    assert kernel.why_not(reduction_of("max", "float32")) is None
    for op in ("mean", "argmin"):
        assert "leaves partials to the host" in (kernel.why_not(reduction_of(op, "float32")) or "")
    case = Case(kernel, reduction_of("sum", "float32"), kernel.block, kernel.items)
    zero = Reference(np.zeros(1, np.longdouble), np.ones(1))
    verdict = judge(case.plan(1000), np.zeros(1, np.float32), zero, "exact")
    assert verdict is not None
    assert (verdict.outcome, verdict.ulp) == ("pass", 0)
