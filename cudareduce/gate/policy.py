"""The decision: what is in doubt is measured longer, and nothing counts as slower until a second,
longer measurement says so too.

Pure but for the measuring, which is handed in. Confirming takes the place of a correction for many
comparisons: with the rounds at hand no such correction could ever let a test fire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from cudareduce.budget import Deadline
from cudareduce.errors import worst_exit_code
from cudareduce.gate.baseline import identity, problem
from cudareduce.gate.compare import Row, Rules, compare, nobody_blamed
from cudareduce.gate.controls import FEWEST, Controls
from cudareduce.results.record import Record

#: How often what is in doubt is measured again, each time with twice the rounds of the time before.
_TRIES = 3
Sides = tuple[Sequence[Record], Sequence[Record]]
#: Measure again, with so many times the rounds, what these rows compare: old and new records.
Longer = Callable[[Sequence[Row], int], Sides]
#: Measure again and compare: the rows that are found then.
Again = Callable[[Sequence[Row]], Sequence[Row]]


@dataclass(frozen=True, slots=True)
class Policy:
    """What fails a check besides what is slower or wrong."""

    strict: bool = False
    allow_gone: bool = False

    def code(self, row: Row) -> int:
        """The exit code that a row stands for."""
        if row.record.unbuilt:
            return 2
        match row.verdict:
            case "WRONG":
                return 3
            case "SLOWER":
                return 1
            case "GONE":
                return 0 if self.allow_gone else 1
            case "UNCERTAIN":
                return 4 if self.strict else 0
            case _:
                return 0

    def exit_code(self, rows: Iterable[Row], machine: Controls | None = None) -> int:
        """The one exit code of all rows, and of a machine that has changed."""
        return worst_exit_code({self.code(row) for row in rows} | ({4} if machine else set()) - {0})


def decide(rows: Sequence[Row], longer: Longer, rules: Rules, budget: Deadline) -> list[Row]:
    """Measure longer what the rounds leave in doubt, beside some that did not change, until it is
    decided or the `budget` is spent; nothing is, where the machine has changed in between. A look
    that a side has no time in decides nothing but what is wrong."""
    for k in range(1, _TRIES + 1):
        doubtful = [row for row in rows if row.in_doubt]
        if not doubtful or budget.passed:
            break
        old, new = longer([*doubtful, *_companions(rows, doubtful)], 2**k)
        found = compare(old, new, rules)
        second = {identity(row.record): row for row in found if row.change}
        rows = _with_wrong(
            [second.get(identity(row.record), row) if row.in_doubt else row for row in rows], found
        )
    return nobody_blamed(rows, rules)


def confirm(rows: Sequence[Row], again: Again, rules: Rules) -> list[Row]:
    """Measure once more what looks slower, beside some that did not change; it is SLOWER only if it
    is so both times; nothing is, where the machine has changed in between."""
    suspects = [row for row in rows if row.verdict == "SLOWER"]
    if not suspects:
        return list(rows)
    found = again([*suspects, *_companions(rows, suspects)])
    second = {identity(row.record): row for row in found}
    confirmed = [
        _confirmed(row, second.get(identity(row.record))) if row.verdict == "SLOWER" else row
        for row in rows
    ]
    return nobody_blamed(_with_wrong(confirmed, found), rules)


def _with_wrong(rows: Sequence[Row], found: Sequence[Row]) -> list[Row]:
    """What is wrong once is WRONG, also where it was measured again only beside others."""
    wrong = {identity(row.record): row for row in found if row.verdict == "WRONG"}
    return [wrong.get(identity(row.record), row) for row in rows]


def unconfirmed(rows: Sequence[Row], why: str) -> list[Row]:
    """Nothing is SLOWER that could not be measured again."""
    return [
        replace(row, verdict="UNCERTAIN", reason="; ".join(filter(None, (_at_first(row), why))))
        if row.verdict == "SLOWER" else row
        for row in rows
    ]  # fmt: skip


def not_measured(rows: Sequence[Row], why: str) -> list[Row]:
    """What a measurement that was cut has nothing of is not gone."""
    return [
        replace(row, verdict="UNCERTAIN", reason=f"not measured: {why}")
        if row.verdict == "GONE" and row.new is None else row
        for row in rows
    ]  # fmt: skip


def _at_first(row: Row) -> str:
    return f"{100 * (row.change.ratio - 1):+.1f} % at first" if row.change else ""


def _companions(rows: Sequence[Row], suspects: Sequence[Row]) -> list[Row]:
    """Of each problem of the suspects some rows that did not change, the quickest, which tell what
    the machine does meanwhile."""
    found: list[Row] = []
    for key in dict.fromkeys(_problem(row) for row in suspects):
        alike = [row for row in rows if row.same_code and row.verdict == "SAME"
                 and row.change and _problem(row) == key]  # fmt: skip
        found += sorted(alike, key=lambda row: row.record.time_us or 0.0)[: 2 * FEWEST - 1]
    return found


def _problem(row: Row) -> tuple[object, ...]:
    """What a row is an answer to, whatever the kernel, or the engine of a collective."""
    if row.record.ranks is not None:
        return problem(replace(row.record, engine=None))
    return problem(row.record)[1:]


def _confirmed(first: Row, second: Row | None) -> Row:
    assert first.change is not None
    if second is None or second.change is None:
        if second is not None and second.verdict == "WRONG":
            return second
        why = second.reason if second else "it is not there"
        return replace(first, verdict="UNCERTAIN", reason=f"not measured again: {why}")
    if second.verdict == "SLOWER":
        return replace(second, confirmed=True)
    told = f"{_at_first(first)}, not confirmed by a second measurement"
    if second.verdict == "FASTER":
        return replace(second, verdict="UNCERTAIN", reason=told, confirmed=False)
    reason = f"{told}; {second.reason}" if second.reason else told
    return replace(second, reason=reason, confirmed=False)
