"""Files that are to be NCCL, and what they do to who loads them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cudareduce.collectives import nccl
from cudareduce.collectives.nccl import version_in
from cudareduce.errors import UsageError
from tests.collectives import nccls


def library(folder: Path, body: str) -> Path:
    """One whose loading does something."""
    path = folder / "loaded.so"
    text = f"__attribute__((constructor)) static void loaded() {{ {body} }}"
    subprocess.run(["g++", "-shared", "-fPIC", "-x", "c++", "-o", str(path), "-"],
                   input=f"#include <unistd.h>\n#include <stdlib.h>\n{text}", text=True,
                   check=True)  # fmt: skip
    return path


def test_the_version(tmp_path: Path) -> None:
    assert version_in(nccls.compiled(tmp_path, "sound", "VERSION=22703")) == "2.27.3"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("abort();", "ends its process by SIGABRT"),
        ("exit(1);", "ends its process with code 1"),
        ("exit(0);", "ends its process with code 0"),
        ("for (;;) pause();", "does not tell its version within 1 s"),
        ("", "is no NCCL, as it has no ncclGetVersion"),
    ],
)
def test_what_ends_or_holds_who_loads_it(
    tmp_path: Path, body: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nccl, "_LIMIT_S", 60.0 if "pause" not in body else 1.0)
    with pytest.raises(UsageError, match=why):
        version_in(library(tmp_path, body))
