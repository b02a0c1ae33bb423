"""Values that no one means: each is answered at once, in one sentence, and with exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cudareduce.__main__ as program
from cudareduce.cli.main import cli
from cudareduce.cli.types import Word, Words
from cudareduce.reduction.dtypes import ALIASES, DTYPES
from tests.conftest import ROOT

Call = Callable[..., tuple[int, str, str]]
BENCH = ("bench", "reduce_v7_shuffle", "--backend", "cpu", "--quiet")
BASELINE = ROOT / "results" / "nvidia-h200" / "baseline.json"
#: Every option that takes a number, by the command that it is tried with.
FLOATS = {
    "--rtol": BENCH, "--time-limit": BENCH, "--max-time": BENCH, "--peak-gb-s": BENCH,
    "--threshold": ("compare", BASELINE, BASELINE),
}  # fmt: skip
COUNTS = {
    "--rounds": "10000", "--rows": "281474976710656", "--block": "1024", "--items": "65536",
    "--grid": "2147483647", "--shared": "1048576", "--device": "1023", "--seed": "4294967295",
}  # fmt: skip


@pytest.mark.parametrize("alias", ALIASES)
def test_a_common_name_of_a_type_is_the_type(alias: str) -> None:
    assert Words("DTYPES", DTYPES, ALIASES).parse(f"{alias},int8") == tuple(
        dict.fromkeys((ALIASES[alias], "int8"))
    )
    assert Word(DTYPES, ALIASES).parse(alias) in DTYPES


def test_dtype_takes_common_names(cudareduce: Call) -> None:
    code, out, _ = cudareduce(
        "verify",
        "reduce_v7_shuffle",
        "--backend",
        "cpu",
        "--n",
        9,
        "--dtype",
        "half,f32",
        "--quiet",
    )
    assert code == 0
    assert [word for word in out.split() if "float" in word] == ["float16", "float32"]


def refused(answer: tuple[int, str, str]) -> str:
    """The one sentence that a usage error is."""
    code, out, err = answer
    assert (code, out) == (2, ""), err
    assert err.startswith("cudareduce: ")
    assert err.count("\n") == 1, err
    assert "internal error" not in err
    assert len(err) < 600
    return err


@pytest.mark.parametrize("option", FLOATS)
@pytest.mark.parametrize("value", ["nan", "NaN", "inf", "-inf", "1e999", "-1", "", "x", "9" * 5000])
def test_numbers_that_are_not_finite_are_refused(cudareduce: Call, option: str, value: str) -> None:
    value = f"{value}%" if option == "--threshold" else value
    assert option in refused(cudareduce(*FLOATS[option], option, value))


@pytest.mark.parametrize(
    "arguments",
    [("selftest", "--max-time"), ("check", "--baseline", "x", "--time-limit"),
     ("reproduce", "bbuf", "--peak-gb-s"), ("sweep", "--max-time"), ("verify", "--rtol")],
    ids=" ".join,
)  # fmt: skip
def test_every_command_refuses_nan(cudareduce: Call, arguments: tuple[str, ...]) -> None:
    assert arguments[-1] in refused(cudareduce(*arguments, "nan"))


@pytest.mark.parametrize("option", COUNTS)
@pytest.mark.parametrize("value", [str(10**30), "10**30", "9" * 5000, "-1", "1.5", "", "two"])
def test_whole_numbers_have_limits(cudareduce: Call, option: str, value: str) -> None:
    err = refused(cudareduce(*BENCH, option, value))
    assert f"Invalid value for '{option}'" in err
    assert f"to {COUNTS[option]}" in err


def test_a_whole_number_is_written_as_a_size_is() -> None:
    for text in ("64", "2^6", "64 "):
        words = ["--rows", text]
        made = cli.commands["bench"].make_context("bench", words)
        assert made.params["rows"] == 64


@pytest.mark.parametrize(
    "value",
    ["", ",", "a\nb", "x" * 5000, "sum,,max"],
    ids=["empty", "comma", "line", "long", "gap"],
)
@pytest.mark.parametrize("option", ["--n", "--op", "--dtype", "--columns", "--timing", "--format"])
def test_invalid_words_are_refused(cudareduce: Call, option: str, value: str) -> None:
    assert option in refused(cudareduce(*BENCH, option, value))


def test_all_may_be_an_item_of_a_list(cudareduce: Call) -> None:
    code, _, err = cudareduce(*BENCH, "--columns", "error,all", "--op", "mean", "--n", "0")
    assert code == 0, err


#: Folders without kernels, names that a new file may have, and a folder of which nobody knows what
#: lies in it: somebody's /tmp/mine.cu is a kernel to measure against.
FINE = {
    *(("--kernels", name) for name in (".", "/", "..")), ("--json", "["), ("--json", "-"),
    ("--base", "/"),
}  # fmt: skip
NAMES = ["", ".", "/", "..", "a\nb", "x" * 5000, "x" * 5000 + ".cu", "y" * 300 + ".cu", "[", "-"]


@pytest.mark.parametrize("name", NAMES, ids=[name[:8] for name in NAMES])
@pytest.mark.parametrize(
    "command",
    [BENCH[:1], ("verify",), ("sweep",), ("show",), ("show", "--diff"), ("list",), ("reproduce",),
     ("selftest",), ("check", "--baseline", BASELINE), ("check", "--base", ROOT / "kernels"),
     ("completion",), ("bench", "--baseline-kernel"), ("list", "--kernels"), ("bench", "--json"),
     ("compare", BASELINE), ("compare", BASELINE, BASELINE, "--thresholds"),
     ("check", "--base"), ("report",), ("frobnicate",), ("reveal",), ("reveal", "--compare", "x")],
    ids=lambda words: " ".join(map(str, words)).replace(str(ROOT), ""),
)  # fmt: skip
def test_names_of_nothing_are_refused(
    cudareduce: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[object, ...],
    name: str,
) -> None:  # fmt: skip
    (tmp_path / "alone" / "here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "alone" / "here")
    if (command[-1], name) in FINE:
        return
    refused(cudareduce(*command, name))


@pytest.fixture
def odd_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, a pipe, devices, and files that are empty, huge, or no text."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.cu").mkdir()
    os.mkfifo(tmp_path / "pipe.cu")
    (tmp_path / "zero.cu").symlink_to("/dev/zero")
    (tmp_path / "null.cu").symlink_to("/dev/null")
    (tmp_path / "loop.cu").symlink_to("loop.cu")
    (tmp_path / "empty.cu").write_text("")
    (tmp_path / "bytes.cu").write_bytes(bytes(range(256)))
    with (tmp_path / "huge.cu").open("wb") as file:
        file.truncate(100_000_000)
    return tmp_path


@pytest.mark.parametrize("command", ["bench", "verify", "sweep", "show", "reveal"])
@pytest.mark.parametrize(
    ("name", "message"),
    [("folder", "it is a folder; name a file in it"), ("pipe", "it is a device or a pipe"),
     ("zero", "it is a device or a pipe"), ("null", "it is a device or a pipe"),
     ("loop", "symbolic link"), ("empty", ""), ("bytes", "not a text file"),
     ("huge", "more than 4 MiB")],
)  # fmt: skip
def test_a_kernel_file_that_is_no_regular_file_is_refused(
    cudareduce: Call, odd_files: Path, command: str, name: str, message: str
) -> None:
    assert message in refused(cudareduce(command, f"{name}.cu"))
    for idle in (("--entry", "x"), ()):
        if command == "bench":
            refused(cudareduce(command, f"{name}.cu", *idle))


@pytest.mark.parametrize(
    "command",
    [("compare", BASELINE), ("check", "--baseline"), ("check", "--compile", "--baseline"),
     ("compare", BASELINE, BASELINE, "--thresholds"), ("report",)],
    ids=lambda words: " ".join(map(str, words)).replace(str(ROOT), ""),
)  # fmt: skip
@pytest.mark.parametrize("name", ["/dev/zero", "/dev/null", "folder.cu", "loop.cu", "bytes.cu"])
def test_an_input_that_is_no_regular_file_is_refused(
    cudareduce: Call, odd_files: Path, command: tuple[object, ...], name: str
) -> None:
    refused(cudareduce(*command, name))


@pytest.mark.parametrize("name", ["compare", "check", "report", "show", "completion", "reproduce"])
def test_a_command_without_its_arguments_is_refused(
    cudareduce: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(cudareduce(name))


def test_ctrl_c_while_the_program_is_imported(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        def find_spec(self, name: str, *more: object) -> None:
            if name == "cudareduce.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "cudareduce.cli.main")
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 130
    assert capfd.readouterr().err == "cudareduce: interrupted\n"
