"""Measure once, longer where in doubt, and confirm slower rows in a fresh process.

A row is SLOWER only if a second, longer measurement says so too. This takes the place of a
correction for many comparisons, with which no test on so few rounds could ever be significant.
Ctrl-C, a failing GPU or the end of the time leave the rows found so far, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cudareduce.budget import Deadline
from cudareduce.compare.baseline import identity, problem
from cudareduce.compare.measure import INTERRUPTED, Cut, Remeasured
from cudareduce.compare.verdicts import FEWEST, Row, Rules, compare, without_blame
from cudareduce.errors import EnvironmentProblem, KernelFault
from cudareduce.progress import say
from cudareduce.reduction.sizes import counted
from cudareduce.results.record import Record

#: How often rows in doubt are measured again, each time with twice the rounds of the time before.
MOST_DOUBLINGS = 3
#: Measures everything (None) or the cases of these records, with so many times the rounds.
Measure = Callable[[Sequence[Record] | None, int], Remeasured]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPlan:
    """How to compare, the time for rows in doubt and for everything, and whether to be quiet."""

    rules: Rules
    budget_s: float
    deadline: Deadline
    quiet: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """The rows so far, the first measurement, and why it ended early, if it did."""

    rows: Sequence[Row]
    measured: Remeasured
    cut: Cut | None = None


def measure_until_decided(
    measure: Measure, stored: Sequence[Record] | None, plan: CheckPlan
) -> Outcome:
    """Measure everything once and compare with `stored`, or with the kernels of the baseline tree
    measured alongside; then measure what is in doubt with 2, 4 and 8 times the rounds."""
    rules, measured = plan.rules, measure(None, 1)
    rows = compare(measured.old if stored is None else stored, measured.new, rules)
    if measured.cut:
        # Kernels missing from an interrupted run are UNCERTAIN, not GONE.
        missing = f"not measured: {measured.cut.why}"
        rows = [
            replace(row, verdict="UNCERTAIN", reason=missing)
            if row.verdict == "GONE" and row.new is None else row
            for row in rows
        ]  # fmt: skip
        return Outcome(rows, measured, measured.cut)
    cut, budget = None, Deadline(min(plan.budget_s, plan.deadline.left_s))
    for doubling in range(1, MOST_DOUBLINGS + 1):
        suspects = _uncertain_rows(rows)
        if not suspects or budget.passed:
            break
        _say_again(suspects, 2**doubling, plan.quiet)
        longer = measure([row.record for row in suspects], 2**doubling)
        if longer.cut:
            cut = longer.cut
            break
        old = longer.old if stored is None else [row.old for row in suspects if row.old]
        rows = _with_longer(rows, compare(old, longer.new, rules))
    return Outcome(without_blame(rows, rules), measured, cut)


def confirm_slower(outcome: Outcome, measure_fresh: Measure, plan: CheckPlan) -> Outcome:
    """Measure slower rows with twice the rounds in a fresh process, next to the baseline's kernels
    where those are at hand. A row that this does not confirm is not SLOWER."""
    cut, suspects = outcome.cut, slower_rows(outcome.rows)
    if not suspects:
        return outcome
    if cut is None and plan.deadline.passed:
        return replace(outcome, rows=_unconfirmed(outcome.rows, "no time was left to confirm it"))
    if cut is None:
        _say_again(suspects, 2, plan.quiet, ", in a fresh process")
        try:
            second = measure_fresh([row.record for row in suspects], 2)
            cut = second.cut
        except KeyboardInterrupt:
            cut = INTERRUPTED
        except (EnvironmentProblem, KernelFault) as error:
            cut = Cut(str(error), error.exit_code)
    if cut:
        rows = _unconfirmed(outcome.rows, f"not measured again: {cut.why}")
        return replace(outcome, rows=rows, cut=cut)
    rules, rows = plan.rules, _compare_again(suspects, second, plan.rules)
    return replace(outcome, rows=with_confirmation(outcome.rows, rows, rules))


def _compare_again(suspects: Sequence[Row], second: Remeasured, rules: Rules) -> list[Row]:
    """The rows of a confirmation run: against the baseline's kernels where those ran in the same
    rounds, else against the stored records."""
    if rules.paired:
        return compare(second.old, second.new, rules)
    paired = {problem(record) for record in second.old}
    together = [record for record in second.new if problem(record) in paired]
    alone = [record for record in second.new if problem(record) not in paired]
    names = set(map(problem, alone))
    stored = [row.old for row in suspects if row.old and problem(row.record) in names]
    in_rounds = replace(rules, paired=True, shares=False)
    return [*compare(second.old, together, in_rounds), *compare(stored, alone, rules)]


def _uncertain_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows that more rounds may decide, with members of their control group."""
    doubtful = [row for row in rows if row.in_doubt]
    return [*doubtful, *_control_rows(rows, doubtful)]


