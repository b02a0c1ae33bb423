"""Ranks that are started here, and what becomes of those that do not end, or end badly."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cudareduce.collectives import launcher
from cudareduce.collectives.launcher import start

Run = Callable[[str], int]
#: Patience of a rank that stands still when rank 0 has ended, in the tests.
GRACE_S = 0.3


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Two ranks of a program in Python, which knows its number as `rank`."""
    monkeypatch.setattr(launcher, "_GRACE_S", GRACE_S)

    def call(text: str) -> int:
        program = tmp_path / "program.py"
        program.write_text(
            f"import os, sys, time\nrank = int(os.environ['CUDAREDUCE_RANK'])\n{text}"
        )
        monkeypatch.setattr(launcher, "PROGRAM", (sys.executable, str(program)))
        return start(2, ())

    return call


def test_one_that_stands_still_when_rank_0_has_ended_is_ended(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("if rank: time.sleep(60)") == 6
    assert "rank 1 stood still and was ended" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("if rank: sys.stderr.write('Traceback\\n'); sys.exit(70)", 70),
        ("if rank: print('NCCL has not ended within 1 s', file=sys.stderr); sys.exit(6)", 6),
    ],
)
def test_what_only_a_rank_itself_knows_is_shown(
    run: Run, capfd: pytest.CaptureFixture[str], text: str, code: int
) -> None:
    assert run(text) == code
    assert capfd.readouterr().err.startswith("rank 1: ")


def test_what_rank_0_has_told_is_not_told_again(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("print('Error: no GPU', file=sys.stderr); sys.exit(6)") == 6
    assert capfd.readouterr().err == "Error: no GPU\n"
