"""The compiler cache of tests that read external files."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def shared_cache(cache: Path, tmp_path: Path) -> None:
    """Make `tmp_path / "cache"` the compiler cache of all tests, which has the runtime."""
    (tmp_path / "cache").symlink_to(cache)
