"""Where nobody says how many elements, a file of others is measured with as many as it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cudareduce.bench.usual import at_its_size
from cudareduce.launch.case import Case
from cudareduce.library.condition import Condition
from cudareduce.library.foreign import adopt
from cudareduce.library.guesses import Guesses
from cudareduce.reduction.operators import reduction_of

Call = Callable[..., tuple[int, str, str]]
ONE_BLOCK = """__global__ void in_one_block(const int *x, int *total, int n)
{
    __shared__ int s[256];
    int t = threadIdx.x;
    s[t] = t < n ? x[t] : 0;
    for (int stride = 128; stride > 0; stride /= 2) {
        __syncthreads();
        if (t < stride) s[t] += s[t + stride];
    }
    if (t == 0) *total = s[0];
}
"""
ANY = """__global__ void by_atomics(const int *x, int *total, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(total, x[i]);
}
"""
HOST = "int main() { in_one_block<<<1, 256>>>(x, total, 256); }\n"
USUAL = (2**25,)


def asking(condition: Condition) -> Case:
    (kernel,) = adopt(Path("theirs.cu"), ANY, Guesses()).kernels
    return Case(replace(kernel, asks=condition), reduction_of("sum", "int32"), 256, 1)


@pytest.mark.parametrize(
    ("condition", "size"),
    [
        (Condition(), None),
        (Condition(multiple=512), None),
        (Condition(multiple=768), 2**25 // 768 * 768),
        (Condition(most=70000), 70000),
        (Condition(multiple=768, most=70000), 69888),
        (Condition(sizes=(33792,)), 33792),
    ],
)
def test_the_next_size_that_it_takes(condition: Condition, size: int | None) -> None:
    case = asking(condition)
    only = None if size is None else frozenset([size])
    assert at_its_size(case, USUAL) == replace(case, only=only)


def test_kernels_of_the_package_stay_where_they_are() -> None:
    case = asking(Condition(most=1000))
    own = replace(case, kernel=replace(case.kernel, guessed=None))
    assert at_its_size(own, USUAL) is own


@pytest.mark.long
def test_each_kernel_of_a_file_has_a_table_with_its_size(cudareduce: Call, tmp_path: Path) -> None:
    path = tmp_path / "theirs.cu"
    path.write_text(ONE_BLOCK + ANY + HOST)
    code, out, err = cudareduce("bench", path, "--backend", "cpu")
    assert code == 0, out + err
    usual, own = out.split("sum of 256 int32")
    assert "sum of 33 554 432 (2^25) int32" in usual
    assert ("by_atomics" in usual, "by_atomics" in own) == (True, False)
    assert ("in_one_block" in usual, "in_one_block" in own) == (False, True)
    code, out, _ = cudareduce("bench", path, "--backend", "cpu", "--n", 2**20)
    assert code == 0
    assert "in_one_block: skipped, is right if it has at most 256 elements, not 1048576" in out
