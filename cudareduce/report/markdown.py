"""Sections as Markdown, and the blocks of a README that are made from results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.report.sections import Section, alignment, sections
from cudareduce.results.record import Run
from cudareduce.results.store import load

_MARKER = re.compile(
    r"(?P<open><!-- cudareduce: (?P<file>\S+) -->\n).*?(?P<close><!-- /cudareduce -->)", re.DOTALL
)


#: Makes the sections of a run.
Tables = Callable[[Run], list[Section]]


def to_markdown(found: Iterable[Section]) -> str:
    """Sections as GitHub tables."""
    from tabulate import tabulate

    parts = []
    for section in found:
        align = [alignment(section, k) for k in range(len(section.header))]
        blocks = [f"**{section.title}**"]
        if section.rows:
            blank = [""] * len(section.header)  # Markdown has no rule within a table
            rows = [r for k, row in enumerate(section.rows)
                    for r in ([blank, row] if k in section.rules else [row])]  # fmt: skip
            blocks.append(
                tabulate(rows, section.header, "github", colalign=align, disable_numparse=True)
            )
        parts.append("\n\n".join([*blocks, *section.notes]) + "\n")
    return "\n".join(parts)


def update_readme(path: Path, tables: Tables = sections) -> tuple[str, str]:
    """The text of a Markdown file, and what it should be: tables made anew from their results. A
    file that cannot be read, that has no place for a table, or whose results do not load is a
    UsageError."""
    try:
        old = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"cannot read {path}: it is not UTF-8; name a Markdown file") from None

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
