"""A map as it is written: which inputs it names, and which kernels it goes with."""

from __future__ import annotations

from cudareduce.cuda_source import parse_cuda, text, walk
from cudareduce.errors import UsageError
from cudareduce.library.header import Elements, Finish
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
    nodes = walk(parse_cuda(f"auto x = {expression};"))
    named = {text(node) for node in nodes if node.type == "identifier"}
    if not named & {"a", "b"}:
        raise UsageError(
            f"{called} {expression!r} names no element: write C++ in a, or in a and b, such as "
            "'a * b'"
        )
    return Map(" ".join(expression.split()), 2 if "b" in named else 1)


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
