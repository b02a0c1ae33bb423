"""Results as people read them: tables for a terminal, Markdown, and the blocks of a README.

Every format is made from the same sections, so they cannot tell different stories.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cudareduce.errors import UsageError
from cudareduce.figures import (
    DASH,
    error_text,
    rate_text,
    ratio_text,
    share_text,
    size_text,
    spread_text,
    time_text,
)
from cudareduce.record import Record, Run
from cudareduce.store import load

_MARKER = re.compile(
    r"(?P<open><!-- cudareduce: (?P<file>\S+) -->\n).*?(?P<close><!-- /cudareduce -->)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Section:
    """A table with its heading and the notes below it; cells are text."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    texts: int = 1  # how many columns, from the left, hold words and not numbers


def sections(run: Run) -> list[Section]:
    """A section for each reduction and size of a run."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    for r in run.records:
        groups.setdefault((r.op, r.dtype, r.acc, r.n, r.rows), []).append(r)
    return [_section(run, group) for group in groups.values()]


#: Makes the sections of a run.
Tables = Callable[[Run], list[Section]]


def _section(run: Run, records: Sequence[Record]) -> Section:
    first = records[0]
    what = f"{first.op} of {size_text(first.n)} {first.dtype}"
    if first.rows != 1:
        what += f" x {size_text(first.rows)} rows"
    if first.acc != first.dtype:
        what += f", accumulated in {first.acc}"
    shown = [record for record in records if record.verdict != "skip"]
    notes = [
        f"{_label(record)}: skipped, {record.reason}" for record in records
        if record.verdict == "skip"
    ]  # fmt: skip
    wrong = [f"{_label(r)}: WRONG: {r.reason}" for r in shown if r.verdict == "fail"]
    if any(record.time_us is not None for record in shown):
        timed = _timed(run, what, shown)
        return Section(timed.title, timed.header, timed.rows, (*wrong, *notes, *timed.notes))
    title = f"{what}, {run.device.name}: answers only, nothing is timed"
    header = ("kernel", "blocks", "passes", "answer", "error", "bound")
    rows = tuple(
        (
            _label(r), str(r.grid), str(r.passes), "right" if r.verdict == "pass" else "WRONG",
            error_text(r.error), error_text(r.bound),
        )
        for r in shown
    )  # fmt: skip
    return Section(title, header, rows, (*wrong, *notes))


def _timed(run: Run, what: str, records: Sequence[Record]) -> Section:
    first = next(record for record in records if record.time_us is not None)
    title = f"{what}, {first.timing}, {run.device.name}"
    if first.region == "first-pass":
        title += ", first pass only"
    header = ("kernel", "us", "+-%", "GB/s", "%peak", "%ceil", "speedup", "prev")
    rows = tuple(
        (
            _label(r),
            time_text(r.time_us, r.time_us_low, r.time_us_high),
            spread_text(r.time_us, r.time_us_low, r.time_us_high),
            rate_text(r.gb_s),
            share_text(r.pct_peak),
            share_text(r.pct_ceiling),
            ratio_text(r.speedup),
            ratio_text(r.speedup_prev),
        )
        for r in records
    )
    notes = [
        f"%peak: of {rate_text(run.device.peak_gb_s)} GB/s, theory from clock and bus width; "
        f"%ceil: of {rate_text(first.ceiling_gb_s)} GB/s, which a read-only kernel reached in "
        "the same rounds",
    ]
    floors = run.protocol.get("floors_us") or {}
    if floors:
        text = ", ".join(
            f"{name.removeprefix('floor: ')} {us:.2f} us" for name, us in floors.items()
        )
        notes.append(f"floor, not subtracted: {text}")
    if first.time_us_low is None:
        notes.append(f"{len(first.rounds_us)} rounds: no interval; it takes at least 6")
    return Section(title, header, rows, tuple(notes))


def _label(record: Record) -> str:
    return record.name or record.kernel


def verdict_section(records: Iterable[Record], title: str) -> Section:
    """What `verify` found, one line a case."""
    header = ("kernel", "op", "dtype", "answer", "error", "bound")
    rows = []
    notes = []
    for r in records:
        answer = {"pass": "right", "fail": "WRONG", "skip": DASH}[r.verdict]
        rows.append((_label(r), r.op, r.dtype, answer, error_text(r.error), error_text(r.bound)))
        if r.reason:
            kind = "WRONG" if r.verdict == "fail" else "skipped"
            notes.append(f"{_label(r)} {r.op} {r.dtype}: {kind}: {r.reason}")
    return Section(title, header, tuple(rows), tuple(notes), 4)


def _align(section: Section, column: int) -> Literal["left", "right"]:
    return "left" if column < section.texts else "right"


def to_markdown(found: Iterable[Section]) -> str:
    """Sections as GitHub tables."""
    from tabulate import tabulate

    parts = []
    for section in found:
        align = [_align(section, k) for k in range(len(section.header))]
        table = tabulate(
            section.rows, section.header, "github", colalign=align, disable_numparse=True
        )
        notes = "".join(f"\n\n{note}" for note in section.notes)
        parts.append(f"**{section.title}**\n\n{table}{notes}\n")
    return "\n".join(parts)


def print_sections(found: Iterable[Section]) -> None:
    """Sections on standard output: as wide as the terminal, whole in a pipe, colour where it is."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 120
    for section in found:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for k, name in enumerate(section.header):
            table.add_column(
                name, justify=_align(section, k), no_wrap=k >= section.texts, overflow="fold"
            )
        for row in section.rows:
            style = "red" if "WRONG" in row else ""
            table.add_row(*(Text(cell, style) for cell in row))
        console.print(Text(section.title, "bold"))
        if section.rows:
            console.print(table)
        for note in section.notes:
            # Wrapped by the terminal if at all: a place in a file stays one word to click or copy.
            console.print(Text(note, "red" if "WRONG" in note else "dim"), soft_wrap=True)
        console.print()


def update_readme(path: Path, tables: Tables = sections) -> tuple[str, str]:
    """The text of a Markdown file, and what it should be: tables made anew from their results."""
    try:
        old = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None

    def table(match: re.Match[str]) -> str:
        run = load(path.parent / match["file"])
        return f"{match['open']}\n{to_markdown(tables(run))}\n{match['close']}"

    new, count = _MARKER.subn(table, old)
    if count == 0:
        raise UsageError(
            f"{path} has no place for a table: add <!-- cudareduce: results/GPU/RUN.json --> and "
            "<!-- /cudareduce -->, each on a line of its own"
        )
    return old, new
