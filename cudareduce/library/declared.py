"""What a `.cu` file declares of types: the other names that it gives them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from cudareduce.cuda_source import text
from cudareduce.library.syntax import Piece

_WORD = re.compile(r"(?<![\w:])(?:\w+::)*(?P<last>[A-Za-z_]\w*)")
_NAME = re.compile(r"\b\w+$")
#: An alias may be of an alias, and so on; in a circle that has no end.
_MOST_STEPS = 4
#: Where the parser has the new name and the type that it stands for, by kinds of pieces.
_FIELDS = {
    "type_definition": ("declarator", "type"), "alias_declaration": ("name", "type"),
    "preproc_def": ("name", "value"),
}  # fmt: skip


def type_aliases(pieces: Iterable[Piece]) -> dict[str, str]:
    """What other names of types stand for, by the names; of several that bear one name it is the
    last. No pointers and no templates: these would not be the type of an element or a count."""
    found: dict[str, str] = {}
    for piece in pieces:
        new, old = (piece.inner.child_by_field_name(f) for f in _FIELDS.get(piece.kind, ("", "")))
        if new and old and re.fullmatch(r"\w+", text(new)) and re.fullmatch(r"[\w:\s]+", text(old)):
            words = text(old).split()
            if words[-1] != text(new):  # as of `typedef struct pair pair`
                found[text(new)] = " ".join(words)
    return found


def spelled_out(parameter: str, aliases: Mapping[str, str]) -> str:
    """A parameter of a function with its type in the words that its other names stand for."""
    name = _NAME.search(parameter)
    kind, own = (parameter, "") if name is None else (parameter[: name.start()], name[0])
    for _ in range(_MOST_STEPS):
        kind = _WORD.sub(
            lambda word: aliases.get(word["last"], word[0].removeprefix("std::")), kind
        )
    return kind + own
