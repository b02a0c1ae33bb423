"""Verify every kernel of the package on the emulator: right results, and no data races."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import inf

import pytest

from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.backends.protocol import Backend
from cudareduce.catalog.kernel import Kernel
from cudareduce.catalog.registry import load_registry
from cudareduce.errors import BuildError
from cudareduce.launch.case import Case, Prepared, Shape, build, planned
from cudareduce.machine import DeviceLimits
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import OPERATORS, Map, Reduction, reduction_of
from cudareduce.verify.test_sets import ROW_SHAPES, race_test_sets
from cudareduce.verify.verification import verify

KERNELS = {k.id: k for k in load_registry().kernels.values() if not k.requires}
#: What every kernel is tried with.
CORE = {("sum", "float32")}
#: The first kernel of each family takes every operator once and every type once, that of the ladder
#: sums of every type as well. The rest of the product is marked slow.
EACH_ONCE = {(op, list(DTYPES)[k % len(DTYPES)]) for k, op in enumerate(OPERATORS)}
SUMS = {("sum", dtype) for dtype in DTYPES}
EACH_ONCE |= {("matmul", "uint32"), ("affine", "int32"), ("sum", "float16")}
EACH_ONCE |= {(op, dtype) for op, dtype in SUMS if dtype not in {taken for _, taken in EACH_ONCE}}
FIRST = {kernel.family: kernel.id for kernel in reversed(KERNELS.values())}
TRIED = dict.fromkeys(FIRST.values(), CORE | EACH_ONCE)
TRIED[FIRST["ladder"]] = CORE | EACH_ONCE | SUMS
#: A size for each way to go wrong: identity, one, a warp and its edges, a block's, several passes.
SIZES = (0, 1, 31, 32, 33, 255, 256, 257, 513, 4097, 70001)
SHAPES = [(n, 1) for n in SIZES] + list(ROW_SHAPES)
#: For other operators and types, which do not change where blocks begin and end.
FEW = [(n, 1) for n in (0, 1, 33, 257, 4097)] + list(ROW_SHAPES)


def _supported(kernel: Kernel) -> list[tuple[str, str]]:
    """The operators and types that a kernel supports."""
    pairs = product(OPERATORS, DTYPES)
    return [(op, dtype) for op, dtype in pairs if not kernel.why_not(reduction_of(op, dtype))]


def _cases() -> list[object]:
    """The reductions that the tests verify; those of CORE in every run."""
    return [
        pytest.param(
            kernel,
            op,
            dtype,
            id=f"{name}-{op}-{dtype}",
            marks=[pytest.mark.long] * ((op, dtype) not in CORE),
        )
        for name, kernel in KERNELS.items()
        for op, dtype in _supported(kernel)
        if (op, dtype) in TRIED.get(name, CORE)
    ]


def usual(kernel: Kernel, dtype: str) -> Reduction:
    """A sum of this type, or another reduction that the kernel supports."""
    wanted = (
        ("sum", dtype),
        ("sum", "int32"),
        ("argmax", dtype),
        ("sum", "float32"),
        ("sum", "int8"),
        ("max", "int8"),
    )
    found = (reduction_of(*one) for one in wanted)
    return next(reduction for reduction in found if kernel.why_not(reduction) is None)


def prepare(
    backend: Backend,
    cases: Sequence[Case],
    shapes: Sequence[Shape],
    limits: DeviceLimits | None = None,
) -> list[Prepared]:
    """Cases planned for those of the shapes that they take, and compiled."""
    limits = limits or backend.limits()
    plans = {case: planned(case, shapes, limits) for case in cases}
    built = build(backend, {case: list(taken.values()) for case, (taken, _) in plans.items()})
    prepared = []
    for case, programs in built.items():
        assert not isinstance(programs, BuildError), programs
        assert plans[case][0], f"{case.kernel.id} takes none of the shapes"
        prepared.append(Prepared(case, *plans[case], programs))
    return prepared


@pytest.mark.parametrize(("kernel", "op", "dtype"), _cases())
def test_kernels_of_the_package_are_right_under_every_schedule(
    cpu: CpuBackend, kernel: Kernel, op: str, dtype: str
) -> None:
    case = Case(kernel, reduction_of(op, dtype), kernel.block, kernel.items)
    [ready] = prepare(cpu, [case], SHAPES if (op, dtype) in CORE else FEW)
    for shape in ready.plans:
        found = verify(cpu, [ready], shape)[case]
        assert found.outcome == "pass", found.reason


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=list(KERNELS))
def test_right_with_every_operator_and_type(cpu: CpuBackend, kernel: Kernel) -> None:
    for op, dtype in _supported(kernel):
        case = Case(kernel, reduction_of(op, dtype), kernel.block, kernel.items)
        [ready] = prepare(cpu, [case], SHAPES)
        for shape in ready.plans:
            found = verify(cpu, [ready], shape)[case]
            assert found.outcome == "pass", f"{op} {dtype}: {found.reason}"


#: The kernel whose race tests take longest.
_LONG = ("reduce_rows_block",)


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(kernel, id=name, marks=[pytest.mark.long] * (name in _LONG))
        for name, kernel in KERNELS.items()
    ],
)
def test_kernels_of_the_package_have_no_data_race(watched: CpuBackend, kernel: Kernel) -> None:
    case = Case(kernel, usual(kernel, "float32"), kernel.block, kernel.items)
    most_rows = 9 if kernel.id == "reduce_rows_split" else inf  # with 300 rows it takes a minute
    for tests in race_test_sets(case):
        shapes = [(n, rows) for n, rows in tests.shapes if rows <= most_rows]
        [ready] = prepare(watched, [tests.case], shapes, tests.limits)
        for shape in ready.plans:
            verdict = verify(watched, [ready], shape, level=tests.level)[tests.case]
            assert verdict.outcome == "pass", verdict.reason


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=list(KERNELS))
def test_every_element_is_mapped_or_none_may_be(cpu: CpuBackend, kernel: Kernel) -> None:
    asked = [(op, dtype, "5 - a") for dtype in ("int8", "float32") for op in ("sum", "max")]
    each = (reduction_of(op, dtype, None, Map(mapped, 1)) for op, dtype, mapped in asked)
    taken = [reduction for reduction in each if kernel.why_not(reduction) is None]
    for case in (Case(kernel, reduction, kernel.block, kernel.items) for reduction in taken[:2]):
        [ready] = prepare(cpu, [case], ((1000, 1), (20, 7)))
        for shape in ready.plans:
            found = verify(cpu, [ready], shape, level="some")[case]
            assert found.outcome == "pass", found.reason


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=list(KERNELS))
def test_right_at_the_smallest_and_largest_block(cpu: CpuBackend, kernel: Kernel) -> None:
    for block in (min(kernel.blocks), max(kernel.blocks)):
        case = Case(kernel, usual(kernel, "int32"), block, kernel.items)
        shapes = ((1, 1), (block - 1, 1), (2 * block + 1, 1), (4992, 1), (31, 2 * block))
        [ready] = prepare(cpu, [case], shapes)
        for shape in ready.plans:
            found = verify(cpu, [ready], shape, level="least")[case]
            assert found.outcome == "pass", f"block {block}: {found.reason}"
