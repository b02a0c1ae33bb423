"""What a shell is offered, and the script that asks."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from cudareduce.catalog.registry import Registry
from cudareduce.cli.main import cli
from tests.conftest import ROOT

Call = Callable[..., tuple[int, str, str]]


def offered(*words: str) -> list[str]:
    """What may stand in place of the last word."""
    shell = BashComplete(cli, {}, "cudareduce", "_CUDAREDUCE_COMPLETE")
    return [f"{i.type}:{i.value}" if i.type != "plain" else i.value
            for i in shell.get_completions(list(words[:-1]), words[-1])]  # fmt: skip


def test_kernels_suites_and_all(registry: Registry) -> None:
    everything = offered("bench", "")
    assert {*registry.kernels, *registry.suites, "all"} <= set(everything)
    assert offered("verify", "reduce_v7") == ["reduce_v7_shuffle"]
    assert offered("bench", "reduce_v7_shuffle", "fa") == ["fastcuda"]
    assert offered("show", "reduce_block_a") == ["reduce_block_atomic"]
    assert offered("show", "fastc") == ["file:fastc"]
    assert offered("selftest", "reduce_v0") == ["reduce_v0_baseline"]
    assert offered("bench", "--baseline-kernel", "reduce_v0") == ["reduce_v0_baseline"]


def test_short_names_and_families() -> None:
    assert offered("bench", "v7") == ["v7_shuffle"]
    assert offered("show", "ring") == ["ring_tickets"]
    assert offered("tune", "ladd") == ["ladder"]
    assert offered("list", "atom") == ["atomic"]  # the family, not also the kernel
    assert "v7_shuffle" not in offered("bench", "")


def test_names_of_suites_are_completed(registry: Registry) -> None:
    assert offered("reproduce", "") == sorted(registry.suites)
    assert offered("reproduce", "nothing") == []
    assert {*registry.suites, "peers"} <= set(offered("list", ""))


def test_files_and_folders_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    for name in ("mine.cu", "mine/other.cu", "notes.txt"):
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    assert offered("bench", "mi") == ["mine.cu"]
    assert offered("bench", "./m") == ["./mine.cu"]
    assert offered("bench", "mine/") == ["mine/other.cu"]
    assert offered("bench", "no") == ["file:no"]  # the shell goes on
    assert offered("bench", "--kernels", "mine", "oth") == ["other"]
    assert offered("list", "--kernels", "m") == ["dir:m"]
    assert offered("compare", "m") == ["file:m"]


def test_the_last_item_of_a_list_is_completed() -> None:
    assert offered("bench", "--op", "m") == ["min", "max", "mean", "matmul"]
    assert offered("bench", "--op", "sum,m") == ["sum,min", "sum,max", "sum,mean", "sum,matmul"]
    assert offered("bench", "--op", "min,max,m") == ["min,max,mean", "min,max,matmul"]
    assert "float32,int8" in offered("verify", "--dtype", "float32,")
    assert offered("bench", "--timing", "cold,") == ["cold,warm"]
    assert offered("bench", "--pattern", "c") == ["cancel"]
    assert offered("completion", "") == ["bash", "zsh", "fish"]


def test_no_kernel_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*arguments: object, **more: object) -> None:
        raise AssertionError("a header was read")

    monkeypatch.setattr(Path, "read_text", opened)
    assert offered("bench", "reduce_v7") == ["reduce_v7_shuffle"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_explains_its_installation(cudareduce: Call, shell: str) -> None:
    code, out, err = cudareduce("completion", shell)
    assert (code, err) == (0, "")
    comments = [line for line in out.splitlines()[:2] if line.startswith("# to install")]
    assert len(comments) == 1
    assert f"cudareduce completion {shell}" in comments[0]
    assert "_CUDAREDUCE_COMPLETE" in out
    if shell == "zsh":
        assert out.startswith("#compdef cudareduce\n")
    if shell == "fish":  # else a list with commas would be taken for its first word
        assert 'string split --max 1 ","' in out
    if shutil.which(shell):
        done = subprocess.run([shell, "-n"], input=out, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_shell_asks_through_the_environment(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("_CUDAREDUCE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "cudareduce bench --op sum,ma")
    monkeypatch.setenv("COMP_CWORD", "3")
    code, out, _ = cudareduce()
    assert (code, out) == (0, "plain,sum,max\nplain,sum,matmul\n")
