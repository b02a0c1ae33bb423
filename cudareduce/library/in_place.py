"""Whether a kernel overwrites what it reads: as far as its text tells, by the pointer itself or by
one that was made of it."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from cudareduce.cuda_source import every, text
from cudareduce.library.syntax import converts, pieces

#: What an address may be wrapped in.
_WRAPS = ("parenthesized_expression", "cast_expression", "pointer_declarator")
#: Where the parser has what is changed.
_CHANGES = {"assignment_expression": "left", "update_expression": "argument"}


def overwrites(body: str, pointer: str) -> bool:
    """Whether a function with this body stores to memory that a pointer of this name leads to."""
    return bool(_stores(body, pointer))


def keeps_partials(body: str, pointer: str) -> bool:
    """Whether each block stores to a place there that its number gives."""
    return any("blockIdx" in text(target) for target in _stores(body, pointer))


def _stores(body: str, pointer: str) -> list[Node]:
    """What is assigned to in memory that a pointer of this name leads to."""
    nodes = [node for piece in pieces(f"void f() {body}".encode()) for node in every(piece.node)]
    leading = {pointer}
    for new, value in _pointers(nodes):
        if _leads(value) & leading:
            leading.add(new)
    changed = (
        node.child_by_field_name(_CHANGES[node.type]) for node in nodes if node.type in _CHANGES
    )
    return [target for target in changed if target is not None and _stored(target) in leading]


def _pointers(nodes: list[Node]) -> Iterator[tuple[str, Node]]:
    """The pointers that are declared or set, in order, with what each is set to."""
    for node in nodes:
        if node.type == "declaration":
            kind = node.child_by_field_name("type")
            is_auto = kind is not None and kind.type == "placeholder_type_specifier"
            for one in node.children_by_field_name("declarator"):
                new, value = map(one.child_by_field_name, ("declarator", "value"))
                if new and value and (is_auto or new.type == "pointer_declarator"):
                    yield text(new).lstrip("* ").rpartition(" ")[2], value
        elif node.type == "assignment_expression":
            new, value = map(node.child_by_field_name, ("left", "right"))
            if new and value and new.type == "identifier":
                yield text(new), value


def _leads(value: Node) -> set[str]:
    """What an address is made of: names that are neither read through nor indices."""
    found, left = set(), [value]
    while left:
        node = left.pop()
        if node.type in _WRAPS and node.named_children:
            left.append(node.named_children[-1])
        elif node.type == "identifier":
            found.add(text(node))
        elif node.type == "binary_expression":
            sides = (node.child_by_field_name(side) for side in ("left", "right"))
            left += [side for side in sides if side is not None]
        elif node.type == "call_expression" and converts(node):
            given = node.child_by_field_name("arguments")
            left += given.named_children if given else []
        elif node.type == "pointer_expression" and text(node.children[0]) == "&":
            found.add(_stored(node.named_children[-1]))
    return found


def _stored(target: Node) -> str:
    """The pointer through which a store goes, or nothing."""
    while target.type in (*_WRAPS, "field_expression") and target.named_children:
        target = target.named_children[0 if target.type == "field_expression" else -1]
    inner = target.child_by_field_name("argument")
    if inner is None or target.type not in ("subscript_expression", "pointer_expression"):
        return ""
    return next(iter(sorted(_leads(inner))), "")
