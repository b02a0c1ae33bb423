"""`check --self N`: rates of false verdicts on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cudareduce.distributions import binomial_upper_limit
from tests.compare.conftest import Machine
from tests.compare.test_measure import Call, cut_at, wrong_at


@pytest.mark.long
def test_the_same_tree_is_the_same(cudareduce: Call, machine: Machine, tree: Path) -> None:
    ask = ("check", "kernel_*", "--self", 2, "--kernels", tree, "--n", "3000,5000")
    code, out, err = cudareduce(*ask)
    assert code == 0, err
    assert "comparison 2 of 2" in err
    said = " ".join(out.split())
    assert "0 of 8 comparisons of identical code SLOWER (below 31 % with 95 % confidence)" in said
    assert "0 UNCERTAIN (0 %); threshold 5 %, 9 rounds, NVIDIA H200, version" in said
    rows = json.loads(cudareduce(*ask, "--quiet", "--format", "json")[1])
    assert [row["verdict"] for row in rows] == ["SAME"] * 8


@pytest.mark.long
def test_a_machine_that_drifts_is_seen(
    cudareduce: Call, machine: Machine, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process is slower than the one before."""
    opened = Machine.__call__

    def drifting(self: Machine) -> object:
        self.factors = {"kernel_a": 1.1**self.seed, "kernel_b": 1.1**self.seed}
        return opened(self)

    monkeypatch.setattr(Machine, "__call__", drifting)
    code, out, err = cudareduce(
        "check", "kernel_a", "--self", 2, "--kernels", tree, "--n", "3000", "--budget", 0
    )
    assert code == 0, err
    assert "2 of 2 comparisons of identical code SLOWER (below 1e+02 %" in " ".join(out.split())


def test_an_interrupted_self_comparison_reports_what_it_has(
    cudareduce: Call, machine: Machine, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_at(monkeypatch, 3, KeyboardInterrupt())
    code, out, _ = cudareduce(
        "check", "kernel_a", "--self", 5, "--kernels", tree, "--n", "3000",
        "--markdown", tmp_path / "m.md",
    )  # fmt: skip
    assert code == 130
    assert "0 of 1 comparison of identical code" in " ".join(out.split())
    assert "cut short: interrupted" in (tmp_path / "m.md").read_text()


@pytest.mark.parametrize(("look", "last"), [(1, 1), (2, 2), (3, 99)])
def test_a_result_that_is_wrong_once_fails_a_self_comparison(
    cudareduce: Call, machine: Machine, tree: Path, monkeypatch: pytest.MonkeyPatch, look: int,
    last: int,
) -> None:  # fmt: skip
    wrong_at(monkeypatch, look, "kernel_b", last)
    code, out, _ = cudareduce(
        "check", "kernel_*", "--self", 2, "--kernels", tree, "--n", "3000", "--quiet"
    )
    assert code == 3
    assert "WRONG: kernel_b: off by 2" in out
    compared = 2 if last == 2 else 3  # the middle one of three runs is in both comparisons
    assert f": 0 of {compared} comparisons of identical code" in " ".join(out.split())


def test_a_kernel_that_does_not_compile_is_reported_by_self_comparison(
    cudareduce: Call, machine: Machine, tree: Path
) -> None:
    path = tree / "kernel_b.cu"
    path.write_text(path.read_text().replace("Acc value = Op::identity();", "nonsense;"))
    code, out, _ = cudareduce(
        "check", "kernel_*", "--self", 2, "--kernels", tree, "--n", "3000", "--quiet"
    )
    said = " ".join(out.split())
    assert code == 2
    assert "UNCERTAIN: kernel_b: does not compile: " in said
    assert (
        "0 of 2 comparisons of identical code SLOWER (below 78 % with 95 % confidence), 0 UNCER"
        in said
    )


def test_the_upper_limit_of_a_rate_follows_the_rule_of_three() -> None:
    """The rule of three, nearly."""
    assert binomial_upper_limit(0, 300, 0.95) == pytest.approx(0.00994, abs=1e-4)
    assert binomial_upper_limit(0, 0, 0.95) == binomial_upper_limit(5, 5, 0.95) == 1.0


@pytest.mark.parametrize(
    "words",
    [("--base", "HEAD"), ("--baseline", "x"), ("--comment", "x"), ("--junit", "x"),
     ("--compile",), ("--all",), ("--ranks", "2")],
)  # fmt: skip
def test_options_that_do_not_apply_to_self_comparison_are_refused(
    cudareduce: Call, words: tuple[str, ...]
) -> None:
    code, _, err = cudareduce("check", "--self", 3, *words)
    assert (code, f"{words[0]} does not apply to --self" in err) == (2, True)
