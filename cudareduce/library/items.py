"""How many elements a thread of a kernel of others takes, as its text reckons."""

from __future__ import annotations

from cudareduce.library.body import Body
from cudareduce.problem.parsing import every, parsed, text

#: Elements of a load that is as wide as there are, and pairs and quads of these.
_USUAL = frozenset(["2", "4", "8", "16"])
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
