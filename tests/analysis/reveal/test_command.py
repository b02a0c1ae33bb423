"""`reveal` as it is typed: names, tables, comparisons, exit codes; libraries on a fake GPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cudareduce.analysis.reveal.session import RevealWorkers
from cudareduce.libraries.catalogue import Listing
from tests.analysis.reveal.fakes import FakeRevealer
from tests.conftest import ROOT
from tests.fake_gpu import fake_gpu

Call = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("small")
CPU = ("--backend", "cpu", "--quiet")


@pytest.fixture
def beside(
    cudareduce: Call, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """`reveal` on a fake GPU, with fake libraries: those that the first argument names."""
    begin = RevealWorkers.__init__
    monkeypatch.setattr(RevealWorkers, "__init__", lambda self: begin(self, FakeRevealer))

    def call(fakes: str, *arguments: object) -> tuple[int, str, str]:
        listed = tuple(Listing(f"tests.analysis.reveal.fakes:{name}") for name in fakes.split(","))
        monkeypatch.setattr("cudareduce.libraries.catalogue.listings", lambda names: listed)
        with fake_gpu(monkeypatch, cache):
            return cudareduce("reveal", *arguments, "--n", "40", "--quiet")

    return call


def rows_of(out: str) -> dict[str, list[str]]:
    """The words of a table's rows by the first."""
    cells = (line.split() for line in out.splitlines() if line.startswith(" "))
    return {words[0]: words[1:] for words in cells if words}


def test_a_template_file_is_revealed_with_options(cudareduce: Call) -> None:
    path = ROOT / "tests/docs/theirs.cu"
    said = ("--backend", "cpu", "--n", 64, "--quiet", "--entry", "reduce6<float, 256>")
    code, out, _ = cudareduce("reveal", path, *said)
    assert code == 0 and "theirs, 64 float32" in out


@pytest.mark.long
def test_equal_trees_of_kernels_have_equal_rows_and_are_stored(
    cudareduce: Call, tmp_path: Path
) -> None:
    """A picture, a table, a file; the same once more is the same, and another kernel is not."""
    stored, again = tmp_path / "orders.json", tmp_path / "again.json"
    names = ("reduce_v0_baseline", "reduce_v1_no_divergence")
    code, out, _ = cudareduce("reveal", *names, "--n", "300", *CPU, "--json", stored)
    assert code == 0
    rows = rows_of(out)
    assert rows[names[0]] == rows[names[1]]
    assert rows[names[0]][1:4] == ["float32", "fixed", "9"]
    assert "256 x 1 in halves, 1 2 4 8 16 32 64 128 apart" in out
    orders = json.loads(stored.read_text())["orders"]
    assert orders[0]["hashes"] == {"300": rows[names[0]][-1]}
    assert orders[0]["bound"] == pytest.approx(9 * 2.0**-24, rel=1e-3)
    assert (orders[0]["exact"], orders[0]["adds_in"], orders[0]["block"]) == (True, "float32", 256)
    code, out, _ = cudareduce("reveal", "--compare", stored, names[0], "--n", "300", *CPU)
    assert (code, rows_of(out)["SAME"][0]) == (0, names[0])
    again.write_text(stored.read_text().replace(rows[names[0]][-1], "0123456789ab"))
    code, out, _ = cudareduce("reveal", "--compare", stored, again)
    assert code == 1
    assert f"{names[0]}, n = 300: CHANGED: sums that are not in the picture" in out


@pytest.mark.long
def test_a_name_is_compared_on_the_problems_of_a_file(cudareduce: Call, tmp_path: Path) -> None:
    """With the file's sizes, types and launch shapes, unless options are given."""
    stored, told = tmp_path / "orders.json", ("--format", "json", *CPU)
    v7, ask = "reduce_v7_shuffle", ("--n", "7,40", "--dtype", "float32,float64", "--block", "64")
    assert cudareduce("reveal", v7, *ask, *CPU, "--json", stored)[0] == 0
    code, out, _ = cudareduce("reveal", "--compare", stored, "all", *told)
    pairs = json.loads(out)
    assert (code, len(pairs)) == (0, 4)
    assert {(p["new"]["kernel"], p["new"]["block"], p["verdict"]) for p in pairs} == {
        (v7, 64, "SAME")
    }
    code, out, _ = cudareduce("reveal", "--compare", "reduce_v0_baseline", stored, *told)
    assert [pair["old"]["n"] for pair in json.loads(out)] == [7, 40, 7, 40]
    code, _, err = cudareduce("reveal", "--compare", stored, v7, "--n", "9", *CPU)
    assert code == 2
    assert "one is of n = 7 float32, n = 40 float32, n = 7 float64" in err


