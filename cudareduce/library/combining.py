"""Whether a kernel can bring several elements together at all, as far as its text tells."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from tree_sitter import Node

from cudareduce.cuda_source import every, parsed, text
from cudareduce.library.expressions import CHANGES, names
from cudareduce.library.syntax import converts, pieces

_LOOPS = frozenset(["for_statement", "while_statement", "do_statement"])
#: Functions that know nothing but what they are given.
_OF_ONE_THREAD = frozenset(
    ["pow", "powf", "fabs", "fabsf", "abs", "exp", "expf", "log", "logf", "sqrt", "sqrtf", "tanh",
     "tanhf", "min", "max", "fmin", "fmax", "fminf", "fmaxf", "float", "int", "__expf", "__logf",
     "rsqrt", "rsqrtf", "sin", "sinf", "cos", "cosf", "fma", "fmaf", "__ldg", "__fdividef"]
)  # fmt: skip


def combines(code: str) -> bool:
    """Whether anything in the body of a kernel can bring values of several elements together:
    memory that threads share, a function that is called, a jump, or a loop in which something goes
    on from turn to turn."""
    return any(
        text(node) == "__shared__" or node.type == "goto_statement" or _calls(node)
        or (node.type in CHANGES and _goes_on(node))
        for node in nodes_of(code)
    )  # fmt: skip


def works_alone(code: str) -> bool:
    """Whether threads share nothing: no memory, and no function that is called."""
    return not any(text(node) == "__shared__" or _calls(node) for node in nodes_of(code))


def adds_up(code: str, name: str) -> bool:
    """Whether what is behind a pointer is changed to something that it is a part of."""
    for node in nodes_of(code):
        target = node.child_by_field_name(CHANGES.get(node.type, ""))
        if target is not None and target.type != "identifier" and name in names(target):
            right = node.child_by_field_name("right")
            plain = right is not None and text(node.children[1]) == "="
            if not plain or text(target) in text(right or target):
                return True
    return False


def _calls(node: Node) -> bool:
    if node.type != "call_expression" or converts(node):
        return False
    return text(node.children[0]).removeprefix("std::") not in _OF_ONE_THREAD


def _goes_on(change: Node) -> bool:
    """Whether what is changed in a loop lasts beyond one of its turns, and does not count them."""
    target = change.child_by_field_name(CHANGES[change.type])
    if target is None:
        return False
    sign = text(change.children[1]) if change.type == "assignment_expression" else ""
    alone, right = target.type == "identifier", change.child_by_field_name("right")
    again = sign != "=" or (right is not None and text(target) in text(right))
    for loop in _around(change):
        condition = loop.child_by_field_name("condition")
        counted = names(condition) if condition is not None else set()
        if names(target) & counted or (alone and _declares(loop, text(target))):
            continue
        if alone or again:
            return True
    return False


def _around(node: Node) -> Iterator[Node]:
    """The loops in whose bodies a node stands."""
    below, above = node, node.parent
    while above is not None:
        if above.type in _LOOPS and above.child_by_field_name("body") == below:
            yield above
        below, above = above, above.parent


def _declares(loop: Node, name: str) -> bool:
    """Whether a variable of this name is declared in a loop, and begins anew with each turn."""
    return any(
        name == text(one.child_by_field_name("declarator") or one)
        for node in every(loop) if node.type == "declaration"
        for one in node.children_by_field_name("declarator")
    )  # fmt: skip


@lru_cache(maxsize=8)
def nodes_of(code: str) -> tuple[Node, ...]:
    """What a parser makes of a body, of which several things are asked."""
    return tuple(every(parsed(code)))


def goes_on(code: str) -> bool:
    """Whether a kernel in a text counts on in a loop up to one of its parameters, and so means to
    take elements beyond its first tile."""
    for piece in pieces(code.encode(errors="replace")):
        if "__global__" not in piece.words or piece.function is None:
            continue
        given = {words.split()[-1].strip("*&") for words in piece.function.parameters if words}
        if any(_counts_up(node, given) for node in every(piece.node)):
            return True
    return False


def _counts_up(loop: Node, limits: set[str]) -> bool:
    """Whether a loop ends at one of these names, and adds to something until then."""
    condition = loop.child_by_field_name("condition")
    if loop.type not in _LOOPS or condition is None:
        return False
    update = loop.child_by_field_name("update") or loop
    adds = any(
        (node.type == "assignment_expression" and text(node.children[1]) == "+=")
        or (node.type == "update_expression" and "++" in text(node))
        for node in every(update)
    )
    return adds and not limits.isdisjoint(text(n) for n in every(condition))
