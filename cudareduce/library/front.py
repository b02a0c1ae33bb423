"""The TOML header in front of a kernel's text: found and parsed, its words not looked at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cudareduce.errors import UsageError
from cudareduce.library.toml import BadToml, parse

OPENS, CLOSES = "/*+++", "+++*/"


@dataclass(frozen=True, slots=True)
class Header:
    """A header's values as TOML has them, not looked at yet, its text, and the line of the file on
    which that begins."""

    values: dict[str, Any]
    body: str
    first_line: int


def find_header(path: Path, text: str) -> Header | None:
    """The header of a kernel file, or None where the file has none. One that is not closed, or is
    not TOML, is a UsageError with its line."""
    opened = text.find(OPENS)
    if opened < 0:
        return None
    begin = opened + len(OPENS)
    end = text.find(CLOSES, begin)
    first_line = text.count("\n", 0, begin) + 1
    if end < 0:
        raise UsageError(
            f"{path}:{first_line}: the header opened by {OPENS} is never closed by {CLOSES}"
        )
    body = text[begin:end]
    try:
        return Header(parse(body), body, first_line)
    except BadToml as error:
        line = first_line + min(error.line - 1, body.count("\n"))
        raise UsageError(f"{path}:{line}: the header is not valid TOML: {error}") from None
