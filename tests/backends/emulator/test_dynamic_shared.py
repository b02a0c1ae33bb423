"""Where dynamic shared memory ends: to the byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]

KERNEL = """__global__ void tree(const int *in, int *out, int n) {
    extern __shared__ int s[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k /= 2) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("nbytes", [256, 255, 252, 244, 240])
def test_writes_beyond_dynamic_shared_memory_are_detected(
    cudareduce: Call, tmp_path: Path, nbytes: int
) -> None:
    path = tmp_path / "tree.cu"
    path.write_text(KERNEL)
    options = ("--block", 64, "--shared", nbytes, "--backend", "cpu")
    code, out, _ = cudareduce("verify", path, "--n", 700, *options)
    assert code == (0 if nbytes == 256 else 3), out
    if 240 < nbytes < 256:
        text = f"past the end of its shared memory, of which {nbytes} bytes are dynamic"
        assert text in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nbytes", "said"),
    [(128, "0 bytes past the end of its dynamic shared memory (128 bytes)"),
     (0, "no buffer (stack overflow or a wild pointer, or dynamic shared memory of no bytes)")],
)  # fmt: skip
def test_too_little_dynamic_shared_memory_is_reported(
    cudareduce: Call, tmp_path: Path, nbytes: int, said: str
) -> None:
    path = tmp_path / "tree.cu"
    path.write_text(KERNEL)
    options = ("--block", 64, "--shared", nbytes, "--backend", "cpu")
    code, out, _ = cudareduce("verify", path, "--n", 700, *options)
    assert code == 3 and said in out
