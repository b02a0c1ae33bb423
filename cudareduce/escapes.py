"""Makes texts from files safe to print: no control characters, no commands for a CI log."""

from __future__ import annotations

import os
import re

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
