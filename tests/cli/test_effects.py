"""Options without effect are said to have none; those that contradict each other are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudareduce.errors import EnvironmentProblem
from tests.test_golden import FOREIGN

Call = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("small")
NO_TIMES = "no effect here: --backend cpu times nothing\n"


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything up to the backend, which is what is told before it is opened."""

    def none(*more: object) -> None:
        raise EnvironmentProblem("no backend here")

    monkeypatch.setattr("cudareduce.bench.request.choose_backend", none)
    monkeypatch.setattr("cudareduce.compare.compile_check.find_nvcc", none)


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("bench", "--backend", "cpu", "--rounds", "9"), f"--rounds has {NO_TIMES}"),
        (("bench", "--backend", "cpu", "--graph", "--timing", "warm", "--region", "first-pass",
          "--pattern", "ones", "--peak-gb-s", "900", "--columns", "min"),
         f"--timing, --graph, --region, --pattern, --peak-gb-s, --columns have {NO_TIMES}"),
        (("bench", "reduce_atomic", "--backend", "cpu", "--baseline-kernel", "reduce_atomic"),
         f"--baseline-kernel has {NO_TIMES}"),
        (("reproduce", "bbuf", "--backend", "cpu", "--rounds", "7", "--peak-gb-s", "9"),
         f"--rounds, --peak-gb-s have {NO_TIMES}"),
        (("bench", "auto", "--chunk", "1Mi"),
         "--chunk has no effect here: it needs --from\n"),
        (("bench", "auto", "--from", "tests/data/ones.npy", "--n", "9", "--seed", "1"),
         "--n, --seed have no effect here: the file of --from defines the input\n"),
        (("verify", "--backend", "cpu", "--device", "0"),
         "--device has no effect here: --backend cpu uses no GPU\n"),
        (("verify", "--rows", "5"),
         "--rows has no effect here: verify chooses the rows itself unless --n is given\n"),
        (("check", "--compile", "--baseline", "results/compile/nvcc-13.0.json", "--device", "1"),
         "--device has no effect here: --compile uses no GPU\n"),
        (("bench", "all", "--entry", "f", "--grid", "1", "--shared", "0", "--finish", "none"),
         "--entry, --grid, --shared, --finish have no effect here: no external kernel file is "
         "named\n"),
        (("verify", "tests/wrong_kernels/lost_tail.cu", "--grid", "9"),
         "--grid has no effect here: no external kernel file is named\n"),
        (("bench", "--identity", "0", "--rtol", "1e-3"),
         "--identity, --rtol have no effect here: only --op-expr uses it\n"),
        (("bench", "--op-expr", "a + b", "--identity", "0", "--dtype", "int32", "--rtol", "0.1"),
         "--rtol has no effect here: integers are compared exactly\n"),
        (("bench", "--columns", "min", "--format", "csv"),
         "--columns has no effect here: csv and json hold all columns\n"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)  # fmt: skip
def test_an_option_without_effect_is_reported(
    cudareduce: Call, arguments: tuple[str, ...], said: str
) -> None:
    code, _, err = cudareduce(*arguments)
    assert (code, err) == (6, f"{said}cudareduce: no backend here\n")
    if arguments[0] != "check":
        assert cudareduce(*arguments, "--quiet")[2] == "cudareduce: no backend here\n"


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(
    "arguments",
    [
        ("bench", "--backend", "cpu"),
        ("bench", "--rounds", "9", "--device", "0", "--columns", "min"),
        ("bench", "--columns", "min", "--format", "csv", "--markdown", "run.md"),
        ("bench", "--op-expr", "a + b", "--identity", "0", "--rtol", "1e-3"),
        ("verify", "--backend", "cpu", "--pattern", "ones"),
    ],
    ids=" ".join,
)
def test_an_option_with_an_effect_is_not_mentioned(
    cudareduce: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cudareduce(*arguments)[2] == "cudareduce: no backend here\n"


@pytest.mark.long
@pytest.mark.usefixtures("nothing_runs")
def test_options_of_external_files_apply_to_a_file_without_front_matter(
    cudareduce: Call, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs.cu"
    theirs.write_text(FOREIGN)
    _, _, err = cudareduce("bench", theirs, "reduce_atomic", "--entry", "theirs", "--grid", "4")
    assert "no effect" not in err


def test_an_operator_and_an_expression_contradict_each_other(cudareduce: Call) -> None:
    code, _, err = cudareduce("bench", "--op", "sum", "--op-expr", "a + b", "--identity", "0")
    assert code == 2
    assert "--op-expr replaces --op: give only one of them" in err


def test_timing_options_without_a_gpu_are_reported(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(spec: object) -> None:
        raise EnvironmentProblem("there is none")

    monkeypatch.setattr("cudareduce.backends.selection.open_cuda", missing)
    asked = ("bench", "reduce_v7_shuffle", "--n", "33")
    _, _, err = cudareduce(*asked, "--energy", "--timing", "cold,warm")
    assert err.count("--timing, --energy need a GPU, and have no effect here\n") == 1
    _, _, err = cudareduce(*asked)
    assert "no effect" not in err
