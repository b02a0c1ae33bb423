"""Renders sections as Markdown and HTML, and updates the tables in Markdown files."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from cudareduce.errors import UsageError
from cudareduce.reduction.sizes import parse_size
from cudareduce.report.numbers import plain_text
from cudareduce.report.section import Section, alignment
from cudareduce.report.sections import by_size, sections
from cudareduce.results.record import Run
from cudareduce.results.store import load
from cudareduce.text import lines_shown, shown

_OPEN = re.compile(
    r"<!--\s*cudareduce:\s*(?P<file>.+?)(?:,\s*(?P<by_size>by size)(?::\s*(?P<table>\w+))?)?"
    r"(?:,\s*rows\s+(?P<rows>[^,]+?))?(?:,\s*at\s+(?P<at>[^,\s]+))?\s*-->"
)
#: The markers of a number in a Markdown line: a field of a record, the ratio of two fields, or an
#: entry of the protocol, such as `caught/3%/of of selftest`.
_VALUE = re.compile(
    r"(?<!`)(?P<open><!--\s*cudareduce:\s*(?P<file>[^,]+?),\s*value\s+(?P<field>[\w/%]+)\s+of\s+"
    r"(?P<kernel>\S+)(?:\s+over\s+(?P<over>\S+))?(?:\s+at\s+(?P<at>\S+))?\s*-->)"
    r".*?(?P<close><!--\s*/cudareduce\s*-->)"
)
_CLOSE = re.compile(r"<!--\s*/cudareduce\s*-->")
_FENCE = re.compile(r"(?P<fence>`{3,}|~{3,})[^`]*")
#: Characters that would begin code, HTML, an entity, a formula, emphasis or a link. A backslash
#: before them makes them plain.
_MARKUP = re.compile(
    r"[`<~$]|&(?=[#\w])|(?<=\S)\*|\*(?=\S)|_(?=_*(?!\w))|\](?=[(\[:])|\\(?=[!-/:-@\[-`{-~]|$)"
)
#: GitHub links @names and #numbers even after a backslash.
_MENTION = re.compile(r"[@#]")
_BACKTICKS = re.compile(r"`+")


@dataclass(frozen=True, slots=True)
class _Block:
    """A table in a Markdown file, between two marker lines (numbers counted from 0), and its result
    file. It shows tables by size (all, or the one named `table`) or the usual tables. `rows` are
    patterns of kernel names, and `at` is a size, to which the records are restricted."""

    first: int
    last: int
    file: str
    by_size: bool
    table: str | None
    rows: str | None
    at: str | None

    def select(self, run: Run) -> Run:
        """The run with the requested records only."""
        if not self.rows and not self.at:
            return run
        patterns = (self.rows or "*").split()
        size = parse_size(self.at) if self.at else None
        kept = [
            record for record in run.records
            if any(fnmatchcase(record.kernel, pattern) for pattern in patterns)
            and size in (None, record.n)
        ]  # fmt: skip
        if not kept:
            raise UsageError(
                f"{self.file} has no records of {self.rows} at {self.at or 'any size'}"
            )
        return replace(run, records=tuple(kept))


#: Renders a run as sections.
Tables = Callable[[Run], list[Section]]


def to_markdown(found: Iterable[Section]) -> str:
    """Sections as GitHub-flavoured Markdown."""
    from tabulate import tabulate

    parts = []
    for section in found:
        align = [alignment(section, k) for k in range(len(section.header))]
        blocks = [f"**{escaped(section.title)}**", *map(escaped, section.head)]
        if section.rows:
            blank = [""] * len(section.header)  # Markdown has no gap within a table
            rows = [r for k, row in enumerate(section.rows)
                    for r in ([blank, row] if k in section.rules else [row])]  # fmt: skip
            cells = [list(map(_cell, row)) for row in rows]
            blocks.append(
                tabulate(cells, section.header, "github", colalign=align, disable_numparse=True)
            )
        parts.append("\n\n".join([*blocks, *map(escaped, section.notes)]) + "\n")
    return "\n".join(parts)


def to_html(found: Iterable[Section]) -> str:
    """Sections as plain HTML for a notebook."""
    from tabulate import tabulate

    parts = []
    for section in found:
        parts.append(f"<p><b>{escape(lines_shown(section.title))}</b></p>")
        parts += map(_html_line, section.head)
        if section.rows:
            align = [alignment(section, k) for k in range(len(section.header))]
            rows = [list(map(lines_shown, row)) for row in section.rows]
            parts.append(
                tabulate(rows, section.header, "html", colalign=align, disable_numparse=True)
            )
        parts += map(_html_line, section.notes)
    return "\n".join(parts)


def _html_line(text: str) -> str:
    return f"<p><small>{escape(lines_shown(text))}</small></p>"


def _cell(text: str) -> str:
    """An HTML table cell; `**bold**` becomes bold."""
    if text.startswith("**") and text.endswith("**") and len(text) > 4:
        return f"**{_cell(text[2:-2])}**"
    return escaped(text).replace("|", "\\|")


def escaped(text: str) -> str:
    """The text with Markdown, HTML, mentions (@name, #number) and control characters escaped. Lines
    stay lines."""
    plain = _MARKUP.sub(lambda found: f"\\{found[0]}", text)
    return lines_shown(_MENTION.sub("\\g<0>&#8203;", plain), "<br>")


def code(text: str) -> str:
    """A line as Markdown inline code, in more backticks than the longest run that it contains."""
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    room = " " if longest else ""
    return f"{'`' * (longest + 1)}{room}{shown(text)}{room}{'`' * (longest + 1)}"


def update_readme(path: Path, tables: Tables = sections) -> tuple[str, str]:
    """The current text of a Markdown file, and the text with tables and numbers updated from the
    result files. Raises UsageError for unreadable files and missing markers."""
    old = _read(path)
    lines = list(io.StringIO(old, newline=""))  # keeps line ends
    load_once = cache(load)
    new, done = [], 0
    numbers = 0
    for k, text in _outside_code(lines):
        if _VALUE.search(text):
            try:
                lines[k] = _VALUE.sub(lambda found: _value(path, found, load_once), lines[k])
            except UsageError as error:
                raise UsageError(f"{path}:{k + 1}: {error}") from None
            numbers += 1
    for block in _blocks(path, lines):
        try:
            run = block.select(load_once(path.parent / block.file))
            table = to_markdown(by_size(run, block.table) if block.by_size else tables(run))
        except UsageError as error:
            raise UsageError(f"{path}:{block.first + 1}: {error}") from None
        head = lines[block.first]
        end = head[len(head.rstrip("\r\n")) :]
        new += [*lines[done : block.first + 1], f"\n{table}\n".replace("\n", end)]
        done = block.last
    if not done and not numbers:
        raise UsageError(
            f"{path} has no place for a table: add <!-- cudareduce: results/GPU/RUN.json --> and "
            "<!-- /cudareduce -->, each on a line of its own"
        )
    return old, "".join([*new, *lines[done:]])


def _value(path: Path, found: re.Match[str], load: Callable[[Path], Run]) -> str:
    """The replacement for a marked number: both markers, and between them the value in the result
    file, rounded to three digits."""
    run = load(path.parent / found["file"])

    def field_of(kernel: str) -> float:
        size = parse_size(found["at"]) if found["at"] else None
        values = set(_protocol_entry(run.protocol.get(kernel), found["field"].split("/"))) or {
            value for record in run.records
            if record.kernel == kernel and size in (None, record.n)
            and isinstance(value := getattr(record, found["field"], None), int | float)
        }  # fmt: skip
        if len(values) != 1:
            raise UsageError(
                f"{found['file']} has {len(values)} values {found['field']} of {kernel}: name a "
                "kernel, a field and, with `at`, a size that it has once"
            )
        return float(values.pop())

    value = field_of(found["kernel"])
    if found["over"]:
        value /= field_of(found["over"])
    return f"{found['open']}{plain_text(value)}{found['close']}"


def _protocol_entry(entries: Any, keys: Sequence[str]) -> Iterator[float]:
    """The number at a path of keys in a part of the protocol; nothing if it has none there."""
    for key in keys:
        entries = entries.get(key) if isinstance(entries, dict) else None
    if isinstance(entries, int | float):
        yield entries


def _read(path: Path) -> str:
    """The text of a file, including its byte order mark and line ends."""
    try:
        if path.exists() and not path.is_file():  # reading a pipe would wait for its writer
            raise UsageError(f"cannot read {path}: it is not a regular file; name a Markdown file")
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; name a Markdown file") from None
    except UnicodeDecodeError:
        raise UsageError(f"cannot read {path}: it is not UTF-8; name a Markdown file") from None


def _blocks(path: Path, lines: Sequence[str]) -> Iterator[_Block]:
    """The tables in a Markdown file. Their markers must be alone on their lines."""
    opened: tuple[int, re.Match[str]] | None = None
    for k, text in _outside_code(lines):
        if _VALUE.search(text):
            continue
        begins, ends = _OPEN.fullmatch(text), _CLOSE.fullmatch(text)
        if begins and opened:
            raise _unpaired(path, opened[0], f"another one opens in line {k + 1}")
        if ends and not opened:
            raise UsageError(f"{path}:{k + 1}: this marker closes no table: remove it")
        if begins:
            opened = k, begins
        elif ends and opened:
            at, found = opened
            whole = bool(found["by_size"])
            yield _Block(at, k, found["file"], whole, found["table"], found["rows"], found["at"])
            opened = None
    if opened:
        raise _unpaired(path, opened[0], "the file ends")


def _outside_code(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The lines outside code blocks with their numbers, from 0; markers in code are examples."""
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
