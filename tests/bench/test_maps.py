"""Maps and inputs that are overwritten, the whole way: timed, judged, told, measured again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudareduce.bench.jobs import Jobs
from tests.conftest import ROOT, read_result
from tests.fake_gpu import FakeGpu, use

Call = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("small")
SHAPES = ROOT / "tests" / "foreign_shapes"
V7 = "reduce_v7_shuffle"
HEADER = """/*+++
title = "Mapped"
change = "squares what it reads"
scope = "grid"
grid = "cover"
walk = "tile"
finish = "atomic"
block = 256
blocks = [256]
ops = ["sum"]
map = "{map}"
+++*/
extern "C" __global__ void {name}({inputs}, Out *out, size_t n)
{{
    const size_t k = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    Acc mine = Op::identity();
    if (k < n)
        mine = {value};
    for (int step = 16; step > 0; step /= 2)
        mine += __shfl_down_sync(~0u, mine, step);
    if (threadIdx.x % 32 == 0)
        Op::atomic(out, mine);
}}
"""


@pytest.fixture
def gpu(cache: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    monkeypatch.setattr(Jobs, "emulator", None)  # what watches files of a user is tried elsewhere
    made = FakeGpu(cache)
    use(monkeypatch, made)
    return made


def bench(call: Call, *more: object) -> tuple[int, Any, str]:
    rounds = ("--rounds", 1, "--n", 3000, "--quiet", "--debug")
    code, out, err = call("bench", *more, *rounds, "--backend", "cuda", "--format", "json")
    return code, read_result(out) if out else None, err


@pytest.mark.long
def test_two_inputs_count_twice(cudareduce: Call, gpu: FakeGpu) -> None:
    code, run, err = bench(cudareduce, SHAPES / "dot_product.cu")
    assert code == 0, err
    [record] = run["records"]
    assert (record["op"], record["map"], record["verdict"]) == ("sum", "a * b", "pass")
    assert record["bytes"] > 2 * 3000 * 4
    assert record["time_us"] is not None
    assert record["launches"] == 10


@pytest.mark.parametrize("timing", ["cold", "warm"])
def test_an_overwritten_input_is_restored_before_each_timed_launch(
    cudareduce: Call, gpu: FakeGpu, timing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = SHAPES / "in_place_guarded.cu"
    code, run, err = bench(cudareduce, file, "--timing", f"cold,{timing}", "--block", 256)
    assert code == 0, err
    records = {record["timing"]: record for record in run["records"]}
    assert list(records) == ["cold"]
    assert records["cold"]["time_us"] is not None
    assert "overwrites its input, which is restored before" in records["cold"]["reason"]
    assert any("no warm time" in said for said in run["protocol"]["remarks"]) == (timing == "warm")


def test_a_kernel_with_front_matter_that_overwrites_its_input_is_wrong(
    cudareduce: Call, given: Callable[[str, str], Path]
) -> None:
    text = HEADER.format(
        map="a * a", name="mine", inputs="const In *in", value="in[k] * in[k], ((In *)in)[k] = 0"
    )
    code, out, _ = cudareduce("verify", given("mine.cu", text), "--backend", "cpu", "--n", 1000)
    assert code == 3
    assert "it wrote to its input" in out


@pytest.fixture
def given(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


@pytest.mark.parametrize(
    ("mapped", "inputs", "value"),
    [("a * a", "const In *in", "Op::lift(in[k], k) * Op::lift(in[k], k)"),
     ("a * b", "const In *in, const In *other", "Op::lift(in[k], k) * Op::lift(other[k], k)")],
)  # fmt: skip
def test_front_matter_declares_the_transform_of_a_kernel(
    cudareduce: Call, given: Callable[[str, str], Path], mapped: str, inputs: str, value: str
) -> None:
    text = HEADER.format(map=mapped, name="mine", inputs=inputs, value=value)
    file, ask = given("mine.cu", text), ("--backend", "cpu", "--n", 1000, "--quiet")
    code, out, err = cudareduce("verify", file, *ask)
    assert code == 0, out + err
    assert f"sum of {mapped}" in out
    code, out, _ = cudareduce("verify", file, *ask, "--map", "a + 1")
    assert code == 2
    assert f"reduces {mapped}, not a + 1" in out


@pytest.mark.parametrize(
    ("mapped", "message"),
    [("", "--map takes one line of C++ in a, or in a and b, such as 'a * b'"),
     ("x", "--map 'x' names no element: write C++ in a, or in a and b, such as 'a * b'"),
     ("a $", "the map 'a $' does not compile for float32: "),
     ("({exit(0); a;})", "prints or ends its process: correct the expression")],
)  # fmt: skip
def test_an_invalid_transform_is_a_usage_error(cudareduce: Call, mapped: str, message: str) -> None:
    code, _, err = cudareduce("verify", V7, "--map", mapped, "--backend", "cpu", "--n", 10)
    assert code == 2
    assert message in err


def test_a_transform_is_refused_for_other_operators(cudareduce: Call) -> None:
    ask = ("verify", V7, "--map", "a * a", "--backend", "cpu", "--n", 10)
    code, out, _ = cudareduce(*ask, "--op", "prod,sum")
    assert code == 0
    assert "prod supports no --map; sum, mean, min, max do" in out
    code, _, err = cudareduce(*ask, "--op-expr", "a + b", "--identity", "0")
    assert code == 2
    assert "--map excludes --op-expr" in err


def test_kernels_without_a_transform_are_skipped_with_the_reason(cudareduce: Call) -> None:
    ask = ("verify", "--backend", "cpu", "--n", 1000, "--map")
    code, out, _ = cudareduce(*ask, "a * b", V7, "auto")
    assert code == 2
    assert "reads one array, and a * b takes two" in out
    assert "no kernel of the package reads two arrays" in out
    code, out, _ = cudareduce(*ask, "a * b", SHAPES / "sum_of_squares.cu")
    assert code == 2
    assert "reduces a * a, not a * b" in out


def test_libraries_are_skipped_with_a_transform(cudareduce: Call) -> None:
    ask = ("verify", V7, "--map", "a * a", "--backend", "cpu", "--n", 1000, "--peers", "cub")
    code, out, _ = cudareduce(*ask)
    assert code == 0
    assert "does not support --map" in " ".join(out.split())


@pytest.mark.long
def test_check_needs_the_transform_of_its_baseline(
    cudareduce: Call, gpu: FakeGpu, tmp_path: Path
) -> None:
    file = tmp_path / "run.json"
    code, _, err = bench(cudareduce, V7, "--map", "a*a", "--json", file)
    assert code == 0, err
    ask = ("check", "--baseline", file, "--quiet")
    code, _, err = cudareduce(*ask)
    assert code == 2
    assert "the baseline holds a sum of a*a: say --map 'a*a' to measure it again" in err
    code, out, err = cudareduce(*ask, "--map", "a*a")
    assert code in (0, 1, 4), err
    assert "sum of a*a" in out or "same" in (out + err).lower()
