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
OPEN = {
    "fixed_count": "no size above the constant of the file is tried",
    "fixed_count_stride": "a fixed count is not found out",
    "in_place_tree": "the input is not restored before a launch",
    "items_by_template": "whole tiles are not tried where there is a count",
    "largest_by_name": "a NaN that is dropped is wrong",
    "needs_its_block": "the block is not taken from the file's constants",
    "one_warp": "a fixed count is not found out",
    "quads_without_rest": "multiples are not tried where there is a count",
    "sum_of_squares": "a map is not told from a wrong sum",
    "unguarded_second_half": "whole tiles are not tried where there is a count",
}


def _shape(path: Path) -> object:
    marks = [pytest.mark.xfail(reason=OPEN[path.stem], strict=True)] if path.stem in OPEN else []
    return pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [_shape(path) for path in sorted((ROOT / "tests/foreign_shapes").glob("*.cu*"))]
)
def test_files_of_others(cudareduce: Call, path: Path) -> None:
    said = re.match(r"// expected: (\w+)", path.read_text())
    assert said is not None
    code, out, err = cudareduce("verify", path, "--backend", "cpu")
    assert code == CODES[said[1]], out + err
