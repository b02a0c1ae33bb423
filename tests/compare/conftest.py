"""Fixtures for `check`: a machine that may change from process to process, and two kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cudareduce.bench.jobs import Jobs
from cudareduce.catalog.registry import kernels_folder
from tests.fake_gpu import FakeGpu, quick, use

SHUFFLE = kernels_folder() / "ladder" / "reduce_v7_shuffle.cu"


@dataclass
class Machine:
    """A fake GPU for each opening, on which kernels take so many times as long."""

    factors: dict[str, float]
    cache: Path
    seed: int = 0

    def __call__(self) -> FakeGpu:
        self.seed += 1
        return replace(quick(self.cache, self.seed), factors=dict(self.factors))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[Machine]:
    """It may take the place of another one, which has it back afterwards."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Jobs, "emulator", None)
    made = Machine({}, cache)
    with monkeypatch.context() as patch:
        use(patch, made)
        yield made


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    text = "\n".join(
        line for line in SHUFFLE.read_text().splitlines() if not line.startswith("after")
    )
    for name in ("kernel_a", "kernel_b"):
        (folder / f"{name}.cu").write_text(text.replace("reduce_v7_shuffle", name) + "\n")
    return folder
