"""Files in the shapes that people write: what is said of each is what its first line expects."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cudareduce.compare.nvcc import Compiled, find_nvcc, jobs
from cudareduce.library.foreign import adopt
from cudareduce.library.guesses import Guesses
from cudareduce.machine.host import installed
from tests.conftest import ROOT

Call = Callable[..., tuple[int, str, str]]
CODES = {"right": 0, "refused": 2, "wrong": 3}
SHAPES = sorted((ROOT / "tests/foreign_shapes").glob("*.cu*"))
#: What CUDA 13 itself does not compile: CUB lost its operators.
NOT_BY_NVCC = {"warp_sums_by_cub"}
#: What is not yet as it should be.
OPEN: dict[str, str] = {}


def _shape(path: Path) -> object:
    marks = [pytest.mark.xfail(reason=OPEN[path.stem], strict=True)] if path.stem in OPEN else []
    return pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize("path", [_shape(path) for path in SHAPES])
def test_files_of_others(cudareduce: Call, path: Path) -> None:
    said = re.search(r"// expected: (\w+)(?:  if: (.*?)  shape)?", path.read_text())
    assert said is not None
    code, out, err = cudareduce("verify", path, "--backend", "cpu")
    assert code == CODES[said[1]], out + err
    assert f"right if {said[2]}" in out if said[2] else True
    for words in re.findall(r"^// says: (.*)$", path.read_text(), re.MULTILINE):
        assert words in out + err


@pytest.mark.slow
@pytest.mark.skipif(not list(installed("nvcc")), reason="nvcc was not found")
@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in SHAPES])
def test_what_is_right_compiles_for_a_gpu(path: Path) -> None:
    """With CUDA's own headers, where the emulator has its own."""
    text = path.read_text()
    if "// expected: right" not in text or path.stem in NOT_BY_NVCC:
        pytest.skip("is not right")
    for kernel in adopt(path, text, Guesses()).kernels:
        for job in jobs([kernel], (90,), None):
            assert isinstance(find_nvcc().compile(job.source, 90), Compiled)
