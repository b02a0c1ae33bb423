"""Parses the expression of a transform, and decides which kernels support it."""

from __future__ import annotations

from cudareduce.catalog.front_matter import Elements, Finish
from cudareduce.cuda_source import parse_cuda, text, walk
from cudareduce.errors import UsageError
from cudareduce.reduction.operators import Map, Reduction

#: Finishes in which no partial result is read by the kernel again, which would transform it twice.
_ONCE: tuple[Finish, ...] = ("atomic", "none", "host", "last_block", "mailbox", "self_reset",
                             "one_word", "cluster")  # fmt: skip


def read_map(expression: str, option: str) -> Map:
    """The transform of an expression, of two inputs if that uses `b`. Raises UsageError if it is
    empty or uses neither `a` nor `b`; messages begin with `option`."""
    if not expression.isprintable() or not expression.strip():
        raise UsageError(f"{option} takes one line of C++ in a, or in a and b, such as 'a * b'")
    nodes = walk(parse_cuda(f"auto x = {expression};"))
    names = {text(node) for node in nodes if node.type == "identifier"}
    if not names & {"a", "b"}:
        raise UsageError(
            f"{option} {expression!r} names no element: write C++ in a, or in a and b, such as "
            "'a * b'"
        )
    return Map(" ".join(expression.split()), 2 if "b" in names else 1)


def why_not_map(
    applied: Map | None, finish: Finish, elements: Elements, reduction: Reduction
) -> str | None:
    """The reason why a kernel does not support the transform of a reduction; None if it does.
    `applied` is the transform in the kernel's own text, if it has one."""
    requested = reduction.map
    if requested is not None and elements == "as_they_lie":
        return f"loads several elements as raw bits, so it cannot apply {requested.expression}"
    if applied is not None and requested != applied:
        what = "the elements themselves" if requested is None else requested.expression
        return f"reduces {applied.expression}, not {what}"
    if applied is not None and finish not in _ONCE:
        return (
            f"applies {applied.expression} to everything that it reads, so it cannot be launched "
            "again on its partials: let it finish in one launch, or use --finish host"
        )
    if applied is None and requested is not None and requested.inputs > 1:
        return f"reads one array, and {requested.expression} takes two"
    return None
