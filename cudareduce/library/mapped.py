"""A map as it is written: which inputs it names, and which kernels it goes with."""

from __future__ import annotations

from cudareduce.library.header import Finish
from cudareduce.library.syntax import pieces
from cudareduce.problem.operators import Map, Reduction

#: What may become of the partials of a kernel that maps what it reads: it would map them again.
_ONCE: tuple[Finish, ...] = ("atomic", "none", "host", "last_block", "mailbox", "self_reset",
                             "one_word", "cluster")  # fmt: skip


def read_map(expression: str) -> Map:
    """The map of an expression, with as many inputs as it names: none where it names neither `a`
    nor `b`."""
    named = {name for piece in pieces(f"auto x = {expression};".encode()) for name in piece.uses}
    inputs = 2 if "b" in named else 1 if "a" in named else 0
    return Map(" ".join(expression.split()), inputs)


def why_not_map(own: Map | None, finish: Finish, reduction: Reduction) -> str | None:
    """Why a kernel whose text has this map, or none, does not take a reduction; None if it does."""
    asked = reduction.map
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
