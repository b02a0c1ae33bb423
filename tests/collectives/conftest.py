"""Fixtures for tests with ranks, which run the command line in processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT

Ranks = Callable[..., tuple[int, str, str]]


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
