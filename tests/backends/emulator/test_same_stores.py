"""Threads that store the same value to one address are no data race."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]

KERNEL = """__global__ void stores(const int *in, int *out, int n) {{
    __shared__ int sums[8], total;
    int t = threadIdx.x, i = blockIdx.x * 256 + t, v = i < n ? in[i] : 0;
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
    sums[t / 32] = {each};
    __syncthreads();
    v = 0;
    for (int k = 0; k < 8; k++) v += sums[k];
    total = {all};
    __syncthreads();
    if (t == 0) out[blockIdx.x] = total;
}}
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("each", "all_threads", "line"),
    [
        ("v", "v", 0),
        ("v + (t % 32 == 9)", "v", 5),
        ("v", "v + (t == 9)", 9),
    ],
    ids=["same", "other values in a warp", "other values in a block"],
)
def test_stores_to_one_place(
    cudareduce: Call, tmp_path: Path, each: str, all_threads: str, line: int
) -> None:
    path = tmp_path / "stores.cu"
    path.write_text(KERNEL.format(each=each, all=all_threads))
    code, out, _ = cudareduce("verify", path, "--n", 700, "--block", 256, "--backend", "cpu")
    assert code == (3 if line else 0), out
    assert (f"stores.cu:{line}: data race in shared memory: write by" in out) == bool(line)
