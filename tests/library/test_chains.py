"""Kernels of one file that are stages of one reduction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudareduce.errors import UsageError
from cudareduce.launch.plan import Problem, plan
from cudareduce.library.foreign import Adopted, adopt
from cudareduce.library.guesses import Guesses
from cudareduce.reduction.operators import reduction_of
from tests.conftest import ROOT

Call = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("small")
STAGES = """%s
__global__ void parts(const float *in, float *out, int n)
{
    float own = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n; k += gridDim.x * blockDim.x)
        own += in[k];
    for (int step = 16; step > 0; step /= 2) own += __shfl_down_sync(~0u, own, step);
    if (threadIdx.x == 0) out[blockIdx.x] = own;
}
__global__ void total(const float *in, float *out%s)
{
    float all = 0;
    for (int k = 0; k < %s; ++k) all += in[k];
    *out = all;
}
__global__ void atomic(const float *in, float *out, int n) { atomicAdd(out, in[threadIdx.x]); }
__global__ void doubles(const double *in, double *out, int n) { *out = in[0]; }
%s
"""
COUNTED = STAGES % ("", ", int n", "n", "%s")


def rows(text: str, **says: object) -> list[str]:
    return [kernel.id for kernel in made(text, **says).kernels]


def made(text: str, **says: object) -> Adopted:
    return adopt(Path("theirs.cu"), text, Guesses(**says))  # type: ignore[arg-type]


RUN = "void run(float *a, float *b, float *c, int n) { %s }"
BOTH = "parts<<<8, 32>>>(a, b, n); total<<<1, 1>>>(b, c, 8);"
APART = ["parts", "total", "atomic", "doubles"]
TOGETHER = ["parts+total", "atomic", "doubles"]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (RUN % BOTH, TOGETHER),
        ((RUN % BOTH) * 2, TOGETHER),
        (RUN % BOTH.replace("<<<1", "<<<dim3(1)"), TOGETHER),
        ("", APART),
        (RUN % BOTH.replace("(b, c", "(a, c"), APART),  # another one's work
        (RUN % BOTH.replace("<<<1", "<<<n"), APART),  # not clearly the last
        (RUN % BOTH + RUN % "total<<<1, 1>>>(a, b, n);", APART),  # also by itself
        (RUN % BOTH.partition(";")[0] + ";" + RUN % BOTH.partition(";")[2], APART),
        (RUN % BOTH.replace("parts", "atomic"), APART),  # which leaves no partials
        (RUN % BOTH.replace("total", "doubles"), APART),  # which does not read them
        (RUN % (BOTH + "parts<<<8, 32>>>(b, d, 8); total<<<1, 1>>>(d, c, 1);"), TOGETHER),
    ],
)  # fmt: skip
def test_stages_that_launches_tell(host: str, expected: list[str]) -> None:
    assert sorted(rows(COUNTED % host)) == sorted(expected)


def test_what_the_user_names_comes_first() -> None:
    text = COUNTED % (RUN % BOTH)
    assert rows(text, entries=("parts",)) == ["theirs"]
    assert rows(text, entries=("total",), chains=("parts, total",)) == ["parts+total", "total"]
    assert rows(COUNTED % "", chains=("parts,parts,total",)) == ["parts+parts+total"]


@pytest.mark.parametrize(
    ("chain", "message"),
    [
        ("parts", "--chain takes kernels with commas, as in --chain partials,total"),
        ("parts,", "--chain takes kernels with commas"),
        ("parts,nobody", "there is no __global__ function nobody; it has: parts, total"),
        ("atomic,total", "atomic leaves one value and no partials: give --chain without total"),
        ("parts,doubles", "doubles does not read what parts writes: their types or operators"),
    ],
)  # fmt: skip
def test_what_is_no_chain(chain: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        made(COUNTED % "", chains=(chain,))
    assert message in str(caught.value)


def shapes(text: str, n: int) -> list[tuple[object, ...]]:
    found = plan(made(text).kernels[0], Problem(reduction_of("sum", "float32"), n))
    return [(*p.unit, p.grid, p.block, p.n, p.source, p.target) for p in found.passes]


def test_each_stage_has_its_own_launch() -> None:
    text = COUNTED % (RUN % BOTH)
    assert shapes(text, 1000) == [
        ("only", 0, 8, 32, 1000, "in", "ping"), ("only", 1, 1, 1, 8, "ping", "out"),
    ]  # fmt: skip
    assert shapes(text, 33)[1] == ("only", 1, 1, 1, 2, "ping", "out")
    assert shapes(text, 0) == []
    user = made(text, block=64, grid=5).kernels[0]
    assert [(k.block, k.fixed_grid) for k in user.chain] == [(64, 5), (1, 1)]


def test_a_stage_that_reckons_with_the_blocks_before_it_gets_them_all() -> None:
    text = STAGES % ("#define BLOCKS 8", "", "BLOCKS", RUN % (
        "parts<<<BLOCKS, 32>>>(a, b, n); total<<<1, BLOCKS>>>(b, c);"
    ))  # fmt: skip
    assert [shape[2:5] for shape in shapes(text, 33)] == [(8, 32, 33), (1, 8, 8)]


@pytest.mark.long
def test_a_chain_is_a_row(cudareduce: Call) -> None:
    path = ROOT / "tests/foreign_shapes/two_stages.cu"
    code, out, err = cudareduce("bench", path, "--n", 5000, "--backend", "cpu")
    assert code == 0, out
    assert " two_stages      64       2   right" in out
    assert "Recorded from " in err
    assert "partial_sums<<<" in err and "sum_of_partials<<<" in err
    options = ("--chain", "partial_sums,sum_of_partials", "--grid", "3", "--block", "64")
    code, out, _ = cudareduce("bench", path, *options, "--n", 5000, "--backend", "cpu", "--quiet")
    assert code == 0, out
    assert " partial_sums+sum_of_partials       3       2   right" in out
