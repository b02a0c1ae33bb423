"""Texts of others, as a kernel's title or a file's name, made fit to be shown: what would steer a
terminal, begin a line or change the direction of writing stands there as `\\x1b`, not as itself."""

from __future__ import annotations

#: What stands between lines that belong together, so that none can pass for a line of its own.
CONTINUED = "\n  | "


def shown(text: str, keep: str = "") -> str:
    """The text with an escape in the place of every character that cannot be seen, but for those to
    `keep`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escape(c) for c in text)


def lines_shown(text: str, between: str = CONTINUED) -> str:
    """The same of a text that may have several lines, as a compiler's words."""
    return between.join(shown(line.expandtabs()) for line in text.splitlines())


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
