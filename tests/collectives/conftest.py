"""Fixtures for tests with ranks, which run the command line in processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT

Printed = tuple[int, str, str]
Ranks = Callable[..., Printed]
Torchrun = Callable[..., list[Printed]]


@pytest.fixture
def home(cache: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of ranks, with the compiler cache of all tests."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "cudareduce").symlink_to(cache)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return os.environ | {"XDG_CACHE_HOME": str(shared), "COLUMNS": "80", "PYTHONPATH": path}


@pytest.fixture
def folder(cache: Path, tmp_path: Path) -> Path:
    """The folder of a job; `compiled` is the compiler cache of all tests."""
    (tmp_path / "compiled").symlink_to(cache)
    return tmp_path


@pytest.fixture
def ranks(home: dict[str, str]) -> Ranks:
    """Run a command: exit code, standard output, standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "cudareduce", *map(str, arguments)],
            env=home, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    return call


@pytest.fixture
def torchrun(home: dict[str, str], tmp_path: Path) -> Torchrun:
    """Run one command per rank, as torchrun starts them, each in its folder: exit codes, standard
    outputs and standard errors."""

    def call(*commands: tuple[object, ...], folders: Sequence[Path] = ()) -> list[Printed]:
        size = len(commands)
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", "cudareduce", *map(str, command)],
                env=home | {"RANK": str(k), "WORLD_SIZE": str(size), "LOCAL_RANK": str(k)},
                cwd=folders[k] if folders else tmp_path,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            ) for k, command in enumerate(commands)
        ]  # fmt: skip
        printed = [rank.communicate(timeout=60) for rank in ranks]
        return [(rank.returncode, *texts) for rank, texts in zip(ranks, printed, strict=True)]

    return call
