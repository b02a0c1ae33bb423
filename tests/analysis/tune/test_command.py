"""`tune` on a fake GPU: a planted best is found, verified and kept; what is wrong never wins."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cudareduce.analysis.tune.search import CandidateTimer
from cudareduce.backends.protocol import Argument, Launch, Program, Source
from cudareduce.errors import UsageError
from cudareduce.launch.auto.table import Entry, file_name, read_table
from cudareduce.machine import Conditions
from tests.conftest import read_result
from tests.fake_gpu import FakeGpu, FakeMonitor, FakeProgram, use
from tests.simulate import H200

Call = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("small")
Shape = tuple[int, int]
KERNEL = "reduce_tiles_block"
TUNE = ("tune", KERNEL, "--n", "2^12", "--quiet")
#: Elements and threads of a planted best shape, and how long it takes beside the others.
BEST, SHARE = (512, 8), 0.8


class Planted(FakeGpu):
    """One on which a launch shape is faster than the others, and `idle` ones do nothing."""

    planted: dict[Shape, float]
    idle: frozenset[Shape] = frozenset()

    @staticmethod
    def _program(source: Source, inner: Program | None) -> FakeProgram:
        found = re.search(r"BLOCK = (\d+), ITEMS = (\d+)", source.text)
        shape = (int(found[1]), int(found[2])) if found else (0, 0)
        made = FakeGpu._program(source, inner)
        factor = Planted.planted.get(shape, 1.0)
        return replace(made, factor=0.0 if shape in Planted.idle else factor)

    def _launch(
        self, program: FakeProgram, grid: int, block: int, args: Sequence[Argument],
        dynamic_shared: int,
    ) -> Launch:  # fmt: skip
        if program.factor == 0.0:
            return self._spending(0.1, 1.0)
        return super()._launch(program, grid, block, args, dynamic_shared)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cudareduce: Call) -> Path:
    """Where the user's tables are."""
    monkeypatch.setattr("cudareduce.launch.auto.table.user_folder", lambda: tmp_path)
    return tmp_path


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, cache: Path, folder: Path) -> type[Planted]:
    """A GPU whose best shape is planted."""
    monkeypatch.setattr(Planted, "planted", {BEST: SHARE}, raising=False)
    seeds = iter(range(1, 100))
    use(monkeypatch, lambda: Planted(
        cache, next(seeds), H200, floor_us=2.7, bytes_per_us=4e6, event_us=0.0, noise=0.005,
        lazy=True, states=FakeMonitor([Conditions()]),
    ))  # fmt: skip
    return Planted


def entries(folder: Path) -> tuple[Entry, ...]:
    [path] = folder.glob("*.json")
    return read_table(path).entries


@pytest.mark.long
def test_a_planted_best_is_found_and_auto_takes_it(
    cudareduce: Call, gpu: type[Planted], folder: Path, tmp_path: Path
) -> None:
    out_json = tmp_path / "out" / "run.json"
    out_json.parent.mkdir()
    code, out, err = cudareduce(*TUNE, "--json", out_json)
    assert (code, err) == (0, ""), out
    assert re.search(rf"2\^12 +{KERNEL} +{KERNEL} +512 x 8 one +2\.1\S+ +1\.2[45]", out)
    assert re.search(rf"2\^12 +auto +{KERNEL} +512 x 8 one +2\.1\S+ +1\.2[45]", out)
    assert "no gain" not in out
    assert {e.fixed for e in entries(folder)} == {True, False}
    assert {(e.kernel, e.block, e.items, e.n) for e in entries(folder)} == {(KERNEL, *BEST, 4096)}
    tuned = read_result(out_json.read_text())["protocol"]["tuned"]
    assert [one["name"] for one in tuned] == [KERNEL, "auto", "auto:fixed"]
    assert all(one["tried"] == 12 and 1.2 < one["speedup"] < 1.3 for one in tuned)
    assert tuned[1]["before"] == "reduce_tiles_scalar, 256 x 16 one"
    code, out, _ = cudareduce("bench", "auto", "--n", "2^12", "--quiet", "--format", "json")
    [record] = read_result(out)["records"]
    assert (record["kernel"], record["chosen"]) == ("auto", KERNEL)
    assert (record["block"], record["items"]) == BEST


def test_tune_without_a_gain_reports_no_change(
    cudareduce: Call, gpu: type[Planted], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "planted", {})
    code, out, _ = cudareduce(*TUNE)
    assert code == 0
    assert f"no gain beyond the noise, so no change: 2^12 {KERNEL}, 2^12 auto" in out
    assert not list(folder.glob("*.json"))  # or it would speak for sizes near it, too


def test_what_is_fast_because_it_does_nothing_is_wrong_and_does_not_win(
    cudareduce: Call, gpu: type[Planted], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "idle", frozenset({(256, 4)}))
    code, out, _ = cudareduce(*TUNE)
    assert code == 3
    assert f"{KERNEL}: WRONG in 1 launch shape, first 256 x 4 one at 2^12: " in out
    assert {(e.block, e.items) for e in entries(folder)} == {BEST}


@pytest.mark.long
def test_what_is_wrong_in_many_shapes_is_one_line(
    cudareduce: Call, gpu: type[Planted], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "idle", frozenset({(256, 4), (512, 4), (1024, 4)}))
    code, out, _ = cudareduce("tune", KERNEL, "--n", "2^10,2^12", "--quiet")
    assert code == 3
    [line] = [line for line in out.splitlines() if "WRONG" in line]
    assert line.startswith(f"{KERNEL}: WRONG in 6 launch shapes, first ")


