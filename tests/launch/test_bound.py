"""Buffers of plans: what a reduction finds in memory that it is given besides."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cudareduce.emulator.cpu import CpuBackend
from cudareduce.errors import BuildError
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, build
from cudareduce.library.arguments import read_argument
from cudareduce.library.foreign import adopt
from cudareduce.library.guesses import Guesses
from cudareduce.reduction.operators import reduction_of

#: The answer is the number of blocks that have ever counted, or what the memory held before.
COUNTS = """__global__ void counts(const int *in, int *out, unsigned *once, int *left, int n)
{
    if (threadIdx.x == 0) atomicAdd(once, 1u);
    if (threadIdx.x == 0 && blockIdx.x == 0) { out[0] = left[1]; left[1] = 5; }
    if (threadIdx.x == 0 && blockIdx.x == 1) out[1] = atomicAdd(once, 0u);
}
"""


def test_what_is_zeroed_is_so_for_each_reduction_and_what_is_left_is_not(cpu: CpuBackend) -> None:
    says = tuple(map(read_argument, ("once=zeroed:4", "left=scratch:8", "n=n")))
    guesses = Guesses(arguments=says, grid=2, finish="none")
    (kernel,) = adopt(Path("counts.cu"), COUNTS, guesses).kernels
    reduction = reduction_of("sum", "int32")
    case = Case(kernel, reduction, 256, 1)
    plan = case.plan(512)
    assert plan.behind == ("parameter once", "parameter left")
    assert plan.zeroed == ("parameter once",)
    assert plan.scratch == {"parameter once": 4, "parameter left": 8}
    assert plan.room == 2  # a partial for each block may lie where the answer does
    programs = build(cpu, {case: [plan]})[case]
    assert not isinstance(programs, BuildError), programs
    bound = Bound(cpu, plan, programs, cpu.upload(np.ones(512, np.int32)))

    def left() -> list[int]:
        return [int(n) for n in cpu.download(bound.out, "int32", 2)]

    bound.run()
    assert left()[0] == -1  # poisoned
    bound.run()
    assert left()[0] == 5
    assert left()[1] in (1, 2)  # of this reduction alone
    bound.run_first()
    assert left()[1] in (3, 4)  # nothing is zeroed in front of it
    bound.run_before()
    bound.run_first()
    assert left()[1] in (1, 2)
    bound.release()


def test_without_elements_nothing_is_zeroed() -> None:
    says = (read_argument("left=scratch:8"), read_argument("once=zeroed:4"))
    guesses = Guesses(arguments=says, finish="none")
    (kernel,) = adopt(Path("counts.cu"), COUNTS, guesses).kernels
    plan = Case(kernel, reduction_of("sum", "int32"), 256, 1).plan(0)
    assert (plan.zeroed, plan.behind, plan.preset) == ((), (), "out")
