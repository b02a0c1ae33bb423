"""The figures of a corpus: what is expected of each kernel beside what was said of it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests import foreign_corpus
from tests.conftest import ROOT

SHAPES = ROOT / "tests" / "foreign_shapes"


@pytest.mark.slow
def test_a_corpus_of_three_external_files_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "files" / "theirs"
    folder.mkdir(parents=True)
    for name in ("host_constexpr.cu", "arrival_without_fence.cu"):
        shutil.copy(SHAPES / name, folder)
    lines = [
        ("file", "kernel", "class"),
        ("theirs/host_constexpr.cu", "add_all", "right"),
        ("theirs/host_constexpr.cu", "another", "right-if:it were there"),
        ("theirs/arrival_without_fence.cu", "last_adds", "wrong:line 13"),
    ]
    (tmp_path / "index.tsv").write_text("\n".join("\t".join(line) for line in lines))
    monkeypatch.setattr(sys, "argv", ["foreign_corpus", str(tmp_path)])
    foreign_corpus.main()
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("theirs/host_constexpr.cu another: none (")
    assert out[2:] == [
        "right          pass   1",
        "right-if       none   1",
        "wrong          fail   1",
        "    1 files with a right kernel",
        "    1 files of them with one that verifies",
        "    0 files of them with all that verify",
        "    0 files internal errors",
        "    0 files hangs",
        "right kernels that verify bare: 1 of 2",
        "wrong kernels that pass: 0",
    ]
