"""Reads kernel files and parses their front matter, the TOML block in the first comment."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cudareduce.errors import UsageError
from cudareduce.library.toml import BadToml, parse

OPENS, CLOSES = "/*+++", "+++*/"


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """Parsed front matter, not yet checked: its values, its text, and its first line number."""

    values: dict[str, Any]
    body: str
    first_line: int


def find_front_matter(path: Path, text: str) -> FrontMatter | None:
    """The front matter of a kernel file, None if it has none. Raises UsageError if the comment is
    not closed or its content is not TOML."""
    start = text.find(OPENS)
    if start < 0:
        return None
    begin = start + len(OPENS)
    end = text.find(CLOSES, begin)
    first_line = text.count("\n", 0, begin) + 1
    if end < 0:
        raise UsageError(
            f"{path}:{first_line}: the front matter opened by {OPENS} is never closed by {CLOSES}"
        )
    body = text[begin:end]
    try:
        return FrontMatter(parse(body), body, first_line)
    except BadToml as error:
        line = first_line + min(error.line - 1, body.count("\n"))
        raise UsageError(f"{path}:{line}: the front matter is not valid TOML: {error}") from None


#: Limit of a kernel file in bytes; longer files are probably named by mistake.
_LARGEST = 4 * 2**20


def read_source(path: Path) -> str:
    """The text of a kernel file. Raises UsageError if it is not a text file of at most 4 MiB."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise UsageError(f"cannot read {path}: it is a folder; name a file in it")
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"cannot read {path}: it is a device or a pipe; name a file")
        if status.st_size > _LARGEST:
            raise UsageError(f"cannot read {path}: it has more than 4 MiB; name a kernel's source")
        data = path.read_bytes()
    except FileNotFoundError as error:
        reason = f"{error.strerror}; check the name (`cudareduce list` shows those of kernels)"
        raise UsageError(f"cannot read {path}: {reason}") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if b"\0" in data:
        raise UsageError(f"cannot read {path}: not a text file")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return data.decode("latin-1").replace("\r\n", "\n")  # as written by some old editors


def has_front_matter(path: Path) -> bool:
    """True if a file has front matter, valid or not. Raises UsageError if it cannot be read."""
    return OPENS in read_source(path)
