"""TOML files of people: with a byte order mark, and with values of any kind and length."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from difflib import get_close_matches
from typing import Any

_ERROR_LINE = re.compile(r"\(at line (\d+), column \d+\)")
#: Python reads no longer decimal numbers than of 4300 digits.
_LONG_NUMBER = re.compile(r"\d[\d_]{4299,}")
#: A value that is shown in an error is cut after this many characters.
_SHOWN = 60


class BadToml(ValueError):
    """Why a text is not TOML, and on which of its lines, counted from 1."""

    def __init__(self, why: str, line: int) -> None:
        super().__init__(why)
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
    except ValueError as error:  # what Python reads no number, date or time from
        long = _LONG_NUMBER.search(text)
        why = "a number of thousands of digits" if long else str(error)
        raise BadToml(why, text.count("\n", 0, long.start() if long else None) + 1) from None


def quoted(value: Any) -> str:
    """A value in an error message: as Python writes it, a long one cut, a list or a table named."""
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and abs(value) >= 10**_SHOWN:
        return f"a number of {value.bit_length()} bits"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def line_of(text: str, key: str) -> int | None:
    """The line, counted from 1, on which a key or a table of this name first stands."""
    name = rf"[\"']?{re.escape(key)}[\"']?"
    found = re.search(rf"^\s*(?:\[+\s*{name}\s*[].]|{name}\s*[.=])", text, re.MULTILINE)
    return text.count("\n", 0, found.end()) + 1 if found else None


def unknown_key(key: str, keys: Collection[str]) -> str:
    """The message on a key that is not among `keys`: similar ones, else all of them."""
    near = get_close_matches(key, keys, n=2)
    others = f"did you mean {' or '.join(near)}?" if near else f"the keys are: {', '.join(keys)}"
    return f"unknown key; {others}"
