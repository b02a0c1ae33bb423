"""Every kernel, in every type and operator it takes, on the emulator: right, and free of hazards.

The list makes itself: a new kernel file joins by being there.
"""

from __future__ import annotations

import pytest

from cudareduce.backend import DEFAULT_LIMITS
from cudareduce.bench.session import HAZARD_SHAPES, SCHEDULES
from cudareduce.emulator.cpu import CpuBackend
from cudareduce.launch.case import Case, Programs, build
from cudareduce.library.kernel import Kernel
from cudareduce.library.registry import load_registry
from cudareduce.problem.dtypes import DTYPES
from cudareduce.problem.operators import OPERATORS, reduction
from cudareduce.verify.verify import ROW_SHAPES, verify

KERNELS = load_registry().kernels
#: What every kernel is tried with; the first of each family also takes every operator once and
#: every type once. The rest of the product is marked slow.
CORE = {("sum", "float32"), ("min", "int32"), ("max", "float64")}
EACH_ONCE = {(op, list(DTYPES)[k % len(DTYPES)]) for k, op in enumerate(OPERATORS)}
EACH_ONCE |= {("sum", dtype) for dtype in DTYPES} | {("matmul", "uint32"), ("affine", "int32")}
#: A size for each way to go wrong: identity, one, a warp and its edges, a block's, several passes.
SIZES = (0, 1, 31, 32, 33, 255, 256, 257, 513, 4097, 70001)
SHAPES = [(n, 1) for n in SIZES] + list(ROW_SHAPES)


def _cases() -> list[object]:
    seen: set[str] = set()
    cases = []
    for kernel in KERNELS.values():
        first = kernel.family not in seen
        seen.add(kernel.family)
        for op in OPERATORS:
            for dtype in DTYPES:
                if kernel.why_not(reduction(op, dtype)):
                    continue
                quick = (op, dtype) in CORE or (first and (op, dtype) in EACH_ONCE)
                marks = [] if quick else [pytest.mark.slow]
                name = f"{kernel.id}-{op}-{dtype}"
                cases.append(pytest.param(kernel, op, dtype, id=name, marks=marks))
    return cases


def _shapes(case: Case) -> list[tuple[int, int]]:
    limits = DEFAULT_LIMITS
    return [shape for shape in SHAPES if case.why_not_at(*shape, limits) is None]


def _built(backend: CpuBackend, case: Case) -> Programs:
    stages = [step.stage for shape in _shapes(case) for step in case.plan(*shape).passes]
    programs = build(backend, [(case, stages)])[case]
    assert isinstance(programs, dict), programs
    return programs


@pytest.mark.parametrize(("kernel", "op", "dtype"), _cases())
def test_right_on_every_schedule(cpu: CpuBackend, kernel: Kernel, op: str, dtype: str) -> None:
    case = Case(kernel, reduction(op, dtype), kernel.block, kernel.items)
    programs = _built(cpu, case)
    for shape in _shapes(case):
        found = verify(cpu, [(case, programs)], *shape, schedules=SCHEDULES)[case]
        assert found.outcome == "pass", found.reason


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=list(KERNELS))
def test_no_hazards(watched: CpuBackend, kernel: Kernel) -> None:
    case = Case(kernel, reduction("sum", "float32"), kernel.block, kernel.items)
    programs = _built(watched, case)
    for shape in HAZARD_SHAPES:
        if case.why_not_at(*shape, DEFAULT_LIMITS):
            continue
        found = verify(watched, [(case, programs)], *shape)[case]
        assert found.outcome == "pass", found.reason


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=list(KERNELS))
def test_right_at_the_smallest_and_largest_block(cpu: CpuBackend, kernel: Kernel) -> None:
    for block in (min(kernel.blocks), max(kernel.blocks)):
        case = Case(kernel, reduction("sum", "int32"), block, kernel.items)
        programs = _built(cpu, case)
        for shape in ((1, 1), (block - 1, 1), (2 * block + 1, 1), (4992, 1), (31, 2 * block)):
            if case.why_not_at(*shape, DEFAULT_LIMITS):
                continue
            found = verify(cpu, [(case, programs)], *shape)[case]
            assert found.outcome == "pass", f"block {block}: {found.reason}"
