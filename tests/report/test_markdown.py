"""Tables as people see them: in a terminal of 80 columns, and whole in a pipe."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from cudareduce.report.markdown import to_markdown
from cudareduce.report.sections import Section, sections
from cudareduce.report.terminal import print_sections
from cudareduce.results.store import load
from tests.conftest import ROOT

RESULTS = ROOT / "results"
RUNS = sorted(RESULTS.glob("*/b*.json"))
HEADER = ("kernel", "us", "words that take up as much room as they like")
WIDE = Section("title", HEADER, (("reduce_a", "1", 64 * "x"), ("reduce_b_c", "2", "-")))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")


def shown(found: Iterable[Section], capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_sections(found)
    plain = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    return [line.rstrip() for line in plain.splitlines() if line.strip()]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_all_kernels_fit_a_line_of_80(
    path: Path, terminal: None, capsys: pytest.CaptureFixture[str]
) -> None:
    found = sections(load(path))
    lines = shown(found, capsys)
    assert sum("±" in line for line in lines) == len(load(path).records)
    assert max(len(line) for line in lines if "±" in line) <= 80
    assert not any(line.startswith(" reduce_") for line in lines if "±" in line)


def test_what_all_names_begin_with_stands_above_where_there_is_no_room(
    terminal: None, capsys: pytest.CaptureFixture[str]
) -> None:
    narrow = shown([WIDE], capsys)
    assert [line.split()[0] for line in narrow] == ["title", "reduce_*", "─" * 76, "a", "b_c"]
    other = ("cub", "3", "-")
    mixed = shown([Section("title", HEADER, (*WIDE.rows, other, ("", "4", "-")))], capsys)
    assert [line.split()[0] for line in mixed[3:]] == ["reduce_a", "reduce_b_c", "cub", "4"]


def test_a_long_table_looks_the_same(
    terminal: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is laid out by hand, because Rich takes seconds for ten thousand rows."""
    found = sections(load(RUNS[0]))
    short = shown(found, capsys)
    monkeypatch.setattr("cudareduce.report.terminal._LONG", 0)
    long = shown(found, capsys)
    assert [text.rstrip() for text in long] == [text.rstrip() for text in short]


def test_a_pipe_gets_whole_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert [line.split()[0] for line in shown([WIDE], capsys)[3:]] == ["reduce_a", "reduce_b_c"]
    lines = shown(sections(load(RUNS[0])), capsys)
    assert any(line.startswith(" reduce_v5_completely_unroll ") for line in lines)


def test_lineages_stand_apart_and_the_reference_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = load(RUNS[0])
    first, *others = run.records
    assert first.baseline is not None
    two = replace(run, records=(replace(first, baseline="another"), *others))
    [section, *_] = sections(two)
    assert section.rules == (1,)
    assert any("speedup: against another and " in note for note in section.notes)
    [whole, *_] = sections(replace(run, records=tuple(others)))
    assert whole.rules == ()
    assert sum(note.startswith("speedup: against ") for note in whole.notes) == 1
    lines = to_markdown([section]).splitlines()
    blank = [k for k, line in enumerate(lines) if line and set(line) <= set("| ")]
    assert len(blank) == 1 and first.kernel in lines[blank[0] - 1]
