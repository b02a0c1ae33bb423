"""A recorded program is executed step by step, by the emulator and through the plan."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cudareduce.backends.cuda.driver_module import demangled, symbol_of
from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.backends.protocol import Source
from cudareduce.catalog.kernel import Kernel
from cudareduce.catalog.program import (
    Address,
    FillStep,
    KernelStep,
    Program,
    Run,
    Value,
    Variable,
)
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, programs_of
from cudareduce.reduction.operators import reduction_of

TEXT = """
namespace ours {
__device__ int launches = 0;
template <class T, unsigned B>
static __global__ void add(const T *x, T *sum, dim3 n) {
  int i = blockIdx.y * B * gridDim.x + blockIdx.x * B + threadIdx.x;
  if (i == 0) launches++;
  if (i < n.x) atomicAdd(sum + 1, x[i]);
}
}
__global__ void twice(float *y) { y[0] = 2 * y[1] * ours::launches; }
"""


@pytest.fixture
def program() -> Program:
    def number(n: int) -> Value:
        return Value(np.array([n, 1, 1], np.uint32).tobytes())

    def run(n: int) -> Run:
        steps = (
            FillStep(Address("sums"), 8, 0),
            KernelStep(
                0, (2, 3, 1), (32, 1, 1), 0, False, (Address("in"), Address("sums"), number(n))
            ),
            KernelStep(1, (1, 1, 1), (1, 1, 1), 0, False, (Address("sums"),)),
        )
        return Run(n, 1, 0, steps, (("sums", 8),), Address("sums"), 1)

    variables = (Variable("launches", "ours::launches", 4),)
    kernels = ("ours::add<float, 32u>", "twice")
    return Program((TEXT,), kernels, variables, (run(100), run(7)), "float32")


def test_a_recorded_sequence_runs_as_recorded(program: Program, cache: Path) -> None:
    kernel = Kernel(
        id="add", path=Path("add.cu"), family="user", text=TEXT, title="", change="", scope="grid",
        grid="one", walk="element", finish="none", block=32, blocks=(32,), program=program,
    )  # fmt: skip
    case = Case(kernel, reduction_of("sum", "float32"), 32, 1)
    with CpuBackend(cache=cache, hazards=True) as cpu:
        for n in (7, 100, 100):
            plan = case.plan(n)
            programs = programs_of(cpu, {case: plan})[case]
            x = np.arange(1, n + 1, dtype=np.float32)
            bound = Bound(cpu, plan, programs, cpu.upload(x))
            for _ in range(2):  # the variable counts from its first value again
                bound.poison()
                bound.run()
                assert bound.results() == [n * (n + 1)]
            bound.release()


def test_kernels_are_found_by_their_names() -> None:
    symbols = [
        "_ZN2ns36_GLOBAL__N__47d5ad35_4_a_cu__Z3ovlPf3redIfLj512ELb0EEEvPKT_PS2_j",
        "_ZN2ns36_GLOBAL__N__47d5ad35_4_a_cu__Z3ovlPf3redIfLj512ELb1EEEvPKT_PS2_j",
        "_ZN2ns5plainEPKf", "_Z3ovlPi",
    ]  # fmt: skip
    assert demangled(symbols[2]) == "ns::plain"
    assert symbol_of("ns::red<float, 512u, true>", symbols) == symbols[1]
    assert symbol_of("plain", symbols) == symbols[2]
    assert symbol_of("ovl", symbols) == symbols[3]
    assert symbol_of("other", symbols) is None
    assert Source("", "", Path()).kernels == ()
