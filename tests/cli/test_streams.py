"""Standard output and standard error that are full, closed, or left by their reader."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

DATA = "tests/data/simulated"
VERIFY = "verify reduce_v7_shuffle --n 1 --backend cpu"
COMPARE = f"compare {DATA}-before.json {DATA}-after.json"
FULL_DISK = "No space left on device"
FULL = f"cudareduce: cannot write to standard output: {FULL_DISK}; choose another place"


def shell(line: str, cache: Path, folder: Path, **environment: str) -> tuple[int, str]:
    """Exit code and standard error of a shell line, where `cudareduce` is this one."""
    (folder / "cudareduce").symlink_to(cache)  # what others have compiled
    done = subprocess.run(
        ["bash", "-c", line.replace("cudareduce", f"{sys.executable} -m cudareduce")],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False,
        env=os.environ | {"XDG_CACHE_HOME": str(folder)} | environment,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "words",
    ["--help", "list --format json", COMPARE, VERIFY, "show reduce_v7_shuffle"],
)
def test_a_full_disk_is_a_usage_error_of_every_command(
    words: str, cache: Path, tmp_path: Path
) -> None:
    code, err = shell(f"cudareduce {words} >/dev/full", cache, tmp_path)
    assert (code, err.splitlines()[-1]) == (2, FULL)
    assert "Traceback" not in err and "Exception ignored" not in err


@pytest.mark.parametrize("words", ["list", "completion bash", VERIFY])
def test_a_closed_standard_output_is_a_usage_error(words: str, cache: Path, tmp_path: Path) -> None:
    code, err = shell(f"cudareduce {words} >&-", cache, tmp_path)
    assert (code, err.splitlines()[-1]) == (2, FULL.replace(FULL_DISK, "it is closed"))
    assert "Traceback" not in err and "Exception ignored" not in err


def test_all_of_them_closed(cache: Path, tmp_path: Path) -> None:
    assert shell("cudareduce list >&- 2>&- <&-", cache, tmp_path) == (2, "")


def test_completion_into_a_full_disk(cache: Path, tmp_path: Path) -> None:
    line = "cudareduce >/dev/full"
    code, err = shell(line, cache, tmp_path, _CUDAREDUCE_COMPLETE="bash_source")
    assert (code, err.splitlines()) == (2, [FULL])


@pytest.mark.parametrize(
    ("words", "code", "where"),
    [(f"{COMPARE} --threshold 2%", 1, "2>/dev/full"), (VERIFY, 0, "2>&- <&-"),
     ("banch", 2, "2>/dev/full")],
)  # fmt: skip
def test_an_unwritable_standard_error_changes_no_exit_code(
    words: str, code: int, where: str, cache: Path, tmp_path: Path
) -> None:
    assert shell(f"cudareduce {words} {where}", cache, tmp_path) == (code, "")


@pytest.mark.parametrize("words", ["list", VERIFY])
def test_a_closed_pipe_is_no_error(words: str, cache: Path, tmp_path: Path) -> None:
    code, err = shell(f"cudareduce {words} | true; exit ${{PIPESTATUS[0]}}", cache, tmp_path)
    assert (code, "Error" in err) == (0, False), err


def test_a_result_file_on_a_full_disk(cache: Path, tmp_path: Path) -> None:
    code, err = shell(f"cudareduce {VERIFY} --quiet --json /dev/full", cache, tmp_path)
    assert (code, err.count("\n")) == (2, 1)
    assert "cannot write /dev/full: No space left on device" in err


def test_a_terminal_set_not_to_block_gets_all() -> None:
    """Pipes hold 64 KiB; a shell may have set what it shares with others not to block."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    script = ["import sys", "from cudareduce.cli.streams import guard_streams", "guard_streams()",
              "print(200_000 * 'x')"]  # fmt: skip
    command = [sys.executable, "-c", "\n".join(script)]
    with subprocess.Popen(command, stdout=write, stderr=subprocess.PIPE, cwd=ROOT) as process:
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            assert len(pipe.read()) == 200_001
        assert process.wait(60) == 0
