"""Expressions in the body of a kernel: what their parts are, in brackets and casts or not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tree_sitter import Node

from cudareduce.cuda_source import every, text
from cudareduce.library.syntax import converts

#: So many places where a name stands tell what it is for: a bound for texts that nobody has written
#: by hand.
MOST_PLACES = 20
#: `blockIdx.x` and the like, in bytes.
_LONGEST_FIELD = 40
#: What compares two values.
COMPARES = frozenset(["<", "<=", ">", ">=", "==", "!="])
#: What changes something, and where that stands.
CHANGES = {"assignment_expression": "left", "update_expression": "argument"}
#: What multiplies as a function does.
MULTIPLIES = frozenset(["__mul24", "__umul24"])
#: What wraps a value without changing it.
_WRAPS = frozenset(["parenthesized_expression", "cast_expression"])
#: What decides whether something is done.
_ASKS = frozenset(["if_statement", "conditional_expression", "switch_statement"])
#: Where nobody asks for what a call gives back.
_STATEMENTS = frozenset(["expression_statement", "comma_expression"])
#: What a place is reached through.
_THROUGH = frozenset(
    ["subscript_expression", "pointer_expression", "parenthesized_expression", "unary_expression",
     "cast_expression", "field_expression"]
)  # fmt: skip


def partners(pairs: Iterator[tuple[Node, Node, Node]]) -> dict[str, list[Node]]:
    """The other side of operations, by the name on one side."""
    found: dict[str, list[Node]] = {}
    for left, right, _ in pairs:
        for side, other in ((left, right), (right, left)):
            others = found.setdefault(bare(side), [])
            if len(others) < MOST_PLACES:
                others.append(other)
    return found


def leaves(node: Node) -> Iterator[str]:
    """The words of an expression, in order; of a field it with what it is of, and that, but not its
    own name, which may be that of a variable: blockIdx.x names no x."""
    for one in every(node):
        short = one.end_byte - one.start_byte < _LONGEST_FIELD
        word = not one.child_count and one.type != "field_identifier"
        if word or (one.type == "field_expression" and short):
            yield text(one)


def names(node: Node) -> set[str]:
    """The names in an expression."""
    return {text(one) for one in every(node) if one.type == "identifier"}


def first_values(nodes: Iterable[Node]) -> dict[str, Node]:
    """What each variable begins with, whatever it is later."""
    found = {}
    for node in nodes:
        target, value = map(node.child_by_field_name, ("declarator", "value"))
        if node.type == "init_declarator" and target is not None and value is not None:
            found[text(target)] = value
    return found


def adds(place: Node) -> bool:
    """Whether a place is set to a sum that it is a part of itself, or a multiple of it is."""
    left, right = map(place.child_by_field_name, ("left", "right"))
    sides = [right] if right is not None else []
    for side in sides:
        bare_side = inner(side)
        call = bare_side.type == "call_expression" and converts(bare_side)
        given = bare_side.child_by_field_name("arguments") if call else None
        sides += given.named_children if given else []
        signs = ("+",) if side == right else ("+", "*")
        sides += bare_side.named_children if operator(bare_side) in signs else []
    return left is not None and text(left) in (text(inner(side)) for side in sides[1:])


def is_first(name: Node) -> bool:
    """Whether a pointer stands there for its first value, or another one with a number."""
    around = name.parent
    if around is not None and around.type == "pointer_expression":
        return text(around.children[0]) == "*"
    at = around.child_by_field_name("indices") if around is not None else None
    return at is not None and [node.type for node in at.named_children] == ["number_literal"]


def is_only_changed(node: Node) -> bool:
    """Whether what a name leads to is only written to there, or changed by an atomic that tells
    nobody what was there before."""
    above = node.parent
    while above is not None and above.type in _THROUGH:
        if above.type == "subscript_expression" and above.child_by_field_name("argument") != node:
            return False
        node, above = above, above.parent
    if above is None:
        return False
    if above.type in CHANGES:
        return above.child_by_field_name(CHANGES[above.type]) == node
    call = above.parent if above.type == "argument_list" else None
    first = next(iter(above.named_children), None)
    if call is None or call.parent is None or call.parent.type not in _STATEMENTS:
        return False
    return first == node and text(call).startswith("atomic")


def is_unasked(node: Node) -> bool:
    """Whether no condition decides if a place in the text is come to, but for those of loops."""
    above = node.parent
    while above is not None and above.type not in _ASKS:
        above = above.parent
    return above is None


def other_factor(place: Node) -> str:
    """The name that another one is multiplied by there; empty if there is none."""
    product = place.parent
    if product is None or operator(product) != "*":
        return ""
    return next((bare(side) for side in product.named_children if side != place), "")


def bases(target: Node) -> tuple[str, ...]:
    """The names that an expression may be a place of, as `out` in `*(out + 1)` and in `out[1].x`;
    none that only tell which place."""
    node: Node | None = target
    while node is not None:
        node = inner(node)
        given = node.child_by_field_name("arguments")
        if node.type == "binary_expression":
            sides = map(node.child_by_field_name, ("left", "right"))
            return tuple(bare(side) for side in sides if side is not None)
        if node.type == "identifier":
            return (text(node),)
        if given is not None and len(given.named_children) == 1:
            node = given.named_children[0]
        else:
            node = node.child_by_field_name("argument")
    return ()


def inner(node: Node) -> Node:
    """What stands in brackets and casts."""
    while node.type in _WRAPS and node.named_children:
        node = node.named_children[-1]
    return node


def bare(node: Node) -> str:
    """The name that an expression is, whatever type it is made; empty if it is none."""
    node = inner(node)
    while node.type == "call_expression" and converts(node):
        given = node.child_by_field_name("arguments")
        if given is None or len(given.named_children) != 1:
            return ""
        node = inner(given.named_children[0])
    return text(node) if node.type == "identifier" else ""


def operator(node: Node) -> str:
    """The sign of an operation on two values; empty if it is none."""
    sign = node.child_by_field_name("operator") if node.type == "binary_expression" else None
    return sign.type if sign is not None else ""
