"""Batches as the looks of a check measure them: all, or what is in doubt, for as long as there is
time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from cudareduce.budget import Deadline
from cudareduce.gate.bencher import BASE, Batch, Remeasured
from cudareduce.gate.looks import Measure
from cudareduce.gate.rerun import only_suspects
from cudareduce.library.kernel import Kernel
from cudareduce.results.record import Record

#: Measures batches, in this process or in one begun anew.
MeasureBatches = Callable[[Sequence[Batch]], Remeasured]


def of_batches(
    measure: MeasureBatches,
    batches: Sequence[Batch],
    deadline: Deadline,
    base: Mapping[str, Kernel] | None = None,
) -> Measure:
    """Measures these, until the deadline; each kernel beside what it was in the base, if that has
    it."""

    def measured(suspects: Sequence[Record] | None, times: int) -> Remeasured:
        some = batches if suspects is None else only_suspects(batches, suspects, times)
        return measure([_beside(_by(batch, deadline), base or {}) for batch in some])

    return measured


def _by(batch: Batch, deadline: Deadline) -> Batch:
    """The same, which ends with the time of the whole."""
    return replace(batch, settings=replace(batch.settings, deadline=deadline))


def _beside(batch: Batch, base: Mapping[str, Kernel]) -> Batch:
    """Each kernel next to what it was in the base, so that a round meets both at once."""
    if not any(choice.kernel.id in base for choice in batch.choices):
        return batch
    pairs = (
        (head, replace(head, kernel=base[head.kernel.id], suite=None, name=BASE))
        if head.kernel.id in base else (head,)
        for head in batch.choices
    )  # fmt: skip
    # a kernel of the base may have an ancestor that is not known here
    settings = replace(batch.settings, baseline_kernel=batch.choices[0].kernel.id)
    return replace(batch, settings=settings, choices=tuple(chain.from_iterable(pairs)))