def test_the_accumulator_of_a_bound_is_named(cudareduce: Call) -> None:
    _, out, _ = cudareduce("reveal", "reduce_v7_shuffle", "--n", "9", "--acc", "float64", *CPU)
    assert "bound: gamma_depth, of the sum of magnitudes; float32 added in float64" in out


def test_items_that_follow_the_type(cudareduce: Call, tmp_path: Path) -> None:
    """A kernel that counts its items in bytes is launched as `bench` launches it."""
    stored = tmp_path / "orders.json"
    asked = ("reduce_tiles", "--n", 40, "--dtype", "float16,float64", *CPU, "--json", stored)
    assert cudareduce("reveal", *asked)[0] == 0
    orders = json.loads(stored.read_text())["orders"]
    assert [order["items"] for order in orders] == [32, 8]


@pytest.mark.long
def test_compare_reveals_two_named_kernels(cudareduce: Call) -> None:
    both = ("reveal", "--compare", "reduce_v0_baseline", "reduce_v2_no_bank_conflict")
    code, out, _ = cudareduce(*both, "--n", "33", *CPU, "--format", "json")
    (pair,) = json.loads(out)
    assert (code, pair["verdict"]) == (1, "CHANGED")
    assert [pair[side]["kernel"] for side in ("old", "new")] == list(both[2:])


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((), 2, "name a kernel"),
        (("reduce_v7_shuffle", "--n", "0"), 2, "has nothing to add: use --n 1 or more"),
        (("reduce_v7_shuffle", "--dtype", "int32"), 2, "exact in any"),
        (("reduce_v7_shuffle", "--op", "max"), 2, "use --op sum"),
        (("reduce_v7_shuffle", "--n", "2^25"), 2, "up to 16777216"),
        (("reduce_v7_shuffle", "--dtype", "float16", "--n", "2^16"), 2, "up to 32767"),
        (("reduce_v7_shuffle", "--block", "33"), 2, "takes blocks of"),
        (("reduce_v7_shufle",), 2, "did you mean reduce_v7_shuffle"),
        (("torhc",), 2, "no kernel, suite or library is called 'torhc': did you mean torch"),
        (("bogus",), 2, "called 'bogus': `cudareduce list` shows them"),
        (("peer:none",), 2, "no library is called 'peer:none'"),
        (("cub:none",), 2, "no library is called 'cub:none'"),
        (("cub",), 6, "runs on a GPU"),
        (("--compare", "a.json", "reduce_v7_shuffle"), 2, "there is no a.json"),
        (("--compare", "setup.json", "README.md"), 2, "there is no setup.json"),
        (("all", "--compare", "x", "y"), 2, "--compare excludes other names"),
    ],
)
def test_impossible_requests_are_errors(
    cudareduce: Call, arguments: tuple[str, ...], code: int, says: str
) -> None:
    done, out, err = cudareduce("reveal", *arguments, *CPU)
    assert (done, out) == (code, "")
    assert says in err
    assert len(err.strip().splitlines()) == 1


def test_comparing_takes_two(cudareduce: Call) -> None:
    code, _, err = cudareduce("reveal", "--compare", "reduce_v7_shuffle")
    assert (code, "requires 2 arguments" in err) == (2, True)


HEAD = '{"kind": "orders", "schema": 1, "tool": {}, "device": "GPU", '


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "is not a table of summation orders"),
        ('{"kind": "orders", "schema": 9}', "has schema 9"),
        ('{"kind": "orders", "schema": 1}', "tool is missing or has the wrong type"),
        (HEAD + '"orders": 5}', "orders is missing or has the wrong type"),
        (HEAD + '"orders": []}', "it has no row"),
        (HEAD + '"orders": [5]}', "row 1: it is not an object"),
        (HEAD + '"orders": [{}]}', "row 1: acc is missing"),
        ("{", "is cut short"),
    ],
)
def test_other_files_are_not_tables(cudareduce: Call, tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    code, _, err = cudareduce("reveal", "--compare", file, file)
    assert code == 2
    assert says in err


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("n", -5, "row 1: a count is negative, or too large"),
        ("items", 10**20, "row 1: a count is negative, or too large"),
        ("hashes", {"9" * 5000: "a"}, "row 1: hashes are not texts by numbers of elements"),
        ("outcome", "fine", "row 1: outcome is unknown"),
        ("cause", "none", "row 1: cause is unknown"),
    ],
)
def test_a_row_that_is_none(
    cudareduce: Call, tmp_path: Path, field: str, value: object, says: str
) -> None:
    table = json.loads((ROOT / "results/nvidia-h200/orders.json").read_text())
    table["orders"] = [table["orders"][1] | {field: value}]
    file = tmp_path / "x.json"
    file.write_text(json.dumps(table))
    code, _, err = cudareduce("reveal", "--compare", file, "reduce_v7_shuffle", *CPU)
    assert (code, says in err) == (2, True), err


