"""What a file's own short functions and macros make of what they are given, where that is one
expression: `square(x)` is `x * x`; and the numbers that it has names for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tree_sitter import Node

from cudareduce.cuda_source import members, text, without_comments
from cudareduce.library.expanded import Macro
from cudareduce.library.parameters import read_parameter
from cudareduce.library.syntax import Piece

#: A number that is there for all of a file, as a macro or a constant.
_NUMBER = re.compile(
    r"(?:#\s*define\s+|(?:(?:static|inline|__device__|__constant__)\s+)*const(?:expr)?\s+[\w ]*?\b)"
    r"(?P<name>[A-Za-z_]\w*)(?:\s+|\s*=\s*)(?P<value>-?(?:\d[\w.]*|\.\d\w*))\s*;?$"
)
#: Nobody's formula is longer.
_LONGEST = 200


def formulas_in(pieces: Iterable[Piece]) -> Mapping[str, Macro]:
    """The formulas of a file, by the names of what forms them, as macros that may stand for them;
    of overloads the last one."""
    found: dict[str, Macro] = {}
    for piece in pieces:
        source = text(piece.node).strip()
        number = _NUMBER.match(source) if len(source) <= _LONGEST else None
        macro = _of_macro(piece) if piece.kind == "preproc_function_def" else _of_function(piece)
        if number is not None:
            value = number["value"]  # brackets behind a > might end a template's
            found[number["name"]] = Macro(None, f"({value})" if value.startswith("-") else value)
        elif macro is not None:
            found |= dict.fromkeys(piece.defines, macro)
    return found


def _of_macro(piece: Piece) -> Macro | None:
    value, listed = map(piece.inner.child_by_field_name, ("value", "parameters"))
    if value is None or listed is None:
        return None
    line = " ".join(text(value).replace("\\\n", " ").split())
    names = tuple(text(name) for name in listed.named_children)
    return _formula(names, line) if not re.search(r"[;{}#]|//|/\*", line) else None


def _of_function(piece: Piece) -> Macro | None:
    """What a function of the device returns, if that is all that it does."""
    body, function = piece.inner.child_by_field_name("body"), piece.function
    if body is None or function is None or "__device__" not in piece.words:
        return None
    does = members(body)
    returned = _returned(does[0]) if len(does) == 1 else None
    names = tuple(read_parameter(words).name for words in function.parameters)
    return _formula(names, without_comments(returned)) if returned is not None else None


def _returned(statement: Node) -> Node | None:
    found = statement.named_children if statement.type == "return_statement" else []
    return found[0] if len(found) == 1 else None


def _formula(names: tuple[str, ...], value: str) -> Macro | None:
    """A formula with brackets around what it is given, and around itself."""
    if not names or not all(names) or len(value) > _LONGEST:
        return None
    word = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")
    return Macro(names, f"({word.sub(lambda name: f'({name[0]})', value)})")
