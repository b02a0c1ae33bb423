"""From choices to cases: the launch shape of each kernel, and why it cannot run so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cudareduce.bench.settings import Settings
from cudareduce.launch.case import Case
from cudareduce.library.registry import Choice
from cudareduce.problem.operators import Reduction
from cudareduce.verify.verdict import Verdict, skipped


def cases_of(
    choices: Sequence[Choice], reduction: Reduction, settings: Settings, lacks: Sequence[str]
) -> Iterator[tuple[Case, Verdict | None]]:
    """A case for each choice, once on each number of SMs, with a verdict where it cannot run: on a
    device that `lacks` what its kernel requires, or in a shape that it does not take."""
    for sms in settings.sms:
        for choice in choices:
            case = _case(choice, reduction, settings, sms)
            reason = _why_not(case)
            verdict = skipped("unfit", reason) if reason else None
            lacking = next((word for word in case.kernel.requires if word in lacks), None)
            if verdict is None and lacking is not None:
                verdict = skipped(
                    "machine", f"needs hardware that the CPU does not emulate: {lacking}"
                )
            yield case, verdict


def _case(choice: Choice, reduction: Reduction, settings: Settings, sms: int | None) -> Case:
    """In the shape asked for, else in the kernel's own. A block that has an SM to itself is the
    largest that the header names: it alone keeps the SM's loads under way."""
    kernel = choice.kernel
    own = kernel.block if sms is None or kernel.guessed is not None else max(kernel.blocks)
    block = settings.block or choice.block or own
    items = settings.items or choice.items or kernel.items_of(reduction.dtype.size)
    return Case(kernel, reduction, block, items, choice.suite, choice.name, sms)


def _why_not(case: Case) -> str | None:
    """Why a kernel does not take its case, in words, or None if it does."""
    kernel = case.kernel
    return (
        kernel.why_not(case.reduction)
        or kernel.why_not_block(case.block)
        or kernel.why_not_items(case.items, case.reduction.dtype.size)
        or (None if case.sms is None else kernel.why_not_sms())
    )
