"""Tables as people see them: in a terminal of 80 columns, and whole in a pipe."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from cudareduce.report.markdown import to_markdown
from cudareduce.report.section import Section
from cudareduce.report.sections import sections, verification_sections
from cudareduce.report.terminal import print_sections
from cudareduce.results.store import load
from tests.conftest import ROOT

RESULTS = ROOT / "results"
RUNS = sorted({*RESULTS.glob("*/b*.json")} - {RESULTS / "nvidia-h200" / "bench-float32.json"})
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
    lines, names = shown(found, capsys), {row[0] for section in found for row in section.rows}
    assert sum("±" in line for line in lines) == sum(len(section.rows) for section in found)
    assert max(len(line) for line in lines if "±" in line) <= 80
    if all(name.startswith("reduce_") for name in names):
        assert not any(line.startswith(" reduce_") for line in lines if "±" in line)


def test_a_common_prefix_moves_to_the_heading_in_narrow_tables(
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


def test_lineages_are_separate_and_name_their_reference(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = load(RESULTS / "nvidia-h200" / "bench-2p25-float32.json")
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


def test_rows_with_one_reason_share_a_note() -> None:
    """WRONG rows have a line each."""
    first = load(RUNS[0]).records[0]
    cases = (
        ("a", "sum", "skip", "no"), ("b", "sum", "skip", "no"), ("c", "max", "skip", "no"),
        ("c", "sum", "skip", "no"), ("d", "sum", "skip", "never"), ("e", "sum", "pass", ""),
        ("f", "sum", "fail", "off"), ("g", "sum", "fail", "off"),
        ("h", "sum", "pass", "left out: 3"), ("i", "sum", "pass", "left out: 3"),
    )  # fmt: skip
    records = [
        replace(first, kernel=kernel, op=op, verdict=verdict, reason=reason)
        for kernel, op, verdict, reason in cases
    ]
    [section] = verification_sections(records, "title")
    assert section.notes == (
        "skipped: no (4 rows): a, b (sum float32); c (max float32, sum float32)",
        "d sum float32: skipped: never",
        "f sum float32: WRONG: off",
        "g sum float32: WRONG: off",
        "left out: 3 (2 rows): h, i (sum float32)",
    )
    sums = tuple(r for r in records if r.op == "sum")
    [section] = sections(replace(load(RUNS[0]), records=sums))
    assert section.notes[:4] == (
        "f: WRONG: off", "g: WRONG: off", "skipped, no (3 rows): a, b, c", "d: skipped, never",
    )  # fmt: skip


def test_notes_wrap_between_words_on_a_terminal_alone(
    terminal: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = "/a/very/long/place" * 6 + ".cu:3"
    note = f"left out of this table: {place}: {'reduce_v7_shuffle, ' * 9}end"
    section = Section("title", ("kernel",), (), (note, "short"))
    first, *lines, last = shown([section], capsys)[1:]
    assert max(map(len, [first, *(line for line in lines if place not in line)])) <= 80
    assert any(line.strip().startswith(place) for line in lines) and last == "short"
    assert " ".join([first, *(line.strip() for line in lines)]) == note
    monkeypatch.delenv("FORCE_COLOR")
    assert shown([section], capsys)[1] == note
