"""Variables that a thread declares without a value: each is given what it may find there on a GPU.

g++ has one pattern for all of them, a small number as a float and as an integer, which is lost in a
maximum. Here it is as the launch says, small, large or NaN, so that one of them shows.
"""

from __future__ import annotations

from tree_sitter import Node

from cudareduce.problem.parsing import every, parsed, text

#: What is in front of a variable that is not the thread's own, or has a value.
_NOT_OWN = frozenset(["__shared__", "static", "extern", "constexpr", "const", "__constant__"])
#: What declares a variable behind its type, if nothing gives it a value.
_PLAIN = frozenset(["identifier", "array_declarator", "pointer_declarator"])


def with_unset(code: str) -> str:
    """Some code with a call behind each declaration, in the same line, that fills what has no
    value."""
    data = code.encode(errors="replace")
    parts, start = [], 0
    for node in every(parsed(data)):
        if node.type == "declaration" and (names := _unset(node)):
            calls = "".join(f" cudaemu::unset({name});" for name in names)
            parts += [data[start : node.end_byte], calls.encode()]
            start = node.end_byte
    return b"".join([*parts, data[start:]]).decode(errors="replace")


def _unset(declaration: Node) -> list[str]:
    """The variables of a thread that a declaration gives no value."""
    own = declaration.parent is not None and declaration.parent.type == "compound_statement"
    before = declaration.prev_sibling  # where it ends, unless the parser has lost some words
    whole = before is None or before.type == "comment" or text(before)[-1:] in ("{", ";", "}", "\n")
    words = {text(child) for child in declaration.children}
    if not own or not whole or declaration.has_error or words & _NOT_OWN:
        return []
    declarators = declaration.children_by_field_name("declarator")
    return [name for one in declarators if one.type in _PLAIN and (name := _name(one))]


def _name(declarator: Node) -> str:
    """What a declarator of a variable or an array of them calls it; nothing if it is a function."""
    node: Node | None = declarator
    while node is not None and node.type in _PLAIN - {"identifier"}:
        node = node.child_by_field_name("declarator")
    return text(node) if node is not None and node.type == "identifier" else ""
