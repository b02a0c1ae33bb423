"""Which operators go with the order in which a kernel combines, and with how it finishes."""

from __future__ import annotations

from cudareduce.library.header import UNORDERED, Finish, Order
from cudareduce.reduction.operators import Operator


def why_not_op(op: Operator, order: Order, finish: Finish, *, named: bool) -> str | None:
    """Why an operator does not go with these, or None if it does; it is `named` by the kernel, of
    which nobody knows whether what it adds up in memory are `shares` of a mean."""
    if order == "any" and not op.commutative:
        return f"{op.name} does not commute and this kernel does not keep the order of operands"
    together = op.has_atomic or (op.indexed and named)
    if finish in UNORDERED and not together:
        return f"combines in memory, and {op.name} has no atomic form"
    if finish == "host" and (op.has_finish or op.words > 1):
        return f"leaves partials to the host, which does not fold those of {op.name}"
    return None
