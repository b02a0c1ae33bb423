"""Safe printing of foreign text, grouping, and shortened lists."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

#: Joins the lines of one message, so that a continued line cannot be mistaken for another message.
CONTINUED = "\n  | "
#: GitHub and Azure run `##[command]` anywhere in a line of a log, and `::command` at its start.
#: Long lines are wrapped, so any word can start one.
_COMMAND = re.compile(r"(?<=#)#(?=\[)|(?<!\S):(?=:)")


def shown(text: str, keep: str = "") -> str:
    """The text with unprintable characters escaped, except those in `keep`. In a single line, also
    the characters that would make a word a command in a CI log."""
    if "\n" not in keep and ("::" in text or "##[" in text):
        text = _COMMAND.sub(lambda found: f"\\x{ord(found[0]):x}", text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escape(c) for c in text)


def lines_shown(text: str, between: str = CONTINUED) -> str:
    """`shown` for a text of several lines, such as a compiler's message."""
    return between.join(shown(line.expandtabs()) for line in text.splitlines())


def json_shown(text: str) -> str:
    """JSON with the same values, in which no string is a command for a CI log."""
    return text.replace("##[", "#\\u0023[")


def source_shown(text: str) -> str:
    """Source text to print: as it is, except for control characters and, in a log of GitHub Actions
    or Azure, commands."""
    if not (os.environ.get("GITHUB_ACTIONS") or os.environ.get("TF_BUILD")):
        return shown(text, "\n\t")
    return "\n".join(shown(line, "\t") for line in text.split("\n"))


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def group_by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """The items of each key. Keys and items are in the order in which they first occur."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def first_few(words: Iterable[str], most: int) -> str:
    """The first `most` distinct words, then `and N more`."""
    distinct = list(dict.fromkeys(words))
    more = f" and {len(distinct) - most} more" if len(distinct) > most else ""
    return f"{', '.join(distinct[:most])}{more}"
