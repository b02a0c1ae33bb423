"""Files without a header that are right on some condition: it is found, said, and kept to."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from cudareduce.results.store import load
from tests.conftest import ROOT, read_result

Call = Callable[..., tuple[int, str, str]]
SHAPES = ROOT / "tests/foreign_shapes"
QUADS = SHAPES / "quads_without_rest.cu"
MAXIMUM = SHAPES / "largest_by_name.cu"
FIXED = SHAPES / "fixed_count_stride.cu"
CONDITIONS = ["n is a multiple of 4", "its input is aligned to 16 bytes"]
COVERS = """__global__ void sums(const int *values, int *total, int n)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < n) atomicAdd(total, values[k]);
}
"""
#: Above this size the tail is lost, and up to it what is left of the count over four.
SHORT_QUADS = """__global__ void quads(const int *values, int *total, int n)
{
    unsigned short quads = n / 4;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < quads; k += gridDim.x * blockDim.x)
        for (int part = 0; part < 4; ++part) atomicAdd(total, values[4 * k + part]);
}
"""


@pytest.mark.long
def test_a_condition_is_found_and_stored(cudareduce: Call, tmp_path: Path) -> None:
    table, stored = tmp_path / "run.csv", tmp_path / "run.json"
    files = ("--csv", table, "--json", stored)
    code, out, _ = cudareduce("bench", QUADS, "--n", "4096,4097", "--backend", "cpu", *files)
    assert code == 0, out
    assert f"quads_without_rest: right if {' and '.join(CONDITIONS)}" in out
    assert "quads_without_rest: skipped, is right if n is a multiple of 4, not 4097" in out
    right, skipped = read_result(stored.read_text())["records"]
    assert (right["verdict"], right["conditions"]) == ("pass", CONDITIONS)
    assert (skipped["verdict"], skipped["conditions"]) == ("skip", [])
    row = next(csv.DictReader(table.read_text().splitlines()))
    assert row["conditions"] == "; ".join(CONDITIONS)
    assert [record.conditions for record in load(stored).records] == [tuple(CONDITIONS), ()]


@pytest.mark.slow
def test_strict_accepts_only_requested_conditions(cudareduce: Call) -> None:
    ask = ("verify", "--n", 65536, "--backend", "cpu", "--quiet", "--strict")
    assert cudareduce(*ask, QUADS)[0] == 3
    assert cudareduce(*ask, FIXED, "--sizes-only")[0] == 0
    code, out, _ = cudareduce(*ask, SHAPES / "unguarded_second_half.cu", "--multiple-of", 512)
    assert code == 0, out
    assert "right if n is a multiple of 512" in out


@pytest.mark.long
def test_the_users_condition_holds_of_every_size(cudareduce: Call) -> None:
    ask = ("verify", QUADS, "--backend", "cpu", "--quiet")
    assert cudareduce(*ask, "--multiple-of", 3)[0] == 2  # computes no reduction of them
    code, out, _ = cudareduce(*ask, "--multiple-of", 8, "--n", "1000,1004", "--sizes-only")
    assert code == 0
    assert "right if n is a multiple of 8, not 1004" in out


def test_sizes_only_takes_sizes(cudareduce: Call) -> None:
    code, _, err = cudareduce("verify", FIXED, "--sizes-only", "--backend", "cpu")
    assert code == 2
    assert "--sizes-only takes the sizes of --n" in err


@pytest.mark.long
@pytest.mark.parametrize(("nan", "code"), [("propagate", 3), ("drop", 0)])
def test_the_convention_for_nan(cudareduce: Call, nan: str, code: int) -> None:
    ask = ("verify", MAXIMUM, "--n", 1000, "--sizes-only", "--backend", "cpu", "--quiet")
    done, out, _ = cudareduce(*ask, "--nan", nan)
    assert done == code, out


def test_a_package_kernel_keeps_its_own(cudareduce: Call) -> None:
    ask = ("verify", "reduce_shuffle", "--op", "max", "--n", 1000, "--backend", "cpu")
    code, out, err = cudareduce(*ask, "--nan", "drop", "--multiple-of", 7)
    assert code == 0, out
    assert "--multiple-of, --nan have no effect here: no additional kernel is named" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (COVERS, ("--grid", 16), "it has at most 4096 elements"),
        (SHORT_QUADS, (), "n is a multiple of 4 and it has at most 65536 elements"),
    ],
)
def test_a_largest_size_is_a_condition(
    cudareduce: Call, tmp_path: Path, text: str, options: tuple[object, ...], said: str
) -> None:
    path = tmp_path / "theirs.cu"
    path.write_text(text)
    code, out, _ = cudareduce("verify", path, "--backend", "cpu", "--quiet", *options)
    assert code == 0, out
    assert f"right if {said}" in out


@pytest.mark.long
def test_a_number_that_is_no_whole_block(cudareduce: Call) -> None:
    """An access out of bounds is no precondition, unless the user names the sizes."""
    ten = SHAPES / "ten_elements.cu"
    code, out, _ = cudareduce("verify", ten, "--backend", "cpu")
    assert code == 3
    assert "invalid access" in out
    code, out, _ = cudareduce("verify", ten, "--backend", "cpu", "--sizes-only", "--n", 10)
    assert code == 0
    assert "right if n is 10" in out


@pytest.mark.long
def test_no_precondition_is_inferred_for_a_kernel_with_front_matter(
    cudareduce: Call, tmp_path: Path
) -> None:
    path = tmp_path / "quads.cu"
    header = '/*+++\ntitle = "Q"\nchange = "c"\nscope = "grid"\ngrid = "cover"\nwalk = "tile"\n'
    header += 'finish = "atomic"\nblock = 256\nblocks = [256]\nitems = 4\nops = ["sum"]\n+++*/\n'
    path.write_text(
        header
        + """extern "C" __global__ void quads(const In *in, Out *out, size_t n)
{
    size_t k = size_t(blockIdx.x) * BLOCK + threadIdx.x;
    if (k < n / 4)
        for (int part = 0; part < 4; ++part)
            Op::atomic(out, Op::lift(in[4 * k + part], 4 * k + part));
}
"""
    )
    ask = ("verify", path, "--dtype", "int32", "--backend", "cpu", "--quiet")
    assert cudareduce(*ask)[0] == 3
    code, out, _ = cudareduce(*ask, "--multiple-of", 4)
    assert code == 0, out
    assert "right if n is a multiple of 4" in out


@pytest.mark.long
def test_any_index_of_equal_extremes_is_right_on_a_condition(cudareduce: Call) -> None:
    file = FIXED.parent / "place_as_wide_as_answers_of_the_last.cu"
    ask = ("verify", file, "--n", "1, 257", "--rows", 3, "--backend", "cpu", "--quiet")
    code, out, _ = cudareduce(*ask)
    assert code == 0, out
    assert "right if none of its elements is NaN and of equal extremes any will do" in out
    assert cudareduce(*ask, "--strict")[0] == 3
