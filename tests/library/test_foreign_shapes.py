"""Files in the shapes that people write: what is said of each is what its first line expects."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT

Call = Callable[..., tuple[int, str, str]]
CODES = {"right": 0, "refused": 2, "wrong": 3}
#: What is not yet as it should be.
OPEN: dict[str, str] = {}


def _shape(path: Path) -> object:
    marks = [pytest.mark.xfail(reason=OPEN[path.stem], strict=True)] if path.stem in OPEN else []
    return pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [_shape(path) for path in sorted((ROOT / "tests/foreign_shapes").glob("*.cu*"))]
)
def test_files_of_others(cudareduce: Call, path: Path) -> None:
    said = re.match(r"// expected: (\w+)(?:  if: (.*?)  shape)?", path.read_text())
    assert said is not None
    code, out, err = cudareduce("verify", path, "--backend", "cpu")
    assert code == CODES[said[1]], out + err
    assert f"right if {said[2]}" in out if said[2] else True
