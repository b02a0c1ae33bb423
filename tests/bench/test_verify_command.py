"""`verify` beside libraries: what could not be decided counts, if that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fake_gpu import fake_gpu
from tests.libraries.fakes import use_fakes

Call = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("small")


@pytest.mark.parametrize(
    ("fakes", "options", "code"),
    [("FINE", ("--strict",), 0), ("FINE,MISSING", ("--strict",), 4), ("FINE,MISSING", (), 0)],
)
def test_libraries_that_were_not_tried_are_undecided(
    cudareduce: Call, cache: Path, monkeypatch: pytest.MonkeyPatch, fakes: str,
    options: tuple[str, ...], code: int,
) -> None:  # fmt: skip
    use_fakes(monkeypatch, fakes)
    ask = ("verify", "reduce_v7_shuffle", "--n", "64", "--peers", "all", *options)
    with fake_gpu(monkeypatch, cache):
        done, out, _ = cudareduce(*ask)
    assert done == code, out
    assert "peer:fine" in out
