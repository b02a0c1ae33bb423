"""Kernels without host code: launched until they are recognised, and as options say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudareduce.catalog.kernel import Kernel
from cudareduce.errors import UsageError
from cudareduce.external.files import ExternalFiles
from cudareduce.external.options import LaunchOptions, Requested

#: Each launches kernels many times on the emulator until their roles are known.
pytestmark = pytest.mark.long

Call = Callable[..., tuple[int, str, str]]

TWO = """
__global__ void first(const float *x, float *partial, int n)
{
    __shared__ float s[256];
    float a = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        a += x[i];
    s[threadIdx.x] = a;
    __syncthreads();
    for (int k = 128; k > 0; k /= 2) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) partial[blockIdx.x] = s[0];
}
__global__ void second(const float *partial, float *out, int count)
{
    float a = 0;
    for (int i = threadIdx.x; i < count; i += 32) a += partial[i];
    for (int k = 16; k > 0; k /= 2) a += __shfl_down_sync(~0u, a, k);
    if (threadIdx.x == 0) *out = a;
}
"""
TEMPLATE = """
struct Larger { template <class T> __device__ T operator()(T a, T b) { return a > b ? a : b; } };
template <class T, class Op>
__global__ void fold(const T *__restrict__ in, T *out, int n, Op op)
{
    T best = in[0];
    for (int i = 0; i < n; i++) best = op(best, in[i]);
    if (threadIdx.x == 0) *out = best;
}
"""
NO_COUNT = """
__global__ void sum(const int *in, int *out)
{
    atomicAdd(out, in[blockIdx.x * blockDim.x + threadIdx.x]);
}
"""
EXCLUSIVE_OR = """
__global__ void parity(const unsigned *in, unsigned *out, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicXor(out, in[i]);
}
"""
ARRIVALS = """
__global__ void sum(const float *in, float *out, unsigned *arrived, int n)
{
    __shared__ float s;
    if (threadIdx.x == 0) s = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&s, in[i]);
    __syncthreads();
    if (threadIdx.x != 0) return;
    out[blockIdx.x] = s;
    __threadfence();
    if (atomicAdd(arrived, 1) != gridDim.x - 1) return;
    float all = 0;
    for (int k = 0; k < gridDim.x; k++) all += ((volatile float *)out)[k];
    out[0] = all;
}
"""
VARIABLE = """
__device__ int total = 0;
__global__ void sum(const int *in, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&total, in[i]);
}
"""


def kernels_of(
    text: str, tmp_path: Path, requested: Requested | None = None, **options: Any
) -> list[Kernel]:
    path = tmp_path / "file.cu"
    path.write_text(text)
    files = ExternalFiles(
        LaunchOptions(**options), lambda _: None, (), tmp_path / "cache", requested or Requested(),
        sizes=(96, 1000, 4096),
    )  # fmt: skip
    return list(files(path, text))


def launches(kernel: Kernel, n: int) -> list[tuple[int, int]]:
    """Grid and block of each launch on `n` elements."""
    assert kernel.program is not None
    run = kernel.program.run(n, 1)
    assert run is not None
    return [(step.grid[0], step.block[0]) for step in run.launches]


def test_a_chain_reduces_what_the_first_kernel_leaves(tmp_path: Path) -> None:
    [kernel] = kernels_of(TWO, tmp_path, chain=("first,second",))
    assert (kernel.ops, kernel.finish) == (("sum",), "none")
    assert launches(kernel, 4096) == [(16, 256), (1, 256)]


def test_partial_results_are_relaunched_until_one_is_left(tmp_path: Path) -> None:
    [kernel] = kernels_of(TWO, tmp_path, entry=("first",), finish="relaunch")
    assert launches(kernel, 4096) == [(16, 256), (1, 256)] and kernel.finish == "none"


def test_partial_results_are_relaunched_in_one_block(tmp_path: Path) -> None:
    [kernel] = kernels_of(TWO, tmp_path, entry=("first",), finish="relaunch_one_block")
    assert launches(kernel, 4096) == [(16, 256), (1, 256)] and kernel.ops == ("sum",)


def test_finish_none_is_refused_for_partial_results(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="leaves partial results, so --finish none"):
        kernels_of(TWO, tmp_path, entry=("first",), finish="none")


def test_a_template_gets_a_functor_of_the_file(tmp_path: Path) -> None:
    [kernel] = kernels_of(TEMPLATE, tmp_path)
    assert kernel.program is not None and kernel.program.kernels == ("fold<float, Larger>",)
    assert kernel.ops == ("max",) and launches(kernel, 1000) == [(1, 256)]


def test_a_template_is_instantiated_with_the_requested_type(tmp_path: Path) -> None:
    [kernel] = kernels_of(TEMPLATE, tmp_path, Requested(dtype=("float64",)))
    assert kernel.dtypes == ("float64",)


def test_a_kernel_without_a_length_gets_whole_blocks(tmp_path: Path) -> None:
    [kernel] = kernels_of(NO_COUNT, tmp_path)
    assert kernel.precondition.multiple == 256
    assert kernel.program is not None and (1024, 1) in kernel.program.shapes


def test_an_operator_is_recognised_if_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"not recognised as a reduction.* --arg in=in --arg out"):
        kernels_of(EXCLUSIVE_OR, tmp_path)
    [kernel] = kernels_of(EXCLUSIVE_OR, tmp_path, Requested(op_expr="a ^ b", identity="0"))
    assert kernel.program is not None and kernel.program.fit == 1


def test_a_counter_is_cleared_by_the_caller(tmp_path: Path) -> None:
    [kernel] = kernels_of(ARRIVALS, tmp_path)
    assert kernel.finish == "none", kernel.program
    [kernel] = kernels_of(ARRIVALS, tmp_path, arg=("arrived=zeroed:4", "out=out", "in=in"))
    assert kernel.finish == "none"


def test_the_result_may_be_a_variable(tmp_path: Path) -> None:
    [kernel] = kernels_of(VARIABLE, tmp_path)
    assert kernel.ops == ("sum",) and kernel.program is not None
    assert kernel.program.runs[0].result.buffer.startswith("v")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"entry": ("third",)}, "has no kernel 'third'; it has: first, second"),
        ({"entry": ("first<1>(0); exit(0); first",)}, "is no kernel: write NAME"),
        ({"arg": ("m=1",)}, "no parameter m; there are: x, partial, n"),
        ({"arg": ("third.n=1",)}, "no kernel third; it has: first, second"),
    ],
)
def test_an_unknown_kernel_or_parameter_is_a_usage_error(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words.replace("(", r"\(").replace(")", r"\)")):
        kernels_of(TWO, tmp_path, **options)


FIXED = """
#define N 96
__global__ void sum(int *in, int *out)
{
    __shared__ int s[N];
    s[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    if (threadIdx.x != 0) return;
    int all = 0;
    for (int k = 0; k < N; k++) all += s[k];
    *out = all;
}
"""
COUNTED = """
__device__ float partials[8];
__device__ unsigned arrived;
__global__ void sum(const float *in, float *out, int n)
{
    float a = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        a += in[i];
    __shared__ float s;
    if (threadIdx.x == 0) s = 0;
    __syncthreads();
    atomicAdd(&s, a);
    __syncthreads();
    if (threadIdx.x != 0) return;
    partials[blockIdx.x] = s;
    __threadfence();
    if (atomicInc(&arrived, gridDim.x - 1) != gridDim.x - 1) return;
    float all = 0;
    for (int k = 0; k < gridDim.x; k++) all += ((volatile float *)partials)[k];
    *out = all;
}
"""
RACY = """
__global__ void shifted(const float *in, float *out, int n)
{
    __shared__ float s[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? in[i] : 0;
    if (i < n) out[i] = s[threadIdx.x ^ 1];
}
"""
CONCEPT = """
template <class T> concept Number = sizeof(T) > 1;
template <Number T> __global__ void sum(const T *in, T *out, int n)
{
    T a = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) a += in[i];
    atomicAdd(out, a);
}
"""


def test_a_constant_of_the_code_is_the_number_of_elements(tmp_path: Path) -> None:
    [kernel] = kernels_of(FIXED, tmp_path)
    assert kernel.precondition.sizes == (96,) and launches(kernel, 96) == [(1, 96)]


def test_a_grid_has_as_many_blocks_as_a_variable_has_elements(tmp_path: Path) -> None:
    [kernel] = kernels_of(COUNTED, tmp_path)
    assert launches(kernel, 4096) == [(8, 256)]


def test_a_parameter_of_a_concept_gets_a_type(tmp_path: Path) -> None:
    [kernel] = kernels_of(CONCEPT, tmp_path)
    assert kernel.program is not None and kernel.program.kernels == ("sum<float>",)


@pytest.mark.slow
def test_a_racy_kernel_is_wrong_whatever_it_computes(cudareduce: Call, tmp_path: Path) -> None:
    path = tmp_path / "two.cu"
    path.write_text(CONCEPT + RACY)
    code, out, err = cudareduce("verify", path, "--backend", "cpu")
    assert code == 3 and " right " in out and "WRONG: shifted: " in out, out + err
    assert "data race in shared memory" in out


@pytest.mark.long
def test_another_operator_than_a_file_computes_is_named_at_once(
    cudareduce: Call, tmp_path: Path
) -> None:
    path = tmp_path / "adds.cu"
    path.write_text(
        "__global__ void adds(const float *in, float *out, int n) {\n"
        "    for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(out, in[i]);\n}\n"
    )
    code, out, _ = cudareduce("verify", path, "--op", "max", "--n", 1000, "--backend", "cpu")
    assert code == 3
    assert "WRONG: this kernel adds: its results on small inputs are those of the sum, not" in out
