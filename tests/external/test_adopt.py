"""Roles, operator and launches of external files are observed, whatever names are used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cudareduce.catalog.kernel import Kernel
from cudareduce.catalog.program import Address, FillStep
from cudareduce.errors import UsageError
from cudareduce.external.files import ExternalFiles
from cudareduce.external.identify import _overflows
from cudareduce.external.options import LaunchOptions
from cudareduce.reduction.dtypes import DTYPES

BLOCK_SUMS = """
__global__ void maximum(const float *b, float *a, int threads) {
  __shared__ float c[256];
  int i = blockIdx.x * 256 + threadIdx.x;
  c[threadIdx.x] = i < threads ? b[i] : 0.0f;
  __syncthreads();
  for (int s = 128; s > 0; s /= 2) {
    if (threadIdx.x < s) c[threadIdx.x] += c[threadIdx.x + s];
    __syncthreads();
  }
  if (threadIdx.x == 0) a[blockIdx.x] = c[0];
}
"""
HOST = """
void start(const float *in, float *out, int n) { maximum<<<(n + 255) / 256, 256>>>(in, out, n); }
"""
PEAK = """
__global__ void peak(const float *x, float *y, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float best = -3.4e38f;
  for (int k = 0; k < cols; k++) if (x[r * cols + k] > best) best = x[r * cols + k];
  y[r] = best;
}
"""
ALIAS = """
using P = double *;
__global__ void f(P u, P v, unsigned k) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < k; i += gridDim.x * blockDim.x)
    atomicAdd(v, u[i] * u[i]);
}
void g(P a, P b, unsigned n) { f<<<4, 64>>>(a, b, n); }
"""
PARTIALS_IN_A_VARIABLE = """
__global__ void f(const float *in, float *out, int n) {
  float s = 0;
  for (int i = blockIdx.x; i < n; i += gridDim.x) s += in[i];
  out[blockIdx.x] = s;
}
__device__ float partials[8];
void g(const float *in, float *out, int n) {
  float *p;
  cudaGetSymbolAddress((void **)&p, partials);
  f<<<8, 1>>>(in, p, n);
  f<<<1, 1>>>(p, out, 8);
}
"""
TRANSPOSE = """
__global__ void t(const float *x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[n - 1 - i];
}
void g(const float *x, float *y, int n) { t<<<(n + 255) / 256, 256>>>(x, y, n); }
"""


def adopted(text: str, tmp_path: Path) -> list[Kernel]:
    path = tmp_path / "file.cu"
    path.write_text(text)
    return list(ExternalFiles(LaunchOptions(), lambda _: None, (), tmp_path / "cache")(path, text))


def test_partial_sums_of_blocks_are_a_sum_whatever_the_kernel_is_called(tmp_path: Path) -> None:
    [kernel] = adopted(BLOCK_SUMS + HOST, tmp_path)
    program = kernel.program
    assert program is not None and program.computes is not None
    assert (program.computes.op.name, kernel.finish) == ("sum", "host")
    run = program.run(1000, 1)
    assert run is not None and run.count == 4
    assert program.run(65537, 1).launches[0].grid == (257, 1, 1)  # type: ignore[union-attr]
    assert "maximum<<<" in program.summary and "b: input, a: output" in program.summary


@pytest.mark.long
def test_a_caller_that_is_unknown_may_clear_the_result(tmp_path: Path) -> None:
    [kernel] = adopted(ALIAS, tmp_path)
    assert kernel.map is not None and kernel.map.expression == "a * a"
    assert kernel.dtypes == ("float64",) and "sets the result to 0" in kernel.program.summary  # type: ignore[union-attr]
    for run in kernel.program.runs:  # type: ignore[union-attr]
        assert run.steps[0] == FillStep(Address(run.result.buffer), 8, 0)  # and no more of it


@pytest.mark.long
def test_a_variable_that_only_the_host_names_is_kept(tmp_path: Path) -> None:
    [kernel] = adopted(PARTIALS_IN_A_VARIABLE, tmp_path)
    assert kernel.ops == ("sum",) and kernel.finish == "none"
    assert kernel.program is not None and kernel.program.fit == 1


def test_a_kernel_without_host_code_is_launched_until_it_is_recognised(tmp_path: Path) -> None:
    [kernel] = adopted(PEAK, tmp_path)
    assert kernel.ops == ("max",) and kernel.scope == "rows"
    assert kernel.program is not None and (33, 257) in kernel.program.shapes


@pytest.mark.long
def test_what_is_no_reduction_is_refused_and_never_a_wrong_sum(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not recognised as a reduction"):
        adopted(TRANSPOSE, tmp_path)


@pytest.mark.parametrize(
    ("dtype", "elements", "overflows"),
    [
        ("float32", [2.0] * 100, None), ("float32", [2.0] * 128, False),
        ("int32", [2.0] * 50, None), ("int32", [2.0] * 60, True),
        ("float64", [0.0] + [2.0] * 1024, False),
    ],
)  # fmt: skip
def test_a_product_that_exceeds_its_type_identifies_nothing(
    dtype: str, elements: list[float], overflows: bool | None
) -> None:
    assert _overflows(np.array(elements), DTYPES[dtype]) is overflows
