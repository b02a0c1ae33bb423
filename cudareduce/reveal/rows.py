"""What is told of orders: a table of all, and a picture of each where they are few."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cudareduce.launch.plan import Problem
from cudareduce.problem.sizes import counted
from cudareduce.report.numbers import DASH, error_text, short_size
from cudareduce.report.section import Section
from cudareduce.reveal.choose import Refused
from cudareduce.reveal.found import Found
from cudareduce.reveal.grow import EXACT_UP_TO
from cudareduce.reveal.job import KernelCall, PeerCall
from cudareduce.reveal.picture import picture
from cudareduce.reveal.table import BETWEEN, Order

#: So many pictures are shown; of more only the table.
_PICTURES = 4
_SAID = {"fixed": "fixed", "varies": "varies", "other": "not only +", "wrong": "WRONG"}


def order_of(call: KernelCall | PeerCall, found: Found) -> Order:
    """The row of a call."""
    tree, case = found.tree, call.case if isinstance(call, KernelCall) else None
    reasons = [found.reason, *_unlike_its_header(call, found)]
    return replace(
        _row(call.name, call.problem, found.outcome, "; ".join(filter(None, reasons))),
        block=case.block if case else None, items=case.items if case else None,
        hashes={str(len(tree.leaves)): tree.hash for tree in found.trees},
        depth=tree.depth if tree else None, exact=bool(tree and tree.exact), bound=found.bound,
        adds_in=found.adds_in, probes=found.probes, called=found.called, version=found.version,
        picture=tuple(BETWEEN.join(line) for line in picture(tree)) if tree else (),
        cause=found.cause,
    )  # fmt: skip


def refused(one: Refused) -> Order:
    """The row of what is not tried."""
    return replace(_row(one.name, one.problem, "skip", one.reason), cause=one.cause)


def _row(name: str, problem: Problem, outcome: str, reason: str) -> Order:
    reduction = problem.reduction
    return Order(
        kernel=name, dtype=reduction.dtype.name, acc=reduction.acc.name, n=problem.n,
        rows=problem.rows, outcome=outcome, reason=reason,
    )  # fmt: skip


def _unlike_its_header(call: KernelCall | PeerCall, found: Found) -> Iterator[str]:
    """Where a kernel's order is not the one that its header claims."""
    tree = found.tree
    if not isinstance(call, KernelCall) or tree is None or found.outcome == "varies":
        return
    if call.plan.folds_on_host:
        yield "the host folds its partials, in a wider type"
    elif tree.depth > call.plan.depth:
        yield f"deeper than its header claims: {tree.depth} additions, not {call.plan.depth}"
    if tree.exact and not tree.refines(call.plan.tree):
        yield "not in the order that its header claims"
    if call.case.kernel.order == "kept" and tree.exact and not tree.keeps_order:
        yield "operands change places, which its header denies"
    if call.case.kernel.finish == "atomic" and any(step.grid > 2 for step in call.plan.passes):
        yield "it was one order each time, and none is promised: memory combines its partials"


def sections(orders: Sequence[Order], device: str) -> list[Section]:
    """The table, then pictures."""
    header = ("kernel", "n", "dtype", "order", "depth", "bound", "hash")
    rows = tuple(
        (order.kernel, _size(order), order.dtype, _SAID[order.outcome], _depth(order),
         error_text(order.bound), order.hash or DASH)
        for order in orders if order.outcome != "skip"
    )  # fmt: skip
    notes = tuple(dict.fromkeys(_notes(orders)))
    table = Section(f"order of additions, {device}", header, rows, notes, texts=1)
    drawn = [order for order in orders if order.picture]
    pictures = [_picture(order) for order in drawn] if len(drawn) <= _PICTURES else []
    return [table, *pictures]


def _size(order: Order) -> str:
    rows = f" x {order.rows} rows" if order.rows != 1 else ""
    return f"{short_size(order.n)}{rows}"


def _depth(order: Order) -> str:
    if order.depth is None:
        return DASH
    return str(order.depth) if order.exact else f">= {order.depth}"


def _notes(orders: Sequence[Order]) -> Iterator[str]:
    skipped: dict[str, list[str]] = {}
    for order in orders:
        where = f"{order.kernel}, n = {order.n}"
        if order.outcome == "skip":
            skipped.setdefault(order.reason, []).append(where)
        elif order.reason:
            yield f"{where}: {'WRONG: ' if order.outcome == 'wrong' else ''}{order.reason}"
        if order.called and order.outcome != "skip":
            yield f"{order.kernel}: {order.version} {order.called}"
    for reason, places in skipped.items():
        if len(places) == 1:
            yield f"{places[0]}: skipped, {reason}"
        else:
            yield f"skipped, {reason} ({len(places)} calls): {'; '.join(dict.fromkeys(places))}"
    bounded = [order for order in orders if order.bound]
    if bounded:
        wider = dict.fromkeys(
            f"{order.dtype} added up in {order.adds_in}"
            for order in bounded if order.adds_in != order.dtype
        )  # fmt: skip
        yield "; ".join(["bound: gamma_depth, of the sum of magnitudes", *wider])
    if any(order.hashes and not order.exact for order in orders):
        yield f"depth >=: of a sample; all elements are compared up to n = {EXACT_UP_TO}"


def _picture(order: Order) -> Section:
    what = f"{order.kernel}, {_size(order)} {order.dtype}, {counted(order.probes, 'probe')}"
    lines = [line.partition(BETWEEN) for line in order.picture]
    rows = tuple((left, right) for left, _, right in lines)
    header = ("sum of", "made of") if order.exact else ("in a sum of", "element 0 meets")
    return Section(what, header, rows, (), texts=2)
