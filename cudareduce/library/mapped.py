"""A map as it is written: which inputs it names, and which kernels it goes with."""

from __future__ import annotations

from collections.abc import Iterable

from tree_sitter import Node

from cudareduce.cuda_source import every, text
from cudareduce.errors import UsageError
from cudareduce.library.header import Elements, Finish
from cudareduce.library.syntax import pieces
from cudareduce.reduction.operators import Map, Reduction

#: What may become of the partials of a kernel that maps what it reads: it would map them again.
_ONCE: tuple[Finish, ...] = ("atomic", "none", "host", "last_block", "mailbox", "self_reset",
                             "one_word", "cluster")  # fmt: skip
#: What people square and take magnitudes with, besides products.
_POWERS = frozenset(["pow", "powf"])
_FUSED = frozenset(["fma", "fmaf", "__fmaf_rn", "__fma_rn"])
_MAGNITUDES = frozenset(["abs", "fabs", "fabsf"])


def read_map(expression: str, called: str) -> Map:
    """The map of an expression, with as many inputs as it names; `called` is what messages begin
    with where it is none, which is a UsageError."""
    if not expression.isprintable() or not expression.strip():
        raise UsageError(f"{called} takes one line of C++ in a, or in a and b, such as 'a * b'")
    named = {name for piece in pieces(f"auto x = {expression};".encode()) for name in piece.uses}
    if not named & {"a", "b"}:
        raise UsageError(
            f"{called} {expression!r} names no element: write C++ in a, or in a and b, such as "
            "'a * b'"
        )
    return Map(" ".join(expression.split()), 2 if "b" in named else 1)


def maps_in(code: str, inputs: int = 1) -> list[Map]:
    """What a text may make of elements, or of the differences of those of two arrays, as far as it
    says so: squares, where it multiplies something by itself, and magnitudes."""
    nodes = [node for piece in pieces(code.encode()) for node in every(piece.node)]
    squares = any(_alike(*factors) for node in nodes if (factors := _factors(node)))
    called = {text(node.children[0]) for node in nodes if node.type == "call_expression"}
    square, magnitude = (
        ("a * a", "fabs(a)") if inputs == 1 else ("(a - b) * (a - b)", "fabs(a - b)")
    )
    found = [Map(square, inputs)] if squares or called & _POWERS else []
    return [*found, Map(magnitude, inputs)] if called & _MAGNITUDES else found


def likely_maps(own: Iterable[Map], code: str, inputs: int = 1) -> list[Map]:
    """What a kernel may make of elements, each once: what it forms, then what its text may mean."""
    return list(dict.fromkeys((*own, *maps_in(code, inputs))))


def _factors(node: Node) -> list[Node]:
    """What is multiplied there, by a sign or before it is added; empty if nothing is."""
    given = node.child_by_field_name("arguments")
    if node.type == "call_expression" and given and text(node.children[0]) in _FUSED:
        return given.named_children[:2] if len(given.named_children) == 3 else []
    sign = text(node.children[1]) if len(node.children) == 3 else ""
    times = (node.type, sign) in (("binary_expression", "*"), ("assignment_expression", "*="))
    return [node.children[0], node.children[2]] if times else []


def _alike(left: Node, right: Node) -> bool:
    """Whether both factors are written alike, and are no numbers."""
    if left.type == "number_literal":
        return False
    return "".join(text(left).split()) == "".join(text(right).split())


def why_not_map(
    own: Map | None, finish: Finish, elements: Elements, reduction: Reduction
) -> str | None:
    """Why a kernel whose text has this map, or none, does not take a reduction; None if it does."""
    asked = reduction.map
    if asked is not None and elements == "as_they_lie":
        return f"takes several elements at once as they lie, and not {asked.expression}"
    if own is not None and asked != own:
        what = "elements as they are" if asked is None else asked.expression
        return f"forms {own.expression} of its elements, and not {what}"
    if own is not None and finish not in _ONCE:
        return (
            f"forms {own.expression} of whatever it reads, so it cannot be launched again on its "
            "partials: let it finish in one launch, or say --finish host"
        )
    if own is None and asked is not None and asked.inputs > 1:
        return f"reads one array, and {asked.expression} takes two"
    return None
