"""`links` as a user calls it, on the emulator; and what it is told of GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cudareduce.results.store import load
from tests.conftest import ROOT

Ranks = Callable[..., tuple[int, str, str]]


@pytest.fixture
def links(cache: Path, tmp_path: Path) -> Ranks:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "cudareduce").symlink_to(cache)
    home = os.environ | {"XDG_CACHE_HOME": str(shared), "COLUMNS": "80", "PYTHONPATH": str(ROOT)}

    def call(*arguments: object) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "cudareduce", "links", *map(str, arguments)],
            env=home, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    return call


WAYS = ("read:one_way", "read:both", "write:one_way", "write:both", "flag:ordered", "flag:relaxed")


def test_the_table(links: Ranks) -> None:
    code, out, err = links("--backend", "cpu")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == "links of 2 ranks, CPU emulator: answers only, nothing is timed"
    assert lines[2].split() == ["way", "answer"]
    assert [tuple(line.split()) for line in lines[4:10]] == [(way, "right") for way in WAYS]


def test_a_file_of_three_ranks(links: Ranks, tmp_path: Path) -> None:
    file = tmp_path / "links.json"
    code, out, err = links("--backend", "cpu", "--ranks", 3, "--json", file, "--format", "csv")
    assert code == 0, err
    assert len(out.splitlines()) == 1 + len(WAYS)
    run = load(file)
    assert [(r.kernel, r.engine, r.ranks, r.time_us) for r in run.records] == [
        ("links", way, 3, None) for way in WAYS
    ]
    assert json.loads(file.read_text())["protocol"]["gpus"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--ranks", "9"), "9"), (("--meet", "tcp://nowhere"), "give rank 0's host"),
     (("--json", "/no/such/place.json"), "/no/such")],
)  # fmt: skip
def test_what_cannot_be_asked(links: Ranks, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = links("--backend", "cpu", *arguments)
    assert (code, out) == (2, "")
    assert words in err
