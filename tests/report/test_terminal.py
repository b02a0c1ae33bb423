"""Standard output and files that are no plain ones: readers that leave, pipes, devices, links."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cudareduce.errors import UsageError
from cudareduce.report.publish import Outputs
from cudareduce.results.store import write_text
from tests.conftest import ROOT

DATA = ROOT / "tests" / "data"
BEFORE, AFTER = DATA / "simulated-before.json", DATA / "simulated-after.json"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("compare", BEFORE, AFTER, "--threshold", "2%"), 1),
        (("list",), 0),
        (("verify", "reduce_v7_shuffle", "--n", "1", "--backend", "cpu", "--format", "csv"), 0),
    ],
)
def test_a_reader_that_leaves_changes_no_exit_code(
    words: tuple[object, ...], code: int, tmp_path: Path, cache: Path
) -> None:
    (tmp_path / "cudareduce").symlink_to(cache)  # what others have compiled: a busy machine is slow
    command = [sys.executable, "-m", "cudareduce", *map(str, words)]
    junit = tmp_path / "junit.xml"
    if words[0] == "compare":
        command += ["--junit", str(junit)]
    read, write = os.pipe()
    os.close(read)  # gone before the first line
    with os.fdopen(write, "w") as pipe:
        done = subprocess.run(
            command, stdout=pipe, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False,
            env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)},
        )  # fmt: skip
    assert (done.returncode, done.stderr.count("Error")) == (code, 0), done.stderr
    assert junit.exists() == (words[0] == "compare")


def test_characters_outside_the_encoding_are_spelled_out() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cudareduce", "compare", BEFORE, AFTER, "--threshold", "2%"],
        capture_output=True, cwd=ROOT, check=False, env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, b"")
    assert re.search(rb"\+\d+\.\d\+-\.\d%", done.stdout)


def test_special_files_are_kept(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
        write_text(pipe, "whole\n")
        assert reader.communicate(timeout=120)[0] == "whole\n"
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink() and target.read_text() == "new"


def test_a_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("old")
    path.chmod(0o600)
    write_text(path, "new")
    assert (stat.S_IMODE(path.stat().st_mode), path.read_text()) == (0o600, "new")


def test_two_outputs_are_two_files(tmp_path: Path) -> None:
    one, other = tmp_path / "x", tmp_path / "y"
    Outputs(csv=one, json=other).check()
    with pytest.raises(UsageError, match=r"--json and --csv are one file, .*: choose another name"):
        Outputs(csv=one, json=tmp_path / "." / "x").check()
    null = Path(os.devnull)  # a device takes as many as there are
    Outputs(csv=null, json=null).check()
