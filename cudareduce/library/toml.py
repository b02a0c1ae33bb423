"""Parses TOML written by users, with the line number of each error, and quotes values."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from difflib import get_close_matches
from typing import Any

_ERROR_LINE = re.compile(r"\(at line (\d+), column \d+\)")
#: Python refuses to parse decimal numbers of more than 4300 digits.
_LONG_NUMBER = re.compile(r"\d[\d_]{4299,}")
#: Error messages show this many characters of a value.
_SHOWN = 60


class BadToml(ValueError):
    """A text is not valid TOML; `line` is counted from 1."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.line = line


def parse(text: str) -> dict[str, Any]:
    """The values of a TOML text, which may begin with a byte order mark. Raises BadToml."""
    text = text.removeprefix("\ufeff")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _ERROR_LINE.search(str(error))
        raise BadToml(str(error), int(found[1]) if found else text.count("\n") + 1) from None
    except RecursionError:
        raise BadToml("it is nested too deeply", text.count("\n") + 1) from None
    except ValueError as error:  # invalid numbers, dates and times
        long = _LONG_NUMBER.search(text)
        why = "a number of thousands of digits" if long else str(error)
        raise BadToml(why, text.count("\n", 0, long.start() if long else None) + 1) from None


def quoted(value: Any) -> str:
    """A value for an error message: its repr, shortened; "a list" or "a table" for those."""
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and abs(value) >= 10**_SHOWN:
        return f"a number of {value.bit_length()} bits"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def line_of(text: str, key: str) -> int | None:
    """The number of the first line, counted from 1, with this key or a table of this name."""
    name = rf"[\"']?{re.escape(key)}[\"']?"
    found = re.search(rf"^\s*(?:\[+\s*{name}\s*[].]|{name}\s*[.=])", text, re.MULTILINE)
    return text.count("\n", 0, found.end()) + 1 if found else None


def unknown_key(key: str, keys: Collection[str]) -> str:
    """The message on a key that is not among `keys`: similar ones, else all of them."""
    near = get_close_matches(key, keys, n=2)
    others = f"did you mean {' or '.join(near)}?" if near else f"the keys are: {', '.join(keys)}"
    return f"unknown key; {others}"
