"""Two trees: each kernel is compiled with the prelude of its own tree."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cudareduce.catalog.kernel import Kernel
from cudareduce.catalog.registry import kernels_folder
from cudareduce.compare.request import CheckRequest, Judging
from cudareduce.compare.trees import base_files, base_tree
from cudareduce.launch.prelude import device_folder, source
from cudareduce.reduction.operators import reduction_of
from cudareduce.report.publish import Outputs

NAME = "reduce_v0_baseline"
MARK = "// as it was before\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A tree with one kernel, and operators of its own."""
    tree = tmp_path / "tree"
    (tree / "kernels" / "ladder").mkdir(parents=True)
    shutil.copy(kernels_folder() / "ladder" / f"{NAME}.cu", tree / "kernels" / "ladder")
    device = tree / "cudareduce" / "launch" / "device"
    shutil.copytree(device_folder(), device)
    text = (device / "sum.cuh").read_text()
    (device / "sum.cuh").write_text(MARK + text)
    (device / "struct_shuffles.cuh").unlink()  # as in a tree from before there was such a file
    return tree


def text_of(kernel: Kernel, op: str = "sum") -> str:
    return source(kernel, reduction_of(op, "float32"), "only", 256, 1).text


@pytest.mark.parametrize("inner", ["", "kernels"])
def test_a_folder_brings_its_own_operators(checkout: Path, tmp_path: Path, inner: str) -> None:
    kernels, problems = base_tree(str(checkout / inner), [kernels_folder()], tmp_path)
    assert problems == []
    assert MARK in text_of(kernels[NAME])
    assert "STRUCT_SHUFFLE" in text_of(kernels[NAME], "argmax")  # this package's, for want of one


def test_a_folder_of_kernels_alone_uses_the_operators_of_this_package(
    checkout: Path, tmp_path: Path
) -> None:
    shutil.rmtree(checkout / "cudareduce")
    kernels, _ = base_tree(str(checkout), [kernels_folder()], tmp_path)
    assert kernels[NAME].prelude is None
    assert MARK not in text_of(kernels[NAME])


def test_a_revision_brings_its_own_operators(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        name = "-c", "user.name=t", "-c", "user.email=t@t"
        subprocess.run(["git", "-C", checkout, *name, *words], check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "before")
    own = checkout / "cudareduce" / "launch" / "device"
    (own / "sum.cuh").write_text((own / "sum.cuh").read_text().replace(MARK, ""))
    monkeypatch.setattr("cudareduce.compare.trees.device_folder", lambda: own)
    kernels, _ = base_tree("HEAD", [checkout / "kernels"], tmp_path / "unpacked")
    assert MARK in text_of(kernels[NAME])
    monkeypatch.setattr("cudareduce.compare.trees.device_folder", device_folder)
    kernels, _ = base_tree("HEAD", [checkout / "kernels"], tmp_path / "again")
    assert MARK not in text_of(kernels[NAME])  # another checkout's: it does not know the package


def test_a_named_file_is_looked_for_in_the_base(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tmp_path / "before"
    before.mkdir()
    file = tmp_path / f"{NAME}.cu"
    for path in (file, before / file.name):
        shutil.copy(kernels_folder() / "ladder" / file.name, path)
    monkeypatch.chdir(tmp_path)
    request = CheckRequest(base=str(before), judging=Judging(), outputs=Outputs())
    kernels, problems = base_files(request, [Path(file.name), Path("new.cu")], tmp_path / "into")
    assert [kernel.path for kernel in kernels.values()] == [before / file.name]
    assert problems == [f"{before} has no new.cu"]
