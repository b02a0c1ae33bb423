"""How many elements a thread of a kernel of others takes, as its text reckons."""

from __future__ import annotations

from math import prod

from tree_sitter import Node

from cudareduce.library.body import Body
from cudareduce.library.expressions import inner, operator
from cudareduce.library.host_code import number_at
from cudareduce.library.scopes import Constants, Scope
from cudareduce.problem.parsing import every, parsed, text

#: Elements of a load that is as wide as there are, and pairs and quads of these.
_USUAL = frozenset(["2", "4", "8", "16"])
#: And those that a thread may come to in turn.
_MOST = 64
_THREAD = frozenset(["blockIdx.x", "threadIdx.x"])


def items_in(code: str) -> int | None:
    """Elements a thread where a text multiplies the number of a thread in the grid by them, to come
    to its first element; None where it does not, or by several numbers."""
    body, found = Body(code), set[str]()
    for node in every(parsed(code)):
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
    """Elements a thread where a text multiplies the number of a block by its threads, or by a
    number of elements of which each of its `block` threads has as many, and by constants of the
    `file`, to come to its tile; None where it does not, or by several numbers."""
    found = set()
    for node in every(parsed(code)):
        factors = _factors(node)
        words = [text(factor) for factor in factors]
        above = node.parent
        if "blockIdx.x" not in words or (above is not None and operator(above) == "*"):
            continue
        others = (f for f, word in zip(factors, words, strict=True) if not word.endswith("Dim.x"))
        known = [number_at(Scope(file, {}, f), f) for f in others if text(f) != "blockIdx.x"]
        numbers = [number for number in known if number is not None]
        if len(numbers) == len(known) and known:
            items, rest = divmod(prod(numbers), 1 if "blockDim.x" in words else block)
            found |= {items} if items > 1 and not rest else set()
    return found.pop() if len(found) == 1 and max(found) <= _MOST else None


def _factors(node: Node) -> list[Node]:
    """What an expression is a product of, however deep in brackets; itself, if it is none."""
    node = inner(node)
    if operator(node) != "*":
        return [node]
    sides = map(node.child_by_field_name, ("left", "right"))
    return [factor for side in sides if side is not None for factor in _factors(side)]
