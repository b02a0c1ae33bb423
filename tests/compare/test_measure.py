"""Slower rows are measured in a fresh process, and an interrupted run writes its files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from cudareduce.backends.selection import BackendSpec
from cudareduce.bench.settings import Settings
from cudareduce.catalog.registry import Registry
from cudareduce.compare.measure import Batch, Bencher, measure_in_fresh_process
from cudareduce.compare.verdicts import Measured
from cudareduce.errors import EnvironmentProblem, KernelFault
from cudareduce.reduction.operators import reduction_of
from cudareduce.results.store import load
from tests.compare.conftest import Machine
from tests.conftest import ROOT
from tests.fake_gpu import in_this_process

Call = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def baseline(cudareduce: Call, machine: Machine, tree: Path, tmp_path: Path) -> Path:
    path = tmp_path / "baseline.json"
    code, _, err = cudareduce(
        "bench", "kernel_*", "--kernels", tree, "--n", "3000,5000", "--json", path, "--quiet",
        "--backend", "cuda",
    )  # fmt: skip
    assert code == 0, err
    return path


def changed(tree: Path) -> None:
    """Other code, which takes as long."""
    path = tree / "kernel_b.cu"
    path.write_text(path.read_text() + "// other\n")


def rows(out: str) -> dict[str, Any]:
    return {f"{row['kernel']} {row['n']}": row for row in json.loads(out)}


@pytest.mark.long
def test_a_bias_of_a_process_is_not_confirmed(
    cudareduce: Call, machine: Machine, baseline: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first process the kernel is 10 % slower, in the next it is not."""
    changed(tree)
    machine.factors["kernel_b"] = 1.1

    def calm(*given: Any) -> Measured:
        machine.factors.clear()
        return in_this_process(*given)

    monkeypatch.setattr("cudareduce.compare.measure.measure_in_fresh_process", calm)
    ask = ("check", "--baseline", baseline, "--kernels", tree, "--format", "json")
    code, out, err = cudareduce(*ask)
    assert "2 look slower: measuring again with 2 times the rounds" in err
    assert "in a fresh process" in err
    row = rows(out)["kernel_b 3000"]
    assert (code, row["verdict"], row["confirmed"]) == (0, "SAME", False)
    assert "at first, not confirmed by a second measurement" in row["reason"]


def wrong_at(monkeypatch: pytest.MonkeyPatch, look: int, kernel: str, last: int = 99) -> None:
    """From one look to the last, a kernel's answers are wrong."""
    measured, count = Bencher.measure, [0]

    def lying(self: Bencher, batches: Any) -> Measured:
        found = measured(self, batches)
        count[0] += 1
        if not look <= count[0] <= last:
            return found
        wrong: dict[str, Any] = {
            "verdict": "fail",
            "reason": "off by 2",
            "time_us": None,
            "rounds_us": (),
        }
        new = (replace(r, **wrong) if r.kernel == kernel else r for r in found.new)
        return replace(found, new=tuple(new))

    monkeypatch.setattr(Bencher, "measure", lying)


@pytest.mark.long
@pytest.mark.parametrize("kernel", ["kernel_a", "kernel_b"])  # one beside it, and what is suspect
def test_a_result_that_is_wrong_in_a_later_measurement_is_wrong_in_all_files(
    cudareduce: Call, machine: Machine, baseline: Path, tree: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, kernel: str,
) -> None:  # fmt: skip
    changed(tree)
    machine.factors["kernel_b"] = 1.1
    wrong_at(monkeypatch, 2, kernel)
    path, held = tmp_path / "run.json", baseline.read_text()
    ask = ("check", "--baseline", baseline, "--kernels", tree, "--json", path, "--format", "json")
    code, out, err = cudareduce(*ask, "--update-baseline")
    assert (code, rows(out)[f"{kernel} 3000"]["verdict"]) == (3, "WRONG")
    assert "is unchanged: fix the kernels that fail first" in err
    assert baseline.read_text() == held
    found = {(r.kernel, r.verdict, r.time_us is None) for r in load(path).records}
    other = {"kernel_a": "kernel_b", "kernel_b": "kernel_a"}[kernel]
    assert found == {(kernel, "fail", True), (other, "pass", False)}
    assert cudareduce("history", "add", path, "--into", tmp_path / "history")[0] == 0
    code, _, err = cudareduce("history", "show", kernel, "--from", tmp_path / "history")
    assert (code, f"has no runs of {kernel}" in err) == (2, True)


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", folder, "-c", "user.name=t", "-c", "user.email=t@t", *words],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.mark.slow
def test_a_bias_of_the_baseline_is_not_confirmed_where_its_kernels_are_at_hand(
    cudareduce: Call, machine: Machine, baseline: Path, tree: Path
) -> None:
    """Every process since the baseline's runs the kernel 10 % slower, whatever its text."""
    git(tree.parent, "init", "-q")
    git(tree.parent, "add", "mine")
    git(tree.parent, "commit", "-qm", "before")
    changed(tree)
    machine.factors["kernel_b"] = 1.1
    ask = ("check", "--baseline", baseline, "--kernels", tree, "--format", "json")
    assert cudareduce(*ask)[0] == 1
    run = json.loads(baseline.read_text())
    run["tool"]["git"] = git(tree.parent, "rev-parse", "--short=12", "HEAD")
    baseline.write_text(json.dumps(run))
    code, out, err = cudareduce(*ask)
    row = rows(out)["kernel_b 3000"]
    assert (code, row["verdict"], row["confirmed"]) == (0, "SAME", False)
    assert f"as the kernels of {run['tool']['git']}, in a fresh process" in err
    path = tree / "kernel_b.cu"
    path.write_text(path.read_text() + "// slower: 10 %\n")
    code, out, _ = cudareduce(*ask)
    row = rows(out)["kernel_b 3000"]
    assert (code, row["verdict"], row["confirmed"]) == (1, "SLOWER", True)
    assert row["change_pct"] == pytest.approx(10, abs=1)
    for other in ("../..", "0" * 12, None):
        run["tool"]["git"] = other
        baseline.write_text(json.dumps(run))
        assert cudareduce(*ask)[0] == 1
    run["tool"]["git"], run["device"]["nvcc"] = git(tree.parent, "rev-parse", "HEAD"), "12.0"
    baseline.write_text(json.dumps(run))
    assert "in the same rounds as the kernels" not in cudareduce(*ask)[2]


