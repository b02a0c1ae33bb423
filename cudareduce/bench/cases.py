"""Combine the selected kernels with the requested reductions, and find pairs that cannot run."""

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

#: Shapes at which `auto` may select different kernels; all are verified if no sizes are requested.
_ANY_SHAPE: tuple[Shape, ...] = (*((2**k, 1) for k in range(31)), *ROW_SHAPES)


_SUMS = ("sum", "mean")
#: Returns the case for another shape and element offset of the input: of `auto` the kernel that it
#: selects there, of a named kernel the same case.
SelectCase = Callable[[Case, Shape, int], Case]
#: Cases in the requested order; the verdict is None for a case that can run.
Cases = list[tuple[Case, Verdict | None]]


def make_cases(session: Session, choices: Sequence[Choice]) -> dict[Reduction, Cases]:
    """The cases of each reduction. `auto` has one case for each kernel that it selects at the sizes
    of the run. Raises UsageError for an invalid table or transform."""
    tables = _tables(session, choices)
    cases: dict[Reduction, Cases] = {}
    for reduction, candidates in session.settings.shares(choices).items():
        check_transform(reduction)
        cases[reduction] = []
        for sms, choice in product(session.settings.sms, candidates):
            if choice.candidates:
                cases[reduction] += _auto_cases(session, choice, reduction, tables, sms)
            else:
                cases[reduction].append(make_case(session, choice, reduction, sms))
    return cases


def table_warnings(session: Session, choices: Sequence[Choice]) -> str:
    """One line for each ignored entry of the tables of `auto`. Raises UsageError for an invalid
    table."""
    return "\n".join(line for table in _tables(session, choices) for line in table.left_out)


def _tables(session: Session, choices: Sequence[Choice]) -> tuple[Table, ...]:
    """The tables for this device, if `auto` is among the choices."""
    automatic = next((choice for choice in choices if choice.candidates), None)
    return tables_of(session.backend.info(), _by_id(automatic)) if automatic else ()


def make_case(
    session: Session, choice: Choice, reduction: Reduction, sms: int | None = None
) -> tuple[Case, Verdict | None]:
    """The case of a named kernel with its block size and items per thread, and a verdict if it
    cannot run.

    `sms` limits the number of SMs. Each SM then runs one block, so the default is the kernel's
    largest block size, which keeps most loads in flight."""
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
    if reduction.op.name not in ("min", "max"):  # other operators propagate NaN
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


def _auto_cases(
    session: Session, choice: Choice, reduction: Reduction, tables: tuple[Table, ...],
    sms: int | None,
) -> Iterator[tuple[Case, Verdict | None]]:  # fmt: skip
    """The distinct cases that `auto` selects, each with its sizes. Tables are for runs on
    all SMs."""
    sizes, rows = session.settings.sizes, session.settings.rows
    facts, known = facts_of(session.backend, sms), tables if sms is None else ()
    chooser = Chooser(choice.kernel.id, _by_id(choice), facts, known)
    sizes_of: dict[Case | None, list[int]] = {}
    for n, in_rows in [(n, rows) for n in sizes] or _ANY_SHAPE:
        sizes_of.setdefault(chooser.choose(reduction, n, in_rows), []).append(n)
    launched: dict[Case, tuple[set[int], Verdict | None]] = {}
    for best, selected_at in sizes_of.items():
        if best is not None:
            own = replace(choice, kernel=best.kernel, block=best.block, items=best.items)
            case, verdict = make_case(session, own, reduction, sms)
        elif sizes:
            takes = "reads two arrays" if reduction.inputs > 1 else "takes these rows"
            why = reduction.why_undefined() or f"no kernel of the package {takes}"
            case = Case(choice.kernel, reduction, choice.kernel.block, 1, sms=sms)
            verdict = skipped("unfit", why)
        else:
            continue
        launched.setdefault(case, (set(), verdict))[0].update(selected_at)
    for case, (at, verdict) in launched.items():
        yield replace(case, only=frozenset(at) if sizes else None), verdict


def case_selector(session: Session, choices: Sequence[Choice]) -> SelectCase:
    """Returns a function that replaces a case for another shape and offset of its input."""
    tables, facts = _tables(session, choices), facts_of(session.backend)
    choosers = {
        choice.kernel.id: Chooser(choice.kernel.id, _by_id(choice), facts, tables)
        for choice in choices if choice.candidates
    }  # fmt: skip

    def select(case: Case, shape: Shape, offset: int) -> Case:
        chooser = choosers.get(case.kernel.id)
        best = chooser and chooser.choose(case.reduction, *shape, aligned=not offset)
        return replace(best, suite=case.suite, name=case.name) if best else case

    return select


def facts_of(backend: Backend, sms: int | None = None) -> Facts:
    """The device properties on which `auto` bases its choice; `sms` limits the number of SMs."""
    return Facts(backend.limits(), backend.info(), backend.traits.lacks, sms)


def _by_id(choice: Choice) -> dict[str, Kernel]:
    return {kernel.id: kernel for kernel in choice.candidates}