def test_a_table_without_rows(cudareduce: Call, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text('{"kind": "orders", "schema": 1, "tool": {}, "device": "", "orders": []}')
    code, _, err = cudareduce("reveal", "--compare", file, file)
    assert (code, "it has no row" in err) == (2, True), err


def test_a_result_of_bench_is_refused_as_a_table_of_summation_orders(cudareduce: Call) -> None:
    file = ROOT / "results/nvidia-h200/sweep.json"
    code, _, err = cudareduce("reveal", "--compare", file, file)
    assert code == 2
    assert "is not a table of summation orders: make it with cudareduce reveal --json" in err


@pytest.mark.long
def test_libraries_are_rows_beside_kernels(beside: Call) -> None:
    code, out, _ = beside("OWN,FINE", "peers", "reduce_v0_baseline")
    rows = rows_of(out)
    assert code == 0
    assert rows["peer:cub"][:4] == ["40", "float32", "fixed", "39"]
    assert rows["peer:cub:backwards"][:4] == ["40", "float32", "fixed", "39"]
    assert rows["peer:jax"][:4] == ["40", "float32", "fixed", "6"]
    assert rows["reduce_v0_baseline"][:4] == ["40", "float32", "fixed", "6"]
    assert "40 x 1 one after the other, 1 apart" in out
    assert "peer:cub: 1.2.3 fake.sum, cub" in out
    assert "peer:cub:absent, n = 40: skipped, not installed: pip install fake" in out


@pytest.mark.slow
def test_libraries_that_misbehave_are_rows_beside_correct_ones(
    beside: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are rows, and the others are revealed all the same."""
    monkeypatch.setattr("cudareduce.analysis.reveal.session._GRACE_S", 4.0)
    code, out, _ = beside("FAULTY", "cub", "--time-limit", "1")
    rows, said = rows_of(out), " ".join(out.split())
    assert code == 3
    assert rows["peer:cub:fine"][2] == "fixed"
    assert "peer:cub:raises, n = 40: skipped, raises ValueError: what is this?" in said
    assert "peer:cub:crashes, n = 40: WRONG: ends its process by SIGABRT" in said
    ends = "cannot be imported (ends its process with code 3): pip install -U fake"
    assert f"peer:cub:exits, n = 40: skipped, {ends}" in said
    assert "peer:cub:none, n = 40: WRONG: it returns 0 results, not 1" in said
    silent = "within 1 s, nor in 4 more: it hangs, or needs a longer --time-limit"
    assert f"peer:cub:hangs, n = 40: WRONG: no result {silent}" in said
    assert f"peer:cub:waits, n = 40: skipped, no first result {silent}" in said
    assert "peer:cub:garbles, n = 40: WRONG: its process sent an invalid message" in said


def test_a_time_limit_without_a_probe_is_inconclusive(cudareduce: Call) -> None:
    code, out, _ = cudareduce(
        "reveal", "reduce_v7_shuffle", "--n", "4096", "--time-limit", "0.001", *CPU
    )
    assert code == 4
    assert "reduce_v7_shuffle, n = 4096: skipped, --time-limit was reached after" in out


KERNEL = """/*+++
title = "x"
change = "y"
scope = "block"
grid = "one"
walk = "contiguous"
finish = "none"
block = 32
blocks = [32]
+++*/
extern "C" __global__ void {name}(const In *in, Out *out, size_t n)
{{
    Acc value = Op::identity();
    for (size_t k = 0; k < n; k++)
        value = Op::combine(value, Op::lift(in[k], k));
    {act}
    if (threadIdx.x == 0)
        *out = Op::finish(value);
}}
"""


@pytest.mark.long
def test_kernels_that_misbehave(cudareduce: Call, tmp_path: Path) -> None:
    """A kernel that crashes, one that does not compile, and one that contradicts its front
    matter."""
    acts = {"crashes": "out[n << 30] = value;", "broken": "nonsense;", "claims": ""}
    files = [tmp_path / f"{name}.cu" for name in acts]
    for file in files:
        file.write_text(KERNEL.format(name=file.stem, act=acts[file.stem]))
    code, out, _ = cudareduce("reveal", *files, "--n", "70", *CPU)
    said = " ".join(out.split())
    assert code == 2
    assert "crashes, n = 70: WRONG: ends its process" in said
    assert "broken, n = 70: skipped, does not compile: " in said
    assert (
        "claims, n = 70: deeper than its front matter says: 69 additions, not 7; not in the order "
        "of its front matter"
    ) in said
