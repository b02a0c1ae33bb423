"""Writes results to files and standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from cudareduce.catalog.front_matter import SOURCES
from cudareduce.errors import UsageError
from cudareduce.report.markdown import to_markdown
from cudareduce.report.section import Section
from cudareduce.report.terminal import print_sections
from cudareduce.results.store import check_writable, write_text
from cudareduce.text import json_shown

#: For each format, the function that renders it.
Texts = Mapping[str, Callable[[], str]]


#: This file name means standard output.
_STANDARD_OUTPUT = Path("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """The requested outputs: `style` is the format to print (`table` or another format of the
    command), the others are files or None. The file `-` is standard output instead of the table."""

    style: str = "table"
    csv: Path | None = None
    markdown: Path | None = None
    json: Path | None = None
    junit: Path | None = None
    benchmark_json: Path | None = None
    comment: Path | None = None

    @property
    def _requested(self) -> dict[str, Path]:
        paths = {field.name: getattr(self, field.name) for field in fields(self)[1:]}
        return {name: path for name, path in paths.items() if path is not None}

    @property
    def files(self) -> dict[str, Path]:
        """The requested files, by format."""
        return {name: p for name, p in self._requested.items() if p != _STANDARD_OUTPUT}

    @property
    def piped(self) -> str | None:
        """The format that goes to standard output instead of a file."""
        return next((name for name, p in self._requested.items() if p == _STANDARD_OUTPUT), None)

    def check(self, *inputs: Path) -> None:
        """Raise UsageError if a file cannot be written, or would replace another output, an input
        or a source file, or if two formats would go to standard output."""
        printed = [
            _option(key) for key, path in self._requested.items() if path == _STANDARD_OUTPUT
        ]
        if printed and self.style != "table":
            printed.append("--format")
        if len(printed) > 1:
            raise UsageError(
                f"{' and '.join(printed)} both print on standard output: name a file for one"
            )
        taken = {_place(path): "what is read" for path in inputs}
        for key, path in self.files.items():
            check_writable(path)
            name, place = _option(key), _place(path)
            if place.is_file() and place.name.endswith(SOURCES):
                raise UsageError(f"{name} would replace {path}, a source: choose another name")
            if place in taken and (place.is_file() or not place.exists()):
                raise UsageError(
                    f"{name} and {taken[place]} are one file, {path}: choose another name"
                )
            taken[place] = name


def _place(path: Path) -> Path:
    """The path with symbolic links resolved; unlike Path.resolve, accepts circular links."""
    return Path(os.path.realpath(path))


def _option(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _printable(style: str, text: str) -> str:
    return json_shown(text) if "json" in style else text


def publish(
    outputs: Outputs,
    sections: Sequence[Section],
    texts: Texts,
    *,
    printed: Texts | None = None,
    commands: Sequence[str] = (),
) -> None:
    """Write the requested files, then print. Raises UsageError if a file cannot be written.

    `texts` renders all formats except Markdown, which is rendered from the sections; `printed`
    replaces it for --format. `commands` for a CI service are printed after a table; with other
    formats to standard error, so that standard output has one format.
    """
    makers = {"markdown": lambda: to_markdown(sections), **texts}
    for name, path in outputs.files.items():
        write_text(path, makers[name]())
    if outputs.piped is not None:
        sys.stdout.write(_printable(outputs.piped, makers[outputs.piped]()))
    elif outputs.style == "table":
        print_sections(sections)
        print(*commands, sep="\n", end="\n" * bool(commands), flush=True)
        return
    else:
        text = {**makers, **(printed or {})}[outputs.style]()
        sys.stdout.write(_printable(outputs.style, text))
    sys.stdout.flush()
    print(*commands, sep="\n", end="\n" * bool(commands), file=sys.stderr)
