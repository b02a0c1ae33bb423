"""Annotations, step summary, comment and JUnit XML for CI services."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cudareduce.report.ci import MARKER, Finding, comment_of, workflow_commands
from cudareduce.text import json_shown, lines_shown, shown, source_shown
from tests.conftest import ROOT

ON_GITHUB = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": "/checkout"}


@pytest.mark.parametrize(("failures", "named"), [(0, 0), (1, 1), (10, 10), (11, 9), (12, 9)])
def test_many_failures_are_ten_annotations(failures: int, named: int) -> None:
    """One a kernel, however many of its sizes fail; those that are left are named."""
    found = [
        Finding(f"k{k}", f"n = {n}", "GONE" if k == failures - 1 else "SLOWER", "by 30 %", "failed")
        for k in range(failures) for n in (1, 2, 3)
    ]  # fmt: skip
    found.append(Finding("kernel_b", "n = 1", "SAME", "by 0 %", "passed"))
    lines = workflow_commands(found, lambda _: (Path("/checkout/a.cu"), 3), ON_GITHUB)
    rest = "; and 2 more of this kernel"
    assert lines[: min(named, failures - 1)] == [
        f"::error file=a.cu,line=3,title=SLOWER%3A k{k}::n = 1: by 30 %25{rest}"
        for k in range(min(named, failures - 1))
    ]
    left = [f"SLOWER k{k}" for k in range(9, failures - 1)] + [f"GONE k{failures - 1}"]
    more = f"::error title=cudareduce::{failures - 9} more fail: {', '.join(left)}"
    assert lines[named:] == (
        [f"{more}; the step summary lists them"] if failures > 10 else []
    )  # fmt: skip
    assert workflow_commands(found, lambda _: None, {}) == []


def test_a_missing_kernel_has_no_file_and_line() -> None:
    gone = Finding("k", "sum", "GONE", "it is not in the new run", "failed")
    [line] = workflow_commands([gone], lambda _: None, ON_GITHUB)
    assert line == "::error title=GONE%3A k::sum: it is not in the new run"


def test_a_comment_is_no_longer_than_one_may_be() -> None:
    whole = comment_of("a line\n\n" * 3)
    assert whole == f"{MARKER}\n\n" + "a line\n\n" * 3
    text = comment_of("a line\n\n" * 20_000)
    assert len(text) < 65_536
    assert text.endswith("a line\n\nCut off here: a comment holds 65 536 characters.\n")


@pytest.mark.parametrize(
    ("text", "shown_as"),
    [("::error::x", "\\x3a:error::x"), ("a ##[stop-commands]b", "a #\\x23[stop-commands]b"),
     ("note: ::set-env", "note: \\x3a:set-env"), ("peer:cub::x a::b", "peer:cub::x a::b")],
)  # fmt: skip
def test_a_text_from_a_file_is_no_command_in_a_log(text: str, shown_as: str) -> None:
    assert shown(text) == shown_as
    assert lines_shown(f"x\n{text}") == f"x\n  | {shown_as}"


def test_json_and_source_texts_are_no_commands_in_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(json_shown(json.dumps("a ##[error]"))) == "a ##[error]"
    assert "##[" not in json_shown(json.dumps("a ##[error]"))
    source = "::error::x\n// ##[error]\n\tint x;\n"
    for name in ("GITHUB_ACTIONS", "TF_BUILD"):
        monkeypatch.delenv(name, raising=False)
    assert source_shown(source) == source
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert source_shown(source) == "\\x3a:error::x\n// #\\x23[error]\n\tint x;\n"


@pytest.mark.parametrize(
    "command",
    [("list",), ("list", "--format", "json"), ("list", "--tree"), ("show", "evil"),
     ("verify", "evil", "--n", 9, "--backend", "cpu", "--format", "json")],
    ids=str,
)  # fmt: skip
def test_no_command_prints_a_command_of_a_kernel_file(
    cudareduce: Callable[..., tuple[int, str, str]], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, command: tuple[object, ...],
) -> None:  # fmt: skip
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    text = (ROOT / "kernels/ladder/reduce_v0_baseline.cu").read_text()
    text = re.sub(r"title .*", 'title = "a ##[stop-commands]b"', text)
    text = text.replace("reduce_v0_baseline", "evil") + "/*\n::error::x\n##[error]\n*/\n"
    (tmp_path / "evil.cu").write_text(text)
    code, out, err = cudareduce(*command, "--kernels", tmp_path)
    assert code == 0, err
    assert not [line for line in (out + err).splitlines() if re.search(r"##\[|^\s*::", line)]


def test_a_comment_links_nothing_of_a_file() -> None:
    text = comment_of("see https://x.y, HTTP://x, www.x.y, GH-12, " + 40 * "a" + ", `https://x.y`")
    for link in ("https://x.y,", "HTTP://", "www.x", "GH-12", 40 * "a"):
        assert link not in text
    assert "`https://x.y`" in text
