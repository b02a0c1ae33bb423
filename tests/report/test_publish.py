"""`-` is standard output; texts of others neither steer a terminal nor pass for one of ours."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cudareduce.report.ci import Finding, junit, workflow_commands
from cudareduce.report.markdown import to_markdown
from cudareduce.report.section import Section
from cudareduce.report.terminal import print_sections
from cudareduce.results.store import load, to_csv, to_json
from cudareduce.text import lines_shown, shown
from tests.conftest import ROOT, read_result

Call = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("small")
DATA = ROOT / "tests" / "data"
PAIR = DATA / "simulated-before.json", DATA / "simulated-after.json"
VERIFY = ("verify", "reduce_v7_shuffle", "--n", "1", "--backend", "cpu", "--quiet")
HOSTILE = "a\x1b[2J\r\x07\u202e\x9b [red]b[/red] | <c>"
ESCAPED = "a\\x1b[2J\\r\\x07\\u202e\\x9b [red]b[/red] | <c>"


@pytest.mark.parametrize("kind", ["json", "csv", "markdown"])
def test_a_dash_prints_what_a_file_would_hold(
    cudareduce: Call, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = cudareduce(*VERIFY, f"--{kind}", "-", "--csv" if kind == "json" else "--json",
                              tmp_path / "file")  # fmt: skip
    assert (code, out) == (0, cudareduce(*VERIFY, "--format", kind)[1]) or kind == "json"
    assert kind != "json" or read_result(out)["records"][0]["verdict"] == "pass"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_comparison_prints_on_a_dash(cudareduce: Call) -> None:
    code, out, _ = cudareduce("compare", *PAIR, "--threshold", "2%", "--markdown", "-")
    assert (code, out.startswith("**simulated-after.json against")) == (1, True)
    code, out, err = cudareduce("compare", *PAIR, "--junit", "-")
    assert (code, out.startswith("<?xml"), err) == (0, True, "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*VERIFY, "--json", "-", "--csv", "-"), "--csv and --json both print on standard output"),
        ((*VERIFY, "--json", "-", "--format", "csv"), "--json and --format both print on"),
        (("bench", "--markdown", "-", "--format", "json"), "--markdown and --format both print"),
        (("selftest", "--json", "-", "--markdown", "-"), "--markdown and --json both print"),
        (("reproduce", "fastcuda", "--csv", "-", "--format", "fastcuda"), "--csv and --format"),
        (("compare", *PAIR, "--markdown", PAIR[0]), "are one file"),
    ],
)
def test_standard_output_holds_one_format(
    cudareduce: Call, words: tuple[object, ...], message: str
) -> None:
    code, out, err = cudareduce(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_control_characters_are_escaped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown(HOSTILE) == ESCAPED
    assert shown("±, ─ and 中 are text") == "±, ─ and 中 are text"
    assert lines_shown("one\n::error::two\tx") == "one\n  | \\x3a:error::two    x"
    section = Section(HOSTILE, ("kernel", "n"), ((HOSTILE, "1"),), (f"{HOSTILE}\n::error::x",))
    monkeypatch.setenv("COLUMNS", "200")
    for terminal in ("", "1"):
        monkeypatch.setenv("TTY_COMPATIBLE", terminal)
        print_sections([section])
        out = capsys.readouterr().out
        assert out.count(ESCAPED) == 2 and out.count("[red]b[/red] | <c>") == 3
        assert not set("\x07\x9b\r\u202e") & set(out) and "\x1b[2J" not in out
        assert not any(line.lstrip().startswith("::") for line in out.splitlines())
    page = to_markdown([section])
    assert page.isprintable() is False and set(filter(lambda c: not c.isprintable(), page)) == {
        "\n"
    }
    assert "[red]b[/red] \\| \\<c>" in page


def test_annotations_and_files_hold_escapes() -> None:
    finding = Finding("k\x1b", "sum\x9b", "WRONG", "why\x1b\nand more", "failed")
    [line] = workflow_commands([finding], lambda kernel: None, {"GITHUB_ACTIONS": "true"})
    assert line == "::error title=WRONG%3A k\\x1b::sum\\x9b: why\\x1b%0Aand more"
    assert "why\\x1b&#10;and more" in junit([finding], "cudareduce")


def test_csv_escapes_what_json_keeps() -> None:
    run = load(PAIR[0])
    made = replace(run, records=(replace(run.records[0], reason=HOSTILE),))
    [row] = csv.DictReader(to_csv(made).splitlines())
    assert row["reason"] == ESCAPED
    assert read_result(to_json(made))["records"][0]["reason"] == HOSTILE


def test_errors_name_files_without_their_escapes(cudareduce: Call, tmp_path: Path) -> None:
    code, _, err = cudareduce("compare", tmp_path / "\x1b[2J\n::error::x", PAIR[0])
    assert code == 2
    assert "\x1b" not in err and "contains control characters" in err
    assert not any(line.lstrip().startswith("::") for line in err.splitlines())


def test_a_long_title_is_wrapped_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    title = " ".join(["simulated-after.json against"] * 6)
    print_sections([Section(title, ("a",), (("b",),))])
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines[:3]).split()) == title
