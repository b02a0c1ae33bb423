"""Blocks of a guessed launch that have nothing to do are told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("small")
#: A thread adds so many elements, which nothing but the loop tells.
TILES = """__global__ void tiles(const float *in, float *out, size_t n)
{
    float own = 0;
    size_t first = blockIdx.x * size_t(%s);
    for (size_t k = 0; k < %s; ++k) {
        size_t at = (first + k) * blockDim.x + threadIdx.x;
        if (at < n) own += in[at];
    }
    if (first * blockDim.x < n) atomicAdd(out, own);
}
"""
SLOW = pytest.mark.slow
HALF = "half of its blocks read nothing: --grid or --items say better"


@pytest.mark.long
@pytest.mark.parametrize(
    ("tile", "options", "told"),
    [
        ("1", (), ""),
        ("2", (), HALF),
        pytest.param("4", (), "3 of 4 of its blocks read nothing: --grid or --items say better",
                     marks=SLOW),
        pytest.param("2", ("--items", "2"), "", marks=SLOW),
        pytest.param("2", ("--grid", "cover"),
                     "half of its blocks read nothing: --items says better", marks=SLOW),
        ("2", ("--grid", "cover", "--items", "1"), ""),  # as the user wants it
    ],
)  # fmt: skip
def test_blocks_that_read_nothing(
    cudareduce: Call, tmp_path: Path, tile: str, options: tuple[str, ...], told: str
) -> None:
    path = tmp_path / "theirs.cu"
    path.write_text(TILES % (tile, tile))
    asked = ("--n", 2000, "--backend", "cpu", *options)
    code, out, _ = cudareduce("bench", path, *asked, "--quiet")
    assert code == 0, out
    assert f"theirs: {told}" in " ".join(out.split()) if told else "read nothing" not in out