def slower_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows to confirm, with members of their control group; none if no row is SLOWER."""
    suspects = [row for row in rows if row.verdict == "SLOWER"]
    return [*suspects, *_control_rows(rows, suspects)]


def _control_rows(rows: Sequence[Row], suspects: Sequence[Row]) -> list[Row]:
    """For each problem of the suspects the fastest few rows of the control group, which show what
    the machine does meanwhile."""
    found: list[Row] = []
    for key in dict.fromkeys(_problem(row) for row in suspects):
        alike = [row for row in rows if row.same_code and row.verdict == "SAME"
                 and row.change and _problem(row) == key]  # fmt: skip
        found += sorted(alike, key=lambda row: row.record.time_us or 0.0)[: 2 * FEWEST - 1]
    return found


def _problem(row: Row) -> tuple[object, ...]:
    """The problem of a row without the kernel, or the engine of a collective."""
    if row.record.ranks is not None:
        return problem(replace(row.record, engine=None))
    return problem(row.record)[1:]


def _with_longer(rows: Sequence[Row], longer: Sequence[Row]) -> list[Row]:
    """The rows with those in doubt replaced by the rows of a longer measurement. A row without a
    time on both sides replaces nothing unless it is WRONG."""
    second = {identity(row.record): row for row in longer if row.change}
    return _with_wrong(
        [second.get(identity(row.record), row) if row.in_doubt else row for row in rows], longer
    )


def with_confirmation(rows: Sequence[Row], second: Sequence[Row], rules: Rules) -> list[Row]:
    """The rows after a second measurement: SLOWER only where that says so too, and nowhere if the
    machine has changed in between."""
    by_identity = {identity(row.record): row for row in second}
    confirmed = [
        _confirmed(row, by_identity.get(identity(row.record))) if row.verdict == "SLOWER" else row
        for row in rows
    ]
    return without_blame(_with_wrong(confirmed, second), rules)


def _confirmed(first: Row, second: Row | None) -> Row:
    if second is None or second.change is None:
        if second is not None and second.verdict == "WRONG":
            return second
        why = second.reason if second else "it is missing"
        return replace(first, verdict="UNCERTAIN", reason=f"not measured again: {why}")
    if second.verdict == "SLOWER":
        return replace(second, confirmed=True)
    reason = f"{_at_first(first)}, not confirmed by a second measurement"
    if second.verdict == "FASTER":
        return replace(second, verdict="UNCERTAIN", reason=reason, confirmed=False)
    return replace(second, reason="; ".join(filter(None, (reason, second.reason))), confirmed=False)


def _with_wrong(rows: Sequence[Row], found: Sequence[Row]) -> list[Row]:
    """The rows with every row that is WRONG in `found`, also in its control group."""
    wrong = {identity(row.record): row for row in found if row.verdict == "WRONG"}
    return [wrong.get(identity(row.record), row) for row in rows]


def _unconfirmed(rows: Sequence[Row], why: str) -> list[Row]:
    return [
        replace(row, verdict="UNCERTAIN", reason="; ".join(filter(None, (_at_first(row), why))))
        if row.verdict == "SLOWER" else row
        for row in rows
    ]  # fmt: skip


def _at_first(row: Row) -> str:
    return f"{100 * (row.change.ratio - 1):+.1f} % at first" if row.change else ""


def _say_again(rows: Sequence[Row], times: int, quiet: bool, where: str = "") -> None:
    slower, doubtful = (
        sum(row.verdict == word for row in rows) for word in ("SLOWER", "UNCERTAIN")
    )  # fmt: skip
    words = f"{counted(slower, 'looks', 'look')} slower" if slower else f"{doubtful} in doubt"
    controls = len(rows) - slower - doubtful
    group = f", with {controls} of the control group" if controls else ""
    say(f"{words}: measuring again with {times} times the rounds{group}{where}", quiet)
