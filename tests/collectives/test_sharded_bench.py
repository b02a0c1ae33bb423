"""`bench --gpus` as a user calls it, without GPUs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cudareduce.collectives.inputs import SHARDED_OPS
from tests.collectives.conftest import Ranks
from tests.conftest import read_result

TABLE = """\
sum of 5 000 float32 on 2 ranks, CPU emulator: results only, nothing is timed

 kernel             engine       result  distinct  calls
 ───────────────────────────────────────────────────────
 auto               peer:fused   right       1/10     80
 auto               peer:behind  right       1/10     80
 auto               host         right       1/10     80
 reduce_v7_shuffle  peer:behind  right       1/10     80
 reduce_v7_shuffle  host         right       1/10     80

reduce_v7_shuffle peer:fused: skipped: takes several launches
auto: reduce_tiles_scalar, 256 threads x 16 elements
right: the same bits on all ranks
"""


@pytest.mark.slow
def test_a_sharded_array_has_a_table_of_kernels_and_exchanges(ranks: Ranks, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    code, out, err = ranks("bench", "auto", "reduce_v7_shuffle", "--gpus", 2, "--n", 5000,
                           "--backend", "cpu", "--json", path)  # fmt: skip
    assert (code, out.strip()) == (0, TABLE.strip()), err
    records = read_result(path.read_text())["records"]
    assert {r["ranks"] for r in records} == {2}
    assert {r["time_us"] for r in records} == {None}


@pytest.mark.long
@pytest.mark.parametrize(
    "op", ["max", *(pytest.param(op, marks=pytest.mark.slow) for op in ("mean", "prod", "argmin"))]
)
def test_operators_are_right(ranks: Ranks, op: str) -> None:
    code, out, err = ranks("bench", "auto", "--gpus", 3, "--n", 3001, "--op", op, "--dtype",
                           "float16", "--backend", "cpu", "--format", "json")  # fmt: skip
    assert code == 0, out + err
    rows = read_result(out)["records"]
    assert [row["verdict"] for row in rows] == ["pass"] * 3


@pytest.mark.slow
def test_op_all_takes_all_operators_of_sharded_arrays(ranks: Ranks) -> None:
    code, out, err = ranks("bench", "reduce_tiles_acq_rel", "--gpus", 2, "--n", 5, "--op", "all",
                           "--backend", "cpu", "--format", "json")  # fmt: skip
    assert code == 0, err
    assert {row["op"] for row in read_result(out)["records"]} == set(SHARDED_OPS)


STORE = "        *out = Op::finish(value);"
FAULTS = (
    ("load_tiles(in, n)", "load_tiles(in, n - n % 4)", "sum", 3, "WRONG: n = "),
    ("value = Op::identity();", "value = 0;", "max", 3, "WRONG: n = 1, "),
    ("memory_order_acq_rel", "memory_order_relaxed", "sum", 3, "data race in global memory"),
    (STORE, "*(volatile int *)0 = 1;" + STORE, "sum", 3, "invalid access at (nil)"),
    (STORE, "for (volatile int go = 1; go;) ;" + STORE, "sum", 4, "no result after 3 s"),
    (STORE, "*out = Op::fnish(value);", "sum", 2, "does not compile"),
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new", "op", "code", "words"),
    [pytest.param(*fault, marks=[pytest.mark.slow] * (k > 0)) for k, fault in enumerate(FAULTS)],
)
def test_a_fault_of_a_kernel_is_found_on_one_gpu_first(
    ranks: Ranks, tmp_path: Path, old: str, new: str, op: str, code: int, words: str
) -> None:
    text = Path("kernels/limit/reduce_tiles_acq_rel.cu").read_text()
    assert old in text
    wrong = text.replace("reduce_tiles_acq_rel", "reduce_wrong").replace(old, new)
    (tmp_path / "reduce_wrong.cu").write_text(wrong)
    shutil.copy("kernels/limit/tiles.cuh", tmp_path)
    limit = ("--time-limit", 3) if code == 4 else ()
    ended, out, err = ranks("bench", "reduce_wrong", "--kernels", tmp_path, "--gpus", 2, "--n",
                            5001, "--op", op, "--backend", "cpu", *limit)  # fmt: skip
    assert ended == code, out + err
    assert words in out
    assert "right" not in out


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("--n 1", "--n 1: give at least one element for each of 2 ranks"),
        ("--op matmul", "--op matmul: --gpus takes sum, prod, min, max, mean, argmin, argmax"),
        ("--rows 4 --graph", "leave out --graph and --rows"),
        ("--from host --max-time 3", "leave out --max-time and --device"),
        ("--max-time 3", "leave out --max-time"),
        ("--peers cub", "leave out --peers"),
        ("--device 1", "leave out --device"),
    ],
)
def test_an_option_of_one_gpu_is_a_usage_error(cudareduce: Ranks, asked: str, words: str) -> None:
    code, out, err = cudareduce("bench", "auto", "--gpus", 2, *asked.split())
    assert (code, out) == (2, "")
    assert words in " ".join(err.split())


def test_another_number_of_ranks_of_a_launcher_is_a_usage_error(
    cudareduce: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "3", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    code, _, err = cudareduce("bench", "auto", "--gpus", 2)
    assert (code, "--gpus 2: torchrun started 3 ranks; give --gpus 3" in err) == (2, True)
    code, _, err = cudareduce("bench", "auto", "--meet", "x")
    assert (code, "--meet needs --gpus" in err) == (2, True)
