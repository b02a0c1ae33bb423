"""`check --base` of collectives: two trees of kernels as engines of one job, in the same rounds."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from cudareduce.library.registry import Registry
from tests.collectives.fake_ranks import CACHE, GPUS, PROGRAM
from tests.collectives.simulated import Machine, made_by
from tests.conftest import ROOT
from tests.simulate import H200

Call = Callable[..., tuple[int, str, str]]
RANKS = ROOT / "kernels" / "ranks"


def kernels(folder: Path, mine: Mapping[str, str]) -> Path:
    """A folder with kernels of an all-reduce, each with a line of its own at the end."""
    folder.mkdir()
    text = (RANKS / "all_reduce_one_shot.cu").read_text()
    for name, line in mine.items():
        made = text.replace("all_reduce_one_shot", f"all_reduce_{name}")
        (folder / f"all_reduce_{name}.cu").write_text(f"{made}// {line}\n")
    return folder


@pytest.fixture
def check(
    cudareduce: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: Registry
) -> Call:
    """`check --base` on a machine whose jobs are simulated: the first word is that machine."""
    monkeypatch.setattr("cudareduce.collectives.check.device_of", lambda ranks, request: H200)
    monkeypatch.setattr("cudareduce.collectives.check.load_registry", lambda: registry)
    monkeypatch.setattr("cudareduce.compare.check.tool", made_by)

    def call(machine: Machine, *words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("cudareduce.collectives.check.start", machine.job)
        return cudareduce("check", "all-reduce", "--base", tmp_path / "old", "--kernels",
                          tmp_path / "new", "--n", "1000", *words)  # fmt: skip

    return call


def rows(out: str) -> dict[str, Any]:
    return {row["engine"]: row for row in json.loads(out)}


def test_what_changed_is_measured_beside_what_it_was(check: Call, tmp_path: Path) -> None:
    kernels(tmp_path / "old", {"a": "as it was", "b": "as it was", "old": ""})
    kernels(tmp_path / "new", {"a": "as it was", "b": "other", "new": ""})
    slow = Machine(1, {"peer:b": 1.1}, apart=0.0)
    code, out, err = check(slow, "--threshold", "2%", "--format", "json")
    verdicts = {name: row["verdict"] for name, row in rows(out).items()}
    assert (code, verdicts) == (
        1, {"peer:a": "SAME", "peer:b": "SLOWER", "peer:new": "NEW", "peer:old": "GONE"},
    ), err  # fmt: skip
    assert [rows(out)[name]["same_code"] for name in ("peer:a", "peer:b")] == [True, False]
    assert rows(out)["peer:b"]["confirmed"]
    first, second = slow.jobs
    assert set(first["--engine"].split(",")) == {
        f"peer:{name}" for name in ("a", "b", "new", "a_base", "b_base", "old_base")
    }
    assert {"peer:b", "peer:b_base"} <= set(second["--engine"].split(","))
    assert second["--rounds"] == "18"


@pytest.mark.long
def test_identical_trees_are_the_same(check: Call, tmp_path: Path) -> None:
    """100 comparisons of two kernels, judged by their times, at 2 %."""
    for folder in ("old", "new"):
        kernels(tmp_path / folder, {"a": "", "b": ""})
    verdicts = [
        row["verdict"]
        for seed in range(100)
        for row in rows(check(
            Machine(seed), "--threshold", "2%", "--format", "json", "--no-same-code", "--quiet"
        )[1]).values()
    ]  # fmt: skip
    assert (len(verdicts), "SLOWER" in verdicts) == (200, False)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("reduce_v7_shuffle",), "is a kernel of one GPU, and others named are collectives"),
        (("--op", "argmax"), "arrays are combined by one of sum, prod, min, max"),
        (("reduce",), "this tree has no kernels of reduce"),
        (("--device", 1), "leave it out of collectives"),
        (("--n", "0"), "there is nothing to exchange"),
    ],
)
def test_what_cannot_be_asked(
    check: Call, tmp_path: Path, words: tuple[object, ...], why: str
) -> None:
    for folder in ("old", "new"):
        kernels(tmp_path / folder, {"a": ""})
    code, _, err = check(Machine(), *words)
    assert (code, why in " ".join(err.split())) == (2, True), err


def test_ranks_are_of_collectives(cudareduce: Call) -> None:
    code, _, err = cudareduce("check", "reduce_v7_shuffle", "--base", "HEAD", "--ranks", 2)
    assert (code, "--ranks needs a collective" in err) == (2, True)
    code, _, err = cudareduce("check", "--baseline", "none.json", "--ranks", 2)
    assert (code, "--ranks does not apply to --baseline" in err) == (2, True)


def gpus(cache: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`check --base` in a folder, with two simulated GPUs, whose ranks are processes."""
    (folder / "gpus.json").write_text("{}")
    home = {GPUS: str(folder / "gpus.json"), CACHE: str(cache), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*PROGRAM, "check", "all-reduce", "--base", "old", "--kernels", "new", "--n", "1000",
         "--rounds", "6", *words],
        cwd=folder, env=os.environ | home, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.mark.slow
def test_true_ranks_run_both_texts(cache: Path, tmp_path: Path) -> None:
    kernels(tmp_path / "old", {"a": ""})
    kernels(tmp_path / "new", {"a": "slower: 9 %"})
    done = gpus(cache, tmp_path, "--format", "json")
    row = rows(done.stdout)["peer:a"]
    assert (done.returncode, row["verdict"]) == (1, "SLOWER"), done.stderr
    assert row["change_pct"] == pytest.approx(9, abs=1)


@pytest.mark.long
def test_a_text_that_does_not_compile_is_told_by_its_own_lines(cache: Path, tmp_path: Path) -> None:
    """Those of the base's file, whatever was written in front of it."""
    kernels(tmp_path / "new", {"a": ""})
    kernels(tmp_path / "old", {"a": "\nint x = ;"})
    path = tmp_path / "old" / "all_reduce_a.cu"
    line = path.read_text().splitlines().index("int x = ;") + 1
    done = gpus(cache, tmp_path)
    assert done.returncode == 2
    assert f"old/all_reduce_a.cu:{line}:9: error" in done.stderr
    assert "the 2 ranks ended with code 2: see what they said" in " ".join(done.stdout.split())
