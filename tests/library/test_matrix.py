"""What tells a kernel that goes by columns from one that goes by rows."""

from pathlib import Path

import pytest

from cudareduce.library.foreign import Adopted, adopt
from cudareduce.library.guesses import Guesses

BY_THREADS = """
__global__ void k(const float *a, float *b, int rows, int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c < cols) { float s = 0; for (int r = 0; r < rows; ++r) s += a[r * cols + c]; b[c] = s; }
}"""
BY_BLOCKS = """
__global__ void k(const float *a, float *b, int m, int n) {
    float s = 0;
    if (blockIdx.x >= n) return;
    for (int r = threadIdx.x; r < m; r += blockDim.x) s += a[r * n + blockIdx.x];
    atomicAdd(&b[blockIdx.x], s);
}"""
IN_A_PLANE = """
__global__ void k(const int *a, int m, int n, int *b) {
    __shared__ int t[32][33];
    int x = threadIdx.x + blockDim.x * blockIdx.x, s = 0;
    if (x < n) for (int i = threadIdx.y; i < m; i += blockDim.y) s += a[i * n + x];
    t[threadIdx.y][threadIdx.x] = s;
    __syncthreads();
    if (threadIdx.y == 0 && x < n) for (int i = 0; i < blockDim.y; ++i) b[x] += t[i][threadIdx.x];
}"""
ROWS = """
__global__ void k(const float *a, float *b, int m, int n) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < m) { float s = 0; for (int c = 0; c < n; ++c) s += a[r * n + c]; b[r] = s; }
}"""
OF_BATCHES = """
__global__ void k(const float *a, int batch, int filters, int spatial, float *b) {
    int f = blockIdx.x * blockDim.x + threadIdx.x;
    float s = 0;
    if (f >= filters) return;
    for (int j = 0; j < batch; ++j)
        for (int i = 0; i < spatial; ++i) s += a[j * filters * spatial + f * spatial + i];
    b[f] = s / (batch * spatial);
}"""


def adopted(text: str) -> Adopted:
    return adopt(Path("theirs.cu"), text, Guesses())


@pytest.mark.parametrize(
    ("text", "grid", "counts"),
    [
        (BY_THREADS, "thread_per_row", "rows the elements of a column, cols=rows"),
        (BY_BLOCKS, "block_per_row", "m the elements of a column, n=rows"),
        (IN_A_PLANE, "warp_per_row", "m the elements of a column, n=rows"),
    ],
)
def test_columns(text: str, grid: str, counts: str) -> None:
    found = adopted(text)
    (kernel,) = found.kernels
    assert (kernel.columns, kernel.grid) == (True, grid)
    assert f"counts with {counts}" in found.said[0]


@pytest.mark.parametrize("text", [ROWS, OF_BATCHES])
def test_rows(text: str) -> None:
    (kernel,) = adopted(text).kernels
    assert (kernel.columns, kernel.grid) == (False, "thread_per_row")


@pytest.mark.parametrize("text", [BY_THREADS, BY_BLOCKS, ROWS])
def test_one_count_of_rows_and_columns_makes_a_square(text: str) -> None:
    two = adopted(text).kernels[0]
    text = text.replace("int rows, int cols", "int n").replace("int m, int n", "int n")
    one = adopted(text.replace("< rows", "< n").replace("cols", "n").replace("< m", "< n")
                  .replace(">= m", ">= n")).kernels[0]  # fmt: skip
    assert (two.asks.square, one.asks.square) == (False, True)
    assert (one.columns, one.grid) == (two.columns, two.grid)
