"""The one writer of results: files, standard output, and what a CI service is told."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.library.header import SOURCES
from cudareduce.report.markdown import to_markdown
from cudareduce.report.section import Section
from cudareduce.report.terminal import print_sections
from cudareduce.results.store import check_writable, write_text

#: Makes the text of a format, when it is asked for.
Texts = Mapping[str, Callable[[], str]]


#: The name of a file that means standard output.
_STANDARD_OUTPUT = Path("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Where results go: `style` is the format printed on standard output (`table`, or one that the
    command has a text for), the others are files; None is not asked for, and `-` is standard
    output, in the place of the table."""

    style: str = "table"
    csv: Path | None = None
    markdown: Path | None = None
    json: Path | None = None
    junit: Path | None = None
    benchmark_json: Path | None = None
    comment: Path | None = None

    @property
    def _asked(self) -> dict[str, Path]:
        formats = {
            "csv": self.csv,
            "markdown": self.markdown,
            "json": self.json,
            "junit": self.junit,
            "benchmark_json": self.benchmark_json,
            "comment": self.comment,
        }
        return {name: path for name, path in formats.items() if path is not None}

    @property
    def files(self) -> dict[str, Path]:
        """The files asked for, by their formats."""
        return {name: p for name, p in self._asked.items() if p != _STANDARD_OUTPUT}

    @property
    def piped(self) -> str | None:
        """The format of a file that standard output takes the place of."""
        return next((name for name, p in self._asked.items() if p == _STANDARD_OUTPUT), None)

    def check(self, *inputs: Path) -> None:
        """Raise UsageError, before anything is measured, if a file could not be written, or would
        replace another, an input or a source, or if standard output was to hold two formats."""
        printed = [_option(key) for key, path in self._asked.items() if path == _STANDARD_OUTPUT]
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
    """Where links lead; Path.resolve raises what is no OSError where they lead in a circle."""
    return Path(os.path.realpath(path))


def _option(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def publish(
    outputs: Outputs,
    sections: Sequence[Section],
    texts: Texts,
    *,
    printed: Texts | None = None,
    commands: Sequence[str] = (),
) -> None:
    """Write the files asked for, then print. What cannot be written is a UsageError.

    `texts` make the formats besides Markdown, which is made of the sections; `printed` those that
    --format prints in another form than a file has. `commands` are a CI service's: behind a
    table, else on standard error, where whoever reads the text does not find them.
    """
    makers = {"markdown": lambda: to_markdown(sections), **texts}
    for name, path in outputs.files.items():
        write_text(path, makers[name]())
    if outputs.piped is not None:
        sys.stdout.write(makers[outputs.piped]())
    elif outputs.style == "table":
        print_sections(sections)
        print(*commands, sep="\n", end="\n" * bool(commands))
        return
    else:
        sys.stdout.write({**makers, **(printed or {})}[outputs.style]())
    print(*commands, sep="\n", end="\n" * bool(commands), file=sys.stderr)