def cut_at(monkeypatch: pytest.MonkeyPatch, place: int, error: BaseException) -> None:
    """The measurement of this batch ends so."""
    measured, count = Bencher._measured, [0]

    def ending(self: Bencher, batch: Batch) -> Any:
        count[0] += 1
        if count[0] >= place:
            raise error
        return measured(self, batch)

    monkeypatch.setattr(Bencher, "_measured", ending)


@pytest.mark.long
@pytest.mark.parametrize(
    ("error", "expected", "said"),
    [(KeyboardInterrupt(), 130, "interrupted"), (KernelFault("the GPU is lost"), 3, "GPU is lost"),
     (EnvironmentProblem("no context"), 6, "no context")],
)  # fmt: skip
@pytest.mark.parametrize("place", [1, 2])
def test_an_interrupted_check_writes_its_files(
    cudareduce: Call, baseline: Path, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    error: BaseException, expected: int, said: str, place: int,
) -> None:  # fmt: skip
    changed(tree)
    path = tree / "kernel_b.cu"
    path.write_text(path.read_text() + "// slower: 10 %\n")
    cut_at(monkeypatch, place, error)
    before = baseline.read_text()
    code, out, _ = cudareduce(
        "check", "--baseline", baseline, "--kernels", tree, "--quiet", "--update-baseline",
        "--junit", tmp_path / "j.xml", "--benchmark-json", tmp_path / "s.json",
        "--markdown", tmp_path / "m.md", "--json", tmp_path / "r.json",
    )  # fmt: skip
    assert code == expected
    assert f"cut short: {error or said}" in out
    suite = ElementTree.parse(tmp_path / "j.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("4", "0")
    assert "SLOWER" not in out
    assert "UNCERTAIN" in out
    assert said in (tmp_path / "m.md").read_text()
    assert len(json.loads((tmp_path / "s.json").read_text())) == (0 if place == 1 else 4)
    assert len(load(tmp_path / "r.json").records) == (0 if place == 1 else 4)
    assert baseline.read_text() == before


@pytest.mark.long
def test_a_signal_leaves_the_files(baseline: Path, tree: Path, tmp_path: Path, cache: Path) -> None:
    """A real one, in the middle of the rounds, to a process of its own."""
    changed(tree)
    command: list[str | Path] = [
        sys.executable, "-m", "tests.fake_gpu", "check", "--baseline", baseline, "--kernels", tree,
        "--rounds", "10000", "--junit", tmp_path / "j.xml", "--comment", tmp_path / "c.md",
    ]  # fmt: skip
    with subprocess.Popen(
        command, cwd=ROOT, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env=os.environ | {"CUDAREDUCE_TEST_CACHE": str(cache)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:  # fmt: skip
        assert process.stderr
        for line in process.stderr:
            if line.startswith("measuring rounds"):
                process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    assert "cut short: interrupted" in (tmp_path / "c.md").read_text()
    suite = ElementTree.parse(tmp_path / "j.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("4", "0")


def test_kernels_without_time_left_are_uncertain(
    cudareduce: Call, baseline: Path, tree: Path, tmp_path: Path
) -> None:
    before = baseline.read_text()
    ask = ("check", "--baseline", baseline, "--kernels", tree, "--quiet", "--max-time", "0.000001",
           "--junit", tmp_path / "j.xml")  # fmt: skip
    code, out, _ = cudareduce(*ask)
    assert "UNCERTAIN" in out
    assert "GONE" not in out
    assert (tmp_path / "j.xml").exists()
    assert cudareduce(*ask, "--update-baseline")[0] != 0
    assert baseline.read_text() == before
    code, _, err = cudareduce(
        "check", "--compile", "--baseline", baseline, "--max-time", "3", "--kernels", tree
    )
    assert (code, "--max-time does not apply to --compile" in err) == (2, True)


def batch(registry: Registry) -> Batch:
    settings = Settings(reductions=(reduction_of("sum", "float32"),), sizes=(1000,), rounds=3)
    return Batch(settings, tuple(registry.choose(["reduce_v7_shuffle"])))


def test_a_fresh_process_measures_a_batch(registry: Registry, cache: Path) -> None:
    spec = BackendSpec("cpu", cache=cache)
    found = measure_in_fresh_process(spec, registry, [batch(registry)], True)
    [record] = found.new
    assert (record.kernel, record.n, record.verdict) == ("reduce_v7_shuffle", 1000, "pass")
    assert found.cut is None


class Deadly(Registry):
    """Ends the process that unpickles it."""

    def __reduce__(self) -> Any:
        return os._exit, (7,)


def test_a_process_that_dies_is_an_environment_problem(registry: Registry, cache: Path) -> None:
    deadly = Deadly(registry.kernels, registry.suites)
    spec = BackendSpec("cpu", cache=cache)
    with pytest.raises(EnvironmentProblem, match="ended with code 7"):
        measure_in_fresh_process(spec, deadly, [batch(registry)], True)
    with pytest.raises(EnvironmentProblem):
        measure_in_fresh_process(BackendSpec("cuda", 1000), registry, [batch(registry)], True)
