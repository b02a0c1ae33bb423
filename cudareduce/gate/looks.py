"""The looks that `check` takes: all of it once, what is in doubt for longer, and what looks slower
in a process begun anew.

Whatever ends a look early, Ctrl-C, a GPU that fails or the end of the time, leaves the rows that
there are by then, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from cudareduce.budget import Deadline
from cudareduce.errors import EnvironmentProblem, KernelFault
from cudareduce.gate.baseline import problem
from cudareduce.gate.bencher import BASE, INTERRUPTED, Batch, Cut, Remeasured
from cudareduce.gate.compare import Row, Rules, compare
from cudareduce.gate.policy import Sides, confirm, decide, not_measured, unconfirmed
from cudareduce.gate.rerun import only_suspects
from cudareduce.library.kernel import Kernel
from cudareduce.problem.sizes import counted
from cudareduce.progress import say
from cudareduce.results.record import Record

#: Measures batches, in this process or in one begun anew.
Measure = Callable[[Sequence[Batch]], Remeasured]
_NO_TIME = "no time was left to measure it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """How to look: the `rules`, the time for what is in doubt and for all, and whether to be
    quiet."""

    rules: Rules
    budget_s: float
    deadline: Deadline
    quiet: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The rows by now, the first measurement of all, and why no more was measured, if so."""

    rows: Sequence[Row]
    measured: Remeasured
    cut: Cut | None = None


def first_look(
    measure: Measure, batches: Sequence[Batch], stored: Sequence[Record] | None, looks: Looks
) -> Seen:
    """All batches once, compared with what is `stored`, or with the base's kernels among them; then
    for longer what is in doubt."""
    batches = [_by(batch, looks.deadline) for batch in batches]
    measured = measure(batches)
    rows = compare(measured.old if stored is None else stored, measured.new, looks.rules)
    if measured.cut:
        return Seen(rows=not_measured(rows, measured.cut.why), measured=measured, cut=measured.cut)

    def longer(some: Sequence[Row], times: int) -> Sides:
        _say_again(some, times, looks.quiet)
        suspects = only_suspects(batches, [row.record for row in some], times)
        second = _whole(measure(suspects))
        return second.old if stored is None else [row.old for row in some if row.old], second.new

    budget = Deadline(min(looks.budget_s, looks.deadline.left_s))
    try:
        rows = decide(rows, longer, looks.rules, budget)
    except _CutError as error:
        return Seen(rows=rows, measured=measured, cut=error.cut)
    return Seen(rows=rows, measured=measured)


def second_look(
    seen: Seen, batches: Sequence[Batch], base: Mapping[str, Kernel], afresh: Measure, looks: Looks
) -> Seen:
    """What looks slower, measured afresh with twice the rounds, and beside the kernels of `base`
    where it has them; what it does not confirm is not SLOWER."""
    if seen.cut:
        return replace(seen, rows=unconfirmed(seen.rows, f"not measured again: {seen.cut.why}"))
    if looks.deadline.passed:
        return replace(seen, rows=unconfirmed(seen.rows, _NO_TIME))

    def again(some: Sequence[Row]) -> Sequence[Row]:
        _say_again(some, 2, looks.quiet, ", in a fresh process")
        longer = only_suspects(batches, [row.record for row in some], 2)
        limited = [_beside(_by(batch, looks.deadline), base) for batch in longer]
        return _compared(some, _whole(afresh(limited)), looks.rules)

    try:
        return replace(seen, rows=confirm(seen.rows, again))
    except KeyboardInterrupt:
        cut = INTERRUPTED
    except _CutError as error:
        cut = error.cut
    except (EnvironmentProblem, KernelFault) as error:
        cut = Cut(str(error), error.exit_code)
    rows = unconfirmed(seen.rows, f"not measured again: {cut.why}")
    return replace(seen, rows=rows, cut=cut)


class _CutError(Exception):
    """A measurement was cut."""

    def __init__(self, cut: Cut) -> None:
        super().__init__(cut.why)
        self.cut = cut


def _whole(measured: Remeasured) -> Remeasured:
    if measured.cut:
        raise _CutError(measured.cut)
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


def _compared(some: Sequence[Row], second: Remeasured, rules: Rules) -> list[Row]:
    """Rows measured again: with the base's kernels where those ran in the same rounds, else with
    what is stored."""
    if rules.paired:
        return compare(second.old, second.new, rules)
    there = {problem(record) for record in second.old}
    beside = [record for record in second.new if problem(record) in there]
    alone = [record for record in second.new if problem(record) not in there]
    names = set(map(problem, alone))
    stored = [row.old for row in some if row.old and problem(row.record) in names]
    in_rounds = replace(rules, paired=True, shares=False)
    return [*compare(second.old, beside, in_rounds), *compare(stored, alone, rules)]


def _say_again(rows: Sequence[Row], times: int, quiet: bool, where: str = "") -> None:
    """What is measured again, and what beside it."""
    slower, doubtful = (
        sum(row.verdict == word for row in rows) for word in ("SLOWER", "UNCERTAIN")
    )  # fmt: skip
    words = f"{counted(slower, 'looks', 'look')} slower" if slower else f"{doubtful} in doubt"
    others = len(rows) - slower - doubtful
    beside = f", beside {others} that did not change" if others else ""
    say(f"{words}: measuring again, with {times} times the rounds{beside}{where}", quiet)
