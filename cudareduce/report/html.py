"""Sections as HTML for a notebook: tables and notes, without any style of their own."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from cudareduce.escapes import lines_shown
from cudareduce.report.section import Section
from cudareduce.report.sections import alignment


def to_html(found: Iterable[Section]) -> str:
    """One table each, with its title above and its notes below it."""
    return "\n".join(map(_section, found))


def _section(section: Section) -> str:
    from tabulate import tabulate

    parts = [f"<p><b>{_text(section.title)}</b></p>", *map(_line, section.head)]
    if section.rows:
        align = [alignment(section, k) for k in range(len(section.header))]
        rows = [[lines_shown(cell) for cell in row] for row in section.rows]
        parts.append(tabulate(rows, section.header, "html", colalign=align, disable_numparse=True))
    return "\n".join([*parts, *map(_line, section.notes)])


def _line(text: str) -> str:
    return f"<p><small>{_text(text)}</small></p>"


def _text(text: str) -> str:
    return escape(lines_shown(text))
