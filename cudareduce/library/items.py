"""How many elements a thread of a kernel of others takes, as its text reckons."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tree_sitter import Node

from cudareduce.cuda_source import text
from cudareduce.library.body import Body
from cudareduce.library.combining import nodes_of
from cudareduce.library.expressions import MOST_PLACES, first_values, inner, operator
from cudareduce.library.host_code import number_at
from cudareduce.library.scopes import Constants, Scope

#: Elements of a load that is as wide as there are, and pairs and quads of these.
_USUAL = frozenset(["2", "4", "8", "16"])
#: And those that a thread may come to in turn.
_MOST = 64
_THREAD = frozenset(["blockIdx.x", "threadIdx.x"])
_GRID = frozenset(["blockIdx.x", "blockDim.x"])
#: What makes the number of several threads of that of one.
_SHARES = frozenset(["/", "%", "&", ">>"])


def items_in(code: str) -> int | None:
    """Elements a thread where a text multiplies the number of a thread in the grid by them, to come
    to its first element; None where it does not, or by several numbers."""
    body, found = Body(code), set[str]()
    for node in nodes_of(code):
        sign = node.child_by_field_name("operator")
        if node.type != "binary_expression" or sign is None or sign.type != "*":
            continue
        left, right = map(node.child_by_field_name, ("left", "right"))
        if left is None or right is None:
            continue
        found |= {
            text(number) for number, other in ((left, right), (right, left))
            if number.type == "number_literal" and body.behind(other) >= _THREAD
        }  # fmt: skip
    return int(found.pop()) if len(found) == 1 and found <= _USUAL else None


def items_of_tiles(code: str, file: Constants, block: int) -> int | None:
    """Elements a thread where a text multiplies the number of a thread in the grid by constants of
    its own or of the `file`, or that of a block by such and by its threads, or by a number of
    elements of which each of its `block` threads has as many, to come to its first one; None where
    it does not, or by several numbers."""
    body, found, nodes = Body(code), set(), nodes_of(code)
    own = first_values(nodes)
    for node in nodes:
        if operator(node) != "*" or (node.parent is not None and operator(node.parent) == "*"):
            continue  # no product, or a part of one
        factors = _factors(node)
        words = [text(factor) for factor in factors]
        threads = [f for f in factors if _is_thread(body.behind(f))]
        if not threads and "blockIdx.x" not in words:
            continue
        others = (f for f, word in zip(factors, words, strict=True) if word not in _GRID)
        known = [_number(f, own, file) for f in others if f not in threads]
        numbers = [number for number in known if number is not None]
        if not known or len(numbers) < len(known):
            continue
        each = threads or "blockDim.x" in words
        items, rest = divmod(prod(numbers), 1 if each else block)
        found |= {items} if items > 1 and not rest else set()
    return found.pop() if len(found) == 1 and max(found) <= _MOST else None


def _is_thread(words: frozenset[str]) -> bool:
    """Whether these words make the number of a thread in the grid, and not that of a warp."""
    return words >= _THREAD and words.isdisjoint(_SHARES)


def _number(node: Node, own: Mapping[str, Node], file: Constants) -> int | None:
    """The number that a factor is, as a constant of its kernel or of the file."""
    value = own.get(text(inner(node)), node)
    return number_at(Scope(file, {}, value), value)


def _factors(node: Node) -> list[Node]:
    """What an expression is a product of, however deep in brackets; nothing, if it is of more than
    people write."""
    found: list[Node] = []
    left = [node]
    while left and len(left) + len(found) <= MOST_PLACES:
        one = inner(left.pop())
        sides = map(one.child_by_field_name, ("left", "right")) if operator(one) == "*" else ()
        left += reversed([side for side in sides if side is not None])
        found += [one] if operator(one) != "*" else []
    return [] if left else found
