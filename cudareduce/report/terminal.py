"""Prints sections to standard output, fitted to the width of the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from textwrap import fill
from typing import TYPE_CHECKING

from cudareduce.report.section import Section, alignment
from cudareduce.text import lines_shown, shown

if TYPE_CHECKING:
    from rich.table import Table


#: Tables with more rows are laid out without Rich, which takes a third of a millisecond per row.
_LONG = 500
#: The assumed width of a pipe, so that no table is split.
PIPE = 1000


def print_sections(found: Iterable[Section]) -> None:
    """Print sections: coloured and fitted to the terminal, or plain and unsplit into a pipe."""
    if not coloured():
        for section in map(_shown, found):
            sys.stdout.writelines(_plain(section))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for section in map(_shown, found):
        console.print(Text(_wrapped(section.title, console.width), "bold"), soft_wrap=True)
        for line in section.head:
            console.print(Text(_wrapped(line, console.width), "dim"), soft_wrap=True)
        for part, gap in _fitting(section, console.width):
            if len(part.rows) > _LONG:
                sys.stdout.writelines(_plain_table(part, gap))
            else:
                console.print(_rich_table(part, gap))
        for note in section.notes:
            quiet = "dim" if section.rows else ""
            style = "red" if "WRONG" in note else quiet
            console.print(Text(_wrapped(note, console.width), style), soft_wrap=True)
        console.print()


def coloured() -> bool:
    """True if standard output shows colours."""
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


def _plain(section: Section) -> Iterator[str]:
    """The lines of a section without colour, rendered without Rich, which takes 50 ms to import."""
    yield f"{section.title}\n"
    yield from (f"{line}\n" for line in section.head)
    for part, gap in _fitting(section, PIPE):
        yield from _plain_table(part, gap)
    yield from (f"{note}\n" for note in section.notes)
    yield "\n"


def _shown(section: Section) -> Section:
    """The section with control characters escaped."""
    return replace(
        section, title=shown(section.title), head=tuple(map(shown, section.head)),
        notes=tuple(map(lines_shown, section.notes)),
        rows=tuple(tuple(map(shown, row)) for row in section.rows),
    )  # fmt: skip


def _wrapped(note: str, width: int) -> str:
    """A note wrapped to the width of the terminal. Long words are not broken, so that file names
    can be clicked and copied."""
    return "\n".join(
        fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for line in note.split("\n")
    )


def _fitting(section: Section, width: int) -> Iterator[tuple[Section, int]]:
    """The table as one or more tables that fit the width, each with its column gap. A table that is
    too wide first gets a narrower gap, then is split by columns, so that no number is broken."""
    if not section.rows:
        return
    if 1 + sum(_widths(section, 2)) <= width:
        yield section, 2
        return
    section = _without_prefix(section)
    widths = _widths(section, 1)
    names, part = list(range(section.texts)), list[int]()
    room = whole = width - 1 - sum(widths[: section.texts])
    for k in range(section.texts, len(section.header)):
        if part and widths[k] > room:
            yield _columns(section, names + part), 1
            part, room = [], whole
        part.append(k)
        room -= widths[k]
    yield _columns(section, names + part), 1


def _columns(section: Section, keep: Sequence[int]) -> Section:
    rows = tuple(tuple(row[k] for k in keep) for row in section.rows)
    return replace(section, header=tuple(section.header[k] for k in keep), rows=rows)


def _widths(section: Section, gap: int) -> list[int]:
    return [
        gap + max(map(len, column)) for column in zip(section.header, *section.rows, strict=True)
    ]


def _rich_table(section: Section, gap: int) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap - 1, 0, 0))
    for k, name in enumerate(section.header):
        table.add_column(
            Text(name), justify=alignment(section, k), no_wrap=k >= section.texts, overflow="fold"
        )
    for k, row in enumerate(section.rows):
        if k in section.rules:
            table.add_section()
        style = "red" if "WRONG" in row else ""
        table.add_row(*(Text(cell, style) for cell in row))
    return table


def _plain_table(section: Section, gap: int) -> Iterator[str]:
    """The lines of a table without colour."""
    widths = _widths(section, 0)
    aligned = [
        str.ljust if alignment(section, k) == "left" else str.rjust for k in range(len(widths))
    ]

    def line(cells: Sequence[str]) -> str:
        placed = (to(cell, w) for to, cell, w in zip(aligned, cells, widths, strict=True))
        return f" {(' ' * gap).join(placed).rstrip()}\n"

    yield "\n"
    yield line(section.header)
    yield f" {'─' * (sum(widths) + gap * (len(widths) - 1))}\n"
    for k, row in enumerate(section.rows):
        yield from ["\n"] * (k in section.rules)
        yield line(row)
    yield "\n"


def _without_prefix(section: Section) -> Section:
    """The section with the common prefix of all kernels in the heading instead of every row."""
    if "kernel" not in section.header:
        return section
    k = section.header.index("kernel")
    first = {row[k].partition("_")[0] for row in section.rows if "_" in row[k]}
    prefix = f"{next(iter(first), '')}_"
    if not all(row[k].startswith(prefix) for row in section.rows if row[k]):
        return section
    rows = tuple((*row[:k], row[k].removeprefix(prefix), *row[k + 1 :]) for row in section.rows)
    header = (*section.header[:k], f"{prefix}*", *section.header[k + 1 :])
    return replace(section, header=header, rows=rows)
