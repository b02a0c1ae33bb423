"""`--sms`: no more blocks than that, which kernels take it, and what tells two such runs apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cudareduce.bench.jobs import Jobs
from cudareduce.catalog.kernel import Kernel, load_kernel
from cudareduce.catalog.registry import load_registry
from cudareduce.compare.baseline import identity, problem
from cudareduce.launch.case import Case
from cudareduce.reduction.operators import reduction_of
from tests.conftest import read_result
from tests.fake_gpu import WATTS, FakeGpu, fake_gpu, quick, use
from tests.libraries.fakes import use_fakes
from tests.simulate import record

Call = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("small")
ROOT = Path(__file__).parents[2]
TILES, FILL, V7 = "reduce_tiles_acq_rel", "reduce_fill", "reduce_v7_shuffle"
KERNELS = load_registry().kernels
CAPPED = [k for k in KERNELS.values() if k.why_not_sms() is None]


@pytest.fixture
def gpu(cache: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    monkeypatch.setattr(Jobs, "emulator", None)
    made = replace(quick(cache, 1), factors={FILL: 2.0})
    use(monkeypatch, made)
    return made


def run(call: Call, *arguments: object) -> Any:
    rounds = () if "--rounds" in arguments else ("--rounds", "6")
    code, out, err = call(*arguments, *rounds, "--format", "json", "--quiet")
    assert code == 0, err
    return read_result(out)


@pytest.mark.parametrize("kernel", CAPPED, ids=lambda kernel: kernel.id)
def test_no_launch_has_more_blocks_and_none_has_fewer_than_it_may(kernel: Kernel) -> None:
    reduction = reduction_of(kernel.ops[0], kernel.dtypes[0])
    rows = 2**20 if kernel.scope == "rows" else 1
    for sms in (1, 8, 131, 132):
        case = Case(kernel, reduction, max(kernel.blocks), kernel.items_of(4), sms=sms)
        plan = case.plan(2**28 // rows, rows)
        whole = replace(case, sms=None).plan(2**28 // rows, rows)
        assert plan.passes[0].grid == min(sms, whole.passes[0].grid)
        assert max(step.grid for step in plan.passes) <= sms == plan.sms
        assert plan.scratch.get("partials", 0) <= whole.scratch.get("partials", 0)


def test_which_kernels_take_it() -> None:
    """Those whose blocks stride: of others fewer blocks would leave elements out."""
    assert {kernel.grid for kernel in CAPPED} == {"fill", "fixed", "one", "per_sm"}
    assert {"reduce_tiles_ring", TILES, FILL} <= {kernel.id for kernel in CAPPED}
    others = [kernel for kernel in KERNELS.values() if kernel.why_not_sms()]
    assert {kernel.walk for kernel in others} >= {"tile", "element", "lane"}


@pytest.mark.long
def test_a_bench_on_few_sms(cudareduce: Call, gpu: FakeGpu) -> None:
    """A row of each kernel on each number, and why others are skipped."""
    found = run(cudareduce, "bench", TILES, FILL, V7, "--sms", "2,1", "--n", "2^15")
    records = {(r["kernel"], r["sms"]): r for r in found["records"]}
    assert [*records] == [(k, sms) for sms in (2, 1) for k in (TILES, FILL, V7)]
    for (kernel, sms), one in records.items():
        if kernel == V7:
            assert (one["verdict"], one["cause"], one["grid"]) == ("skip", "unfit", None)
            assert one["reason"].startswith("does not support --sms")
        else:
            assert (one["grid"], one["block"]) == (sms, 1024)
            assert one["gb_s"] > 0
    assert found["protocol"]["sms"] == [2, 1]
    [own] = run(cudareduce, "bench", TILES, "--sms", "1", "--block", "64", "--n", "2^15")["records"]
    assert (own["grid"], own["block"]) == (1, 64)
    [whole] = run(cudareduce, "bench", TILES, "--n", "2^15")["records"]
    assert (whole["sms"], whole["block"]) == (None, KERNELS[TILES].block)
    assert whole["grid"] > 2 and whole["block"] < 1024


def test_speedups_compare_equal_numbers_of_sms(cudareduce: Call, gpu: FakeGpu) -> None:
    records = run(
        cudareduce, "bench", TILES, FILL, "--sms", "2,1", "--n", "2^15", "--baseline-kernel", FILL
    )["records"]
    for one in records:
        assert one["baseline"] == FILL
        assert (one["speedup"] == 1) == (one["kernel"] == FILL)


def test_tables_name_the_number_of_sms(cudareduce: Call, gpu: FakeGpu) -> None:
    _, out, _ = cudareduce("bench", FILL, "--sms", "2,1", "--n", "2^12", "--rounds", "1", "--quiet")
    titles = [line for line in out.splitlines() if line.startswith("sum of")]
    assert [title.split(", ")[1] for title in titles] == ["on 2 SMs", "on 1 SM"]
    _, out, _ = cudareduce(
        "bench", FILL, "--sms", "8", "--n", "2^12", "--rounds", "1", "--quiet", "--format", "csv"
    )
    head, row = (line.split(",") for line in out.splitlines())
    assert row[head.index("sms")] == "8"


def test_fewer_blocks_than_requested_are_reported(cudareduce: Call, gpu: FakeGpu) -> None:
    """Or a curve would seem to say that more SMs are of no use."""
    asked = (FILL, "--sms", "1,2,8", "--n", "2^12", "--rounds", "1", "--quiet")
    said = f"{FILL}: 4 blocks at this n, so the rows for 8 SMs used 4"
    code, out, err = cudareduce("bench", *asked)
    assert code == 0, err
    assert [line for line in out.splitlines() if " at this n" in line] == [said]
    code, out, err = cudareduce("sweep", *asked)
    assert code == 0, err
    assert [line for line in out.splitlines() if " at this n" in line] == [said]


def test_results_on_few_sms_are_right(cudareduce: Call) -> None:
    """On the emulator: one block, and several, take all of the input."""
    code, out, err = cudareduce(
        "verify", TILES, "--sms", "1,3", "--n", "100003", "--backend", "cpu", "--quiet"
    )
    assert code == 0, err
    shown = [line for line in out.splitlines() if " right " in line or "results" in line]
    assert [line.split()[0] for line in shown] == ["results", TILES, "results", TILES]
    assert shown[0].endswith(", on 1 SM") and shown[2].endswith(", on 3 SMs")
    assert max(map(len, out.splitlines())) <= 80


def test_a_range_of_sms_doubles_from_step_to_step(cudareduce: Call, gpu: FakeGpu) -> None:
    found = run(cudareduce, "bench", FILL, "--sms", "1..5,3", "--n", "2^12", "--rounds", "1")
    assert found["protocol"]["sms"] == [1, 2, 4, 3]


def test_tiles_that_are_drawn_on_few_sms(cudareduce: Call) -> None:
    """By the words of `walk = "tickets"` alone: one block that draws all of them, and several."""
    path = ROOT / "tests" / "right_kernels" / "reduce_drawn_tiles.cu"
    kernel = load_kernel(path)
    assert kernel.varies(reduction_of("sum", "float32"))
    assert not kernel.varies(reduction_of("sum", "int32"))
    code, out, err = cudareduce(
        "verify", path, "--sms", "1,3", "--n", "100003", "--backend", "cpu", "--quiet"
    )
    assert code == 0, err
    assert out.count(" right ") == 2


@pytest.mark.parametrize(
    ("asked", "why"),
    [("133", "--sms 133 exceeds the 132 SMs of the device"), ("0", "from 1 to"),
     ("8,", "is not a list of whole numbers from 1 to 1024: write 8, "),
     ("8,x", "is not a list"), ("8..", "is not a list"), ("8..4", "is not a list"),
     ("1..2048", "is not a list")],
)  # fmt: skip
def test_a_number_that_there_is_not(cudareduce: Call, gpu: FakeGpu, asked: str, why: str) -> None:
    code, out, err = cudareduce("bench", FILL, "--n", "2^12", "--sms", asked)
    assert (code, out) == (2, "")
    assert why in err


def test_a_number_of_sms_is_part_of_what_a_record_is() -> None:
    one = record(TILES, 2**20, [10.0] * 9)
    few = replace(one, sms=32)
    assert identity(one) != identity(few)
    assert problem(one) != problem(few)
    assert problem(few) == problem(replace(few, block=64))


def test_a_check_measures_on_the_same_sms_again(
    cudareduce: Call, gpu: FakeGpu, tmp_path: Path
) -> None:
    stored = tmp_path / "old.json"
    run(cudareduce, "bench", TILES, "--sms", "1,2", "--n", "2^15", "--json", stored)
    code, out, err = cudareduce(
        "check", "--baseline", stored, "--quiet", "--no-same-code", "--format", "json"
    )
    assert code == 0, err
    rows = read_result(out)
    assert [(row["kernel"], row["sms"], row["verdict"]) for row in rows] == [
        (TILES, 1, "SAME"), (TILES, 2, "SAME"),
    ]  # fmt: skip


@pytest.mark.long
def test_libraries_use_all_sms_beside_capped_kernels(
    cudareduce: Call, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries take no cap: their rows are of all SMs, and kernels are told apart by theirs."""
    use_fakes(monkeypatch, "FINE")
    with fake_gpu(monkeypatch, cache):
        found = run(
            cudareduce, "bench", TILES, "--sms", "1,2", "--n", "2^15", "--peers",
            "all", "--energy",
        )  # fmt: skip
    primary = [r for r in found["records"] if r["context"]]
    assert {(r["kernel"], r["sms"]) for r in primary if r["time_us"]} == {
        ("peer:fine", None), (TILES, 1), (TILES, 2),
    }  # fmt: skip
    assert all(r["grid"] == r["sms"] for r in primary if r["sms"])
    for r in found["records"]:
        if r["time_us"]:
            assert r["joules_per_gb"] == pytest.approx(WATTS / r["gb_s"], rel=0.05)


