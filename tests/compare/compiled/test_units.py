"""The compiled units: one reduction for every architecture, all types and operators for one."""

from __future__ import annotations

from cudareduce.catalog.registry import load_registry
from cudareduce.compare.nvcc import jobs, main_reduction, sample_of, sample_reductions
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import OPERATORS, reduction_of

KERNELS = load_registry([]).kernels


def test_every_type_and_operator_that_a_kernel_takes_is_compiled() -> None:
    for kernel in KERNELS.values():
        taken = [
            reduction for op in OPERATORS for dtype in DTYPES
            if kernel.why_not(reduction := reduction_of(op, dtype)) is None
        ]  # fmt: skip
        some = [main_reduction(kernel), *sample_reductions(kernel)]
        for part in ("op", "dtype"):
            wanted = {getattr(reduction, part).name for reduction in taken}
            assert {getattr(reduction, part).name for reduction in some} == wanted, kernel.id


def test_the_number_of_compilations_is_limited() -> None:
    todo = jobs(list(KERNELS.values()), (75, 80, 90, 100, 120), 90)
    assert len({job.key for job in todo}) == len(todo) < 750
    assert {job.arch for job in todo if not job.main} == {90}


def test_the_sample_of_a_kernel_does_not_depend_on_others() -> None:
    one = KERNELS["reduce_v7_shuffle"]
    alone = [job.key for job in jobs([one], (90,), 90)]
    among = [job.key for job in jobs(list(KERNELS.values()), (90,), 90) if job.kernel is one]
    assert alone == among


def test_the_architecture_of_the_sample() -> None:
    assert sample_of((75, 90, 120)) == 90
    assert sample_of((75, 80)) == 80
    assert all(job.main for job in jobs([KERNELS["reduce_v0_baseline"]], (75, 80), 90))