def test_tuning_what_no_kernel_supports_is_a_usage_error(
    cudareduce: Call, gpu: type[Planted], folder: Path
) -> None:
    code, out, err = cudareduce("tune", "reduce_tiles_dp4a", "--n", "2^10", "--quiet")
    assert (code, err) == (2, "")
    assert "2^10: reduce_tiles_dp4a takes int8, uint8, not float32" in out


@pytest.mark.long
def test_what_no_longer_holds_leaves_the_table_without_a_gain(
    cudareduce: Call, gpu: type[Planted], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cudareduce(*TUNE)
    [path] = folder.glob("*.json")
    path.write_text(path.read_text().replace('"source_sha": "', '"source_sha": "0'))
    _, _, err = cudareduce("bench", "auto", "--n", "2^12", "--rounds", "6")
    assert f"was measured with other versions of {KERNEL}, " in err
    monkeypatch.setattr(gpu, "planted", {})
    assert cudareduce(*TUNE)[0] == 0
    assert entries(folder) == ()
    _, _, err = cudareduce("bench", "auto", "--n", "2^12", "--rounds", "6")
    assert "other versions" not in err


def test_what_it_has_measured_is_no_baseline(
    cudareduce: Call, gpu: type[Planted], folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "out" / "run.json"
    path.parent.mkdir()
    assert cudareduce(*TUNE, "--json", path)[0] == 0
    for asked in (("check", "--baseline", path), ("compare", path, path)):
        code, out, err = cudareduce(*asked)
        assert (code, out) == (2, "")
        assert "run.json is of cudareduce tune" in err and err.count("\n") == 1


def test_a_race_without_a_heat_is_no_race(
    cudareduce: Call, gpu: type[Planted], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CandidateTimer, "measure", lambda self, names, rounds: {})
    code, out, _ = cudareduce(*TUNE)
    assert code == 4
    assert "2^12: --max-time leaves no time for its" in out
    assert not list(folder.glob("*.json"))


@pytest.mark.long
def test_a_table_that_cannot_be_written_costs_no_results(
    cudareduce: Call, gpu: type[Planted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("cudareduce.launch.auto.table.user_folder", lambda: tmp_path / "file" / "x")
    code, out, err = cudareduce(*TUNE, "--json", tmp_path / "run.json")
    assert code == 2
    assert "cannot write" in err
    assert "launch shape" in out and (tmp_path / "run.json").exists()


def test_tune_without_time_reports_it_and_writes_nothing(
    cudareduce: Call, gpu: type[Planted], folder: Path
) -> None:
    code, out, _ = cudareduce(*TUNE, "--max-time", "0.0001")
    assert code == 4
    assert "2^12: --max-time leaves no time for it" in out
    assert not list(folder.glob("*.json"))


def test_ctrl_c_keeps_what_there_was(
    cudareduce: Call, gpu: type[Planted], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, asked = CandidateTimer.measure, []

    def interrupted(self: CandidateTimer, names: Sequence[str], rounds: int) -> Any:
        asked.append(rounds)
        if rounds == 1 and asked.count(1) == 2:
            raise KeyboardInterrupt
        return measure(self, names, rounds)

    monkeypatch.setattr(CandidateTimer, "measure", interrupted)
    code, out, _ = cudareduce("tune", KERNEL, "--n", "2^10,2^12", "--quiet")
    assert code == 130
    assert "2^10" in out
    assert {e.n for e in entries(folder)} == {1024}


def test_a_table_goes_into_the_package_on_request(
    cudareduce: Call, gpu: type[Planted], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = folder / "package" / "tables"
    monkeypatch.setattr("cudareduce.launch.auto.table.shipped_folder", lambda: shipped)
    code, _, err = cudareduce(*TUNE[:-1], "--write")
    assert code == 0
    assert entries(shipped) == entries(folder)
    assert str(shipped) in err and "wrote the choices of auto on NVIDIA H200 to " in err


def test_an_invalid_table_is_reported_before_any_measurement(
    cudareduce: Call, gpu: type[Planted], folder: Path
) -> None:
    (folder / file_name(H200)).write_text("{")
    code, out, err = cudareduce(*TUNE)
    assert (code, out) == (2, "")
    assert "delete it, and tune again" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [(("tune", "--op", "median"), 2, "median"), (("tune", "reduce_v9"), 2, "reduce_v9"),
     (("tune", "--n", "0"), 2, "above 0"), (("tune", "--op", "affine"), 2, "not float32"),
     (("tune", "--max-time", "0"), 2, "--max-time"), (("tune", "--rows", "0"), 2, "--rows"),
     (("tune", "--json", "/no/such/folder/x"), 2, "does not exist"), (("tune",), 6, "PyCUDA")],
)  # fmt: skip
def test_what_cannot_be_is_one_sentence(
    cudareduce: Call, folder: Path, arguments: tuple[str, ...], code: int, said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def missing(spec: object) -> None:
        from cudareduce.errors import EnvironmentProblem

        raise EnvironmentProblem("PyCUDA is not installed")

    monkeypatch.setattr("cudareduce.backends.selection.open_cuda", missing)
    found, out, err = cudareduce(*arguments)
    assert (found, out) == (code, "")
    assert said in err and err.count("\n") == 1


def test_wrong_names_are_refused_where_auto_is_no_kernel(registry: Any) -> None:
    with pytest.raises(UsageError, match="selects a kernel for each problem"):
        registry.choose(["auto"])
    [choice] = registry.choose(["auto"], auto=True)
    assert choice.candidates == tuple(registry.kernels.values())