@pytest.mark.gpu
def test_few_sms_of_a_gpu_read_less_and_take_less_power(cudareduce: Call) -> None:
    """Four SMs are busy enough to be timed, and far from what the memory gives; a GPU takes more
    than nothing, and hardly more than its limit."""
    arguments = ("bench", TILES, "--n", "2^26", "--rounds", "3", "--energy")
    few = run(cudareduce, *arguments, "--sms", "4")
    whole = run(cudareduce, *arguments)
    (four,), (all_sms,) = few["records"], whole["records"]
    assert 0 < four["gb_s"] < all_sms["gb_s"] / 2
    watts = [r["joules_per_gb"] * r["gb_s"] for r in (four, all_sms)]
    limit = whole["device"]["power_limit_w"]
    assert 20 < watts[0] < watts[1] < 1.2 * (limit or 1500)


def test_auto_on_few_sms_takes_the_largest_block(cudareduce: Call, gpu: FakeGpu) -> None:
    """And one block alone is within any number."""
    found = run(cudareduce, "bench", "auto", "--sms", "2", "--n", "2^10,2^16")
    taken = [(r["chosen"], r["block"], r["grid"]) for r in found["records"]]
    assert taken == [("reduce_tiles_scalar", 1024, 1), ("reduce_tiles_mailbox", 1024, 2)]
