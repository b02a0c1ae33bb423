"""Sections as Markdown, and the blocks of a README that are made from results."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.escapes import lines_shown, shown
from cudareduce.report.by_size import by_size
from cudareduce.report.section import Section
from cudareduce.report.sections import alignment, sections
from cudareduce.results.record import Run
from cudareduce.results.store import load

_OPEN = re.compile(
    r"<!--\s*cudareduce:\s*(?P<file>.+?)(?:,\s*(?P<by_size>by size)(?::\s*(?P<one>\w+))?)?\s*-->"
)
_CLOSE = re.compile(r"<!--\s*/cudareduce\s*-->")
_FENCE = re.compile(r"(?P<fence>`{3,}|~{3,})[^`]*")
#: What a backslash makes plain, as it would begin code, HTML, an entity, a formula or a fence, or
#: end what is set otherwise or leads elsewhere; a backslash itself where it would do the same.
_MARKUP = re.compile(
    r"[`<~$]|&(?=[#\w])|(?<=\S)\*|\*(?=\S)|_(?=_*(?!\w))|\](?=[(\[:])|\\(?=[!-/:-@\[-`{-~]|$)"
)
#: Services look for names and numbers in what Markdown has become, where no backslash is left.
_MENTION = re.compile(r"[@#]")
_BACKTICKS = re.compile(r"`+")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a table stands: the lines of its two markers, counted from 0, the file it shows, and
    whether libraries are shown by sizes, in all tables or in the `one` of that name."""

    first: int
    last: int
    file: str
    by_size: bool
    one: str | None


#: Makes the sections of a run.
Tables = Callable[[Run], list[Section]]


def to_markdown(found: Iterable[Section]) -> str:
    """Sections as GitHub tables."""
    from tabulate import tabulate

    parts = []
    for section in found:
        align = [alignment(section, k) for k in range(len(section.header))]
        blocks = [f"**{escaped(section.title)}**", *map(escaped, section.head)]
        if section.rows:
            blank = [""] * len(section.header)  # Markdown has no rule within a table
            rows = [r for k, row in enumerate(section.rows)
                    for r in ([blank, row] if k in section.rules else [row])]  # fmt: skip
            cells = [list(map(_cell, row)) for row in rows]
            blocks.append(
                tabulate(cells, section.header, "github", colalign=align, disable_numparse=True)
            )
        parts.append("\n\n".join([*blocks, *map(escaped, section.notes)]) + "\n")
    return "\n".join(parts)


def _cell(text: str) -> str:
    """A cell of a table; one that is set in bold stays so."""
    if text.startswith("**") and text.endswith("**") and len(text) > 4:
        return f"**{_cell(text[2:-2])}**"
    return escaped(text).replace("|", "\\|")


def escaped(text: str) -> str:
    """A text as it stands, whatever it would be to Markdown: what cannot be seen is escaped, and so
    is what sets text otherwise, is HTML, or tells somebody: a name behind @, a number behind #.
    Several lines stay several."""
    plain = _MARKUP.sub(lambda found: f"\\{found[0]}", text)
    return lines_shown(_MENTION.sub("\\g<0>&#8203;", plain), "<br>")


def code(text: str) -> str:
    """A text of one line as code, between more backticks than it has in a row."""
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    room = " " if longest else ""
    return f"{'`' * (longest + 1)}{room}{shown(text)}{room}{'`' * (longest + 1)}"


def update_readme(path: Path, tables: Tables = sections) -> tuple[str, str]:
    """The text of a Markdown file, and what it should be: tables made anew from their results, all
    else as it is. A file that cannot be read, that has no place for a table, or whose results do
    not load is a UsageError, and so are markers of which one is missing."""
    old = _read(path)
    lines = list(io.StringIO(old, newline=""))  # with their ends
    new, done = [], 0
    for place in _places(path, lines):
        try:
            run = load(path.parent / place.file)
            table = to_markdown(by_size(run, place.one) if place.by_size else tables(run))
        except UsageError as error:
            raise UsageError(f"{path}:{place.first + 1}: {error}") from None
        head = lines[place.first]
        end = head[len(head.rstrip("\r\n")) :]
        new += [*lines[done : place.first + 1], f"\n{table}\n".replace("\n", end)]
        done = place.last
    if not done:
        raise UsageError(
            f"{path} has no place for a table: add <!-- cudareduce: results/GPU/RUN.json --> and "
            "<!-- /cudareduce -->, each on a line of its own"
        )
    return old, "".join([*new, *lines[done:]])


def _read(path: Path) -> str:
    """A Markdown file as it is, with its byte order mark and its ends of lines."""
    try:
        if path.exists() and not path.is_file():  # reading a pipe would wait for its writer
            raise UsageError(f"cannot read {path}: it is no plain file; name a Markdown file")
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; name a Markdown file") from None
    except UnicodeDecodeError:
        raise UsageError(f"cannot read {path}: it is not UTF-8; name a Markdown file") from None


def _places(path: Path, lines: Sequence[str]) -> Iterator[_Place]:
    """The pairs of markers, each on a line of its own."""
    opened: tuple[int, str, bool, str | None] | None = None
    for k, text in _prose(lines):
        begins, ends = _OPEN.fullmatch(text), _CLOSE.fullmatch(text)
        if begins and opened:
            raise _unpaired(path, opened[0], f"another one opens on line {k + 1}")
        if ends and not opened:
            raise UsageError(f"{path}:{k + 1}: this marker closes no table: take it out")
        if begins:
            opened = k, begins["file"], bool(begins["by_size"]), begins["one"]
        elif ends and opened:
            yield _Place(opened[0], k, *opened[1:])
            opened = None
    if opened:
        raise _unpaired(path, opened[0], "the file ends")


def _prose(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Lines, counted from 0, that are in no block of code: markers there are examples."""
    fence = ""
    for k, line in enumerate(lines):
        text = line.removeprefix("\ufeff").strip()
        begins = _FENCE.fullmatch(text)
        if fence:
            closes = text.startswith(fence) and not text.strip(fence[0])
            fence = "" if closes else fence
        elif begins:
            fence = begins["fence"]
        else:
            yield k, text


def _unpaired(path: Path, line: int, before: str) -> UsageError:
    return UsageError(
        f"{path}:{line + 1}: the table is not closed before {before}: add <!-- /cudareduce --> "
        "behind it, on a line of its own"
    )
