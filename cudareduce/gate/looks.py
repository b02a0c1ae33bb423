"""The looks that `check` takes: all of it once, what is in doubt for longer, and what looks slower
in a process begun anew.

Whatever ends a look early, Ctrl-C, a GPU that fails or the end of the time, leaves the rows that
there are by then, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cudareduce.budget import Deadline
from cudareduce.errors import EnvironmentProblem, KernelFault
from cudareduce.gate.baseline import problem
from cudareduce.gate.bencher import INTERRUPTED, Cut, Remeasured
from cudareduce.gate.compare import Row, Rules, compare
from cudareduce.gate.policy import Sides, confirm, decide, not_measured, unconfirmed
from cudareduce.problem.sizes import counted
from cudareduce.progress import say
from cudareduce.results.record import Record

#: Measures all that is compared or, of that, what these records are of, with so many times the
#: rounds; in this process, or in one begun anew.
Measure = Callable[[Sequence[Record] | None, int], Remeasured]
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


def first_look(measure: Measure, stored: Sequence[Record] | None, looks: Looks) -> Seen:
    """All of it once, compared with what is `stored`, or with the base's kernels among it; then for
    longer what is in doubt."""
    measured = measure(None, 1)
    rows = compare(measured.old if stored is None else stored, measured.new, looks.rules)
    if measured.cut:
        return Seen(rows=not_measured(rows, measured.cut.why), measured=measured, cut=measured.cut)

    def longer(some: Sequence[Row], times: int) -> Sides:
        _say_again(some, times, looks.quiet)
        second = _whole(measure([row.record for row in some], times))
        return second.old if stored is None else [row.old for row in some if row.old], second.new

    budget = Deadline(min(looks.budget_s, looks.deadline.left_s))
    try:
        rows = decide(rows, longer, looks.rules, budget)
    except _CutError as error:
        return Seen(rows=rows, measured=measured, cut=error.cut)
    return Seen(rows=rows, measured=measured)


def second_look(seen: Seen, afresh: Measure, looks: Looks) -> Seen:
    """What looks slower, measured afresh with twice the rounds, beside kernels of a base where it
    is measured so; what it does not confirm is not SLOWER."""
    if seen.cut:
        return replace(seen, rows=unconfirmed(seen.rows, f"not measured again: {seen.cut.why}"))
    if looks.deadline.passed:
        return replace(seen, rows=unconfirmed(seen.rows, _NO_TIME))

    def again(some: Sequence[Row]) -> Sequence[Row]:
        _say_again(some, 2, looks.quiet, ", in a fresh process")
        return _compared(some, _whole(afresh([row.record for row in some], 2)), looks.rules)

    try:
        return replace(seen, rows=confirm(seen.rows, again, looks.rules))
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
