"""Cases from choices: what each choice is launched as for one reduction, and what cannot run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cudareduce.auto.choose import Chooser
from cudareduce.auto.formula import Facts
from cudareduce.bench.session import Session
from cudareduce.launch.case import Case, Shape
from cudareduce.library.registry import Choice
from cudareduce.problem.operators import Reduction
from cudareduce.verify.shapes import ROW_SHAPES
from cudareduce.verify.verdict import Verdict, skipped

#: Where a choice may differ: what is verified where no sizes are asked for.
_ANYWHERE: tuple[Shape, ...] = (*((2**k, 1) for k in range(31)), *ROW_SHAPES)


def cases(
    session: Session, choices: Sequence[Choice], reduction: Reduction
) -> list[tuple[Case, Verdict | None]]:
    """A case for each choice, with a verdict where it cannot run; for `auto` one for each shape
    that it takes at the sizes of the run."""
    return [
        one
        for choice in choices
        for one in (
            _chosen(session, choice, reduction) if choice.among
            else [_case(session, choice, reduction)]
        )
    ]  # fmt: skip


def _case(session: Session, choice: Choice, reduction: Reduction) -> tuple[Case, Verdict | None]:
    settings, kernel, size = session.settings, choice.kernel, reduction.dtype.size
    block = settings.block or choice.block or kernel.block
    items = settings.items or choice.items or kernel.items_of(size)
    reason = (
        kernel.why_not(reduction)
        or kernel.why_not_block(block)
        or kernel.why_not_items(items, size)
    )  # fmt: skip
    verdict = skipped("unfit", reason) if reason else None
    lacks = session.backend.traits.lacks
    lacking = next((word for word in kernel.requires if word in lacks), None)
    if verdict is None and lacking is not None:
        verdict = skipped("machine", f"needs hardware that the CPU does not emulate: {lacking}")
    return Case(kernel, reduction, block, items, choice.suite, choice.name), verdict


def _chosen(
    session: Session, choice: Choice, reduction: Reduction
) -> Iterator[tuple[Case, Verdict | None]]:
    """What `auto` takes, each with the sizes for which it is taken."""
    sizes, rows = session.settings.sizes, session.settings.rows
    chooser = _chooser(session, choice)
    found: dict[Case | None, list[int]] = {}
    for n, in_rows in [(n, rows) for n in sizes] or _ANYWHERE:
        found.setdefault(chooser.choose(reduction, n, in_rows), []).append(n)
    for case, taken in found.items():
        only = frozenset(taken) if sizes else None
        if case is not None:
            own = replace(choice, kernel=case.kernel, block=case.block, items=case.items)
            launched, verdict = _case(session, own, reduction)
            yield replace(launched, only=only), verdict
        elif sizes:
            none = Case(choice.kernel, reduction, choice.kernel.block, 1, only=only)
            why = reduction.why_undefined() or "no kernel of the package takes these rows"
            yield none, skipped("unfit", why)


def _chooser(session: Session, choice: Choice) -> Chooser:
    backend = session.backend
    return Chooser(
        name=choice.kernel.id,
        kernels={kernel.id: kernel for kernel in choice.among},
        facts=Facts(backend.limits(), backend.info(), backend.traits.lacks),
    )
