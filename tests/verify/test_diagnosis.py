"""Explanations of wrong results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cudareduce.backends.emulator.program import merged_races
from cudareduce.verify.diagnosis import describe

Call = Callable[..., tuple[int, str, str]]


BLOCK_SUM = """
__global__ void add(const float *in, float *partial, unsigned n)
{
    __shared__ float s[512];
    const unsigned t = threadIdx.x, i = blockIdx.x * TILE + t;
    s[t] = i < n ? in[i] : 0.0f;
    s[t + 256] = i + 256 < n ? in[i + 256] : 0.0f;
    __syncthreads();
    for (unsigned h = 256; h > LAST; h /= 2) {
        if (t < h) s[t] += s[t + h];
        BARRIER
    }
    if (t == 0) partial[blockIdx.x] = s[0];
}
void launch(const float *in, float *p, unsigned n) { add<<<(n + 511) / 512, 256>>>(in, p, n); }
"""


@pytest.mark.parametrize(
    ("n", "count", "op", "expected"),
    [
        (8192, lambda k: k % 2048 < 256, "sum",
         "elements 256 to 2047 of every 2048 are never added"),
        (1000, lambda k: 2 if 256 <= k < 512 else k < 768, "sum",
         "the tiles of blocks overlap: the last 232 of 1000 elements are never added and "
         "elements 256 to 511 are added twice"),
        (1000, lambda k: k < 999, "sum", "the last element is never added"),
        (1000, lambda k: 512 <= k < 1000, "sum",
         "only elements 512 to 999 are added: the results of all other blocks are lost or "
         "overwritten"),
        (1000, lambda k: k % 4 != 0, "max", "elements 0, 4, 8 and so on are ignored"),
        (1000, lambda k: 1 + (k % 256 == 255), "sum", "element 255 of every 256 is added twice"),
        (64, lambda _: 0, "sum", "no element is added"),
        (64, lambda _: 3, "mean", "every element is added 3 times"),
        (64, lambda k: k % 8 == 7, "sum",
         "only the largest element of several is added: the result is their maximum"),
        (64, lambda _: 1, "sum", ""),
    ],
)  # fmt: skip
def test_missing_and_repeated_elements_are_described(
    n: int, count: Callable[[int], int], op: str, expected: str
) -> None:
    counts = np.array([int(count(k)) for k in range(n)])
    assert describe(counts, 512, op) == expected


def verified(cudareduce: Call, tmp_path: Path, tile: int, last: int, barrier: str) -> str:
    path = tmp_path / "mine.cu"
    text = BLOCK_SUM.replace("TILE", str(tile)).replace("LAST", str(last))
    path.write_text(text.replace("BARRIER", barrier))
    code, out, err = cudareduce("verify", path, "--backend", "cpu", "--n", 1024, "--sizes-only")
    assert code == (0 if (tile, last, barrier) == (512, 0, "__syncthreads();") else 3), out + err
    return out


@pytest.mark.long
@pytest.mark.parametrize(
    ("tile", "last", "expected"),
    [
        (512, 0, ""),
        (256, 0, "the tiles of blocks overlap: the last 256 of 1024 elements are never added and "
         "elements 256 to 511 are added twice"),
        (512, 128, "elements 1 to 255 of every 256 are never added"),
    ],
)  # fmt: skip
def test_the_cause_of_a_wrong_result_is_named(
    cudareduce: Call, tmp_path: Path, tile: int, last: int, expected: str
) -> None:
    assert expected in verified(cudareduce, tmp_path, tile, last, "__syncthreads();")


@pytest.mark.long
def test_a_race_between_warps_needs_a_block_barrier(cudareduce: Call, tmp_path: Path) -> None:
    out = verified(cudareduce, tmp_path, 512, 0, "")
    assert "mine.cu:10: data race in shared memory" in out
    assert "no __syncthreads() between them" in out
    assert "__syncwarp" not in out


def test_races_of_two_lines_are_merged_to_the_widest_scope() -> None:
    race = "a.cu:{}: data race in shared memory: write after read at a.cu:{}, no {}() between them"
    narrow, wide = race.format(3, 4, "__syncwarp"), race.format(4, 3, "__syncthreads")
    other = race.format(7, 7, "__syncwarp")
    assert merged_races([narrow, other, wide]) == [wide, other]
