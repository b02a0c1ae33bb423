"""Cases from choices: what each choice is launched as for each reduction, and what cannot run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product

from cudareduce.backends.protocol import Backend
from cudareduce.bench.session import Session
from cudareduce.catalog.kernel import Kernel
from cudareduce.catalog.registry import Choice
from cudareduce.launch.auto.choose import Chooser
from cudareduce.launch.auto.rule import Facts
from cudareduce.launch.auto.table import Table, tables_of
from cudareduce.launch.case import Case, Shape
from cudareduce.reduction.operators import Reduction
from cudareduce.reduction.transforms import check_transform
from cudareduce.verify.test_sets import ROW_SHAPES
from cudareduce.verify.verdict import ADDS, Verdict, skipped

#: Where a choice may differ: what is verified where no sizes are asked for.
_ANYWHERE: tuple[Shape, ...] = (*((2**k, 1) for k in range(31)), *ROW_SHAPES)


_SUMS = ("sum", "mean")
#: What a case is on an input of another shape, whose start lies so many elements behind an aligned
#: one: of `auto` what it takes there, of a kernel that is named itself.
Anew = Callable[[Case, Shape, int], Case]
#: Cases in the order asked for, with a verdict where one cannot run.
Cases = list[tuple[Case, Verdict | None]]


def cases(session: Session, choices: Sequence[Choice]) -> dict[Reduction, Cases]:
    """A case for each choice and reduction; for `auto` one for each shape that it takes at the
    sizes of the run. A table that does not load is a UsageError, and so is a map."""
    tables = _tables(session, choices)
    found: dict[Reduction, Cases] = {}
    for reduction, some in session.settings.shares(choices).items():
        check_transform(reduction)
        mine = found[reduction] = []
        for sms, choice in product(session.settings.sms, some):
            if choice.among:
                mine += _chosen(session, choice, reduction, tables, sms)
            else:
                mine.append(case(session, choice, reduction, sms))
    return found


def why_left_out(session: Session, choices: Sequence[Choice]) -> str:
    """What tables say that does not count, in a line each; a table that does not load is a
    UsageError."""
    return "\n".join(said for table in _tables(session, choices) for said in table.left_out)


def _tables(session: Session, choices: Sequence[Choice]) -> tuple[Table, ...]:
    """What is known of the device, where `auto` is among the choices."""
    automatic = next((choice for choice in choices if choice.among), None)
    return tables_of(session.backend.info(), _by_id(automatic)) if automatic else ()


def case(
    session: Session, choice: Choice, reduction: Reduction, sms: int | None = None
) -> tuple[Case, Verdict | None]:
    """The case of a kernel that is named, in the shape asked for, on so many SMs. A block that has
    an SM to itself is the largest that the header names: it alone keeps the SM's loads under
    way."""
    settings, kernel, size = session.settings, choice.kernel, reduction.dtype.size
    own = kernel.block if sms is None else max(kernel.blocks)
    block = settings.block or choice.block or own
    items = settings.items or choice.items or kernel.items_of(size)
    reason = (
        kernel.why_not(reduction)
        or kernel.why_not_block(block)
        or kernel.why_not_items(items, size)
        or (None if sms is None else kernel.why_not_sms())
    )  # fmt: skip
    verdict = skipped("unfit", reason) if reason else None
    lacks = session.backend.traits.lacks
    lacking = next((word for word in kernel.requires if word in lacks), None)
    if verdict is None and lacking is not None:
        verdict = skipped("machine", f"needs hardware that the CPU does not emulate: {lacking}")
    if verdict is None and _only_adds(kernel, reduction):
        why = (
            f"{ADDS}: its results on small inputs are those of the sum, not of {reduction.op.name}"
        )
        verdict = Verdict("fail", why)
    if verdict is None and kernel.program is not None and kernel.program.wrong:
        verdict = Verdict("fail", kernel.program.wrong)
    if reduction.op.name not in ("min", "max"):  # which alone may drop a NaN
        kernel = replace(kernel, precondition=replace(kernel.precondition, nan="propagate"))
    return Case(kernel, reduction, block, items, choice.suite, choice.name, sms=sms), verdict


def _only_adds(kernel: Kernel, reduction: Reduction) -> bool:
    """True if every result of an external program on small inputs was a sum, and another operator
    is requested."""
    program = kernel.program
    if program is None or program.computes is None or program.fit < 1:
        return False
    sums = program.computes.op.name in _SUMS
    return sums and reduction.op.name not in _SUMS and not reduction.op.expression


def _chosen(
    session: Session, choice: Choice, reduction: Reduction, tables: tuple[Table, ...],
    sms: int | None,
) -> Iterator[tuple[Case, Verdict | None]]:  # fmt: skip
    """What `auto` takes, each once, with the sizes for which it is taken. Tables are of all SMs."""
    sizes, rows = session.settings.sizes, session.settings.rows
    facts, known = facts_of(session.backend, sms), tables if sms is None else ()
    chooser = Chooser(choice.kernel.id, _by_id(choice), facts, known)
    found: dict[Case | None, list[int]] = {}
    for n, in_rows in [(n, rows) for n in sizes] or _ANYWHERE:
        found.setdefault(chooser.choose(reduction, n, in_rows), []).append(n)
    launched: dict[Case, tuple[set[int], Verdict | None]] = {}
    for best, taken in found.items():
        if best is not None:
            own = replace(choice, kernel=best.kernel, block=best.block, items=best.items)
            one, verdict = case(session, own, reduction, sms)
        elif sizes:
            takes = "reads two arrays" if reduction.inputs > 1 else "takes these rows"
            why = reduction.why_undefined() or f"no kernel of the package {takes}"
            one = Case(choice.kernel, reduction, choice.kernel.block, 1, sms=sms)
            verdict = skipped("unfit", why)
        else:
            continue
        launched.setdefault(one, (set(), verdict))[0].update(taken)
    for one, (at, verdict) in launched.items():
        yield replace(one, only=frozenset(at) if sizes else None), verdict


def chosen_anew(session: Session, choices: Sequence[Choice]) -> Anew:
    """What the cases of these choices are elsewhere."""
    tables, facts = _tables(session, choices), facts_of(session.backend)
    choosers = {
        choice.kernel.id: Chooser(choice.kernel.id, _by_id(choice), facts, tables)
        for choice in choices if choice.among
    }  # fmt: skip

    def anew(case: Case, shape: Shape, offset: int) -> Case:
        chooser = choosers.get(case.kernel.id)
        taken = chooser and chooser.choose(case.reduction, *shape, aligned=not offset)
        return replace(taken, suite=case.suite, name=case.name) if taken else case

    return anew


def facts_of(backend: Backend, sms: int | None = None) -> Facts:
    """What a choice depends on, where so many SMs may work."""
    return Facts(backend.limits(), backend.info(), backend.traits.lacks, sms)


def _by_id(choice: Choice) -> dict[str, Kernel]:
    return {kernel.id: kernel for kernel in choice.among}
