"""Two runs against each other: one verdict for each kernel, operator, type and size.

Pure: no device, no clock, no file. SLOWER and FASTER need a change beyond the threshold whose
interval excludes "no change"; SAME needs the whole interval within the threshold; all else is
UNCERTAIN, with the reason. What kernels that did not change show is taken out before; where that
alone is beyond the threshold, the machine has changed, and no kernel is blamed for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, expm1, log, log1p

from cudareduce.gate.baseline import identity, problem
from cudareduce.gate.controls import Controls, beyond, controls, together
from cudareduce.gate.explained import explained
from cudareduce.gate.significance import MIN_ROUNDS, Change, changes
from cudareduce.gate.thresholds import Thresholds
from cudareduce.problem.sizes import counted
from cudareduce.results.record import Record

#: What leaves a change in doubt that more rounds may decide.
_REACHES = "the interval reaches beyond the threshold"
_NOISY = "the rounds are too noisy to tell the change from none"
_ALONE = "the machine code is as it was, and its time is not"
_MACHINE = "the machine has changed"
#: From worst to best: the order of tables and annotations.
VERDICTS = ("WRONG", "SLOWER", "GONE", "UNCERTAIN", "NEW", "FASTER", "SAME")
SAME_CODE = "the same machine code, launched the same way"


@dataclass(frozen=True, slots=True)
class Rules:
    """`paired`: both sides were measured in the same rounds. `shares`: on different cards, so each
    side is taken relative to what its own card's read-only kernel reached. `same_code`: identical
    machine code launched the same way is SAME whatever the times say. `clocks`: both sides ran on
    one model of card, whose clocks explain times."""

    thresholds: Thresholds
    paired: bool = False
    shares: bool = False
    same_code: bool = True
    clocks: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison; `threshold` is a share. `change` is without what `taken_out` shows.
    `confirmed` is None where nothing called for a second measurement."""

    old: Record | None
    new: Record | None
    verdict: str
    reason: str = ""
    threshold: float | None = None
    change: Change | None = None
    confirmed: bool | None = None
    taken_out: Controls | None = None

    @property
    def record(self) -> Record:
        """The side that says what was compared: the new one, if there is one."""
        found = self.new or self.old
        assert found is not None
        return found

    @property
    def in_doubt(self) -> bool:
        """Whether more rounds may decide it."""
        return self.verdict == "UNCERTAIN" and self.reason.startswith((_REACHES, _NOISY, _ALONE))

    @property
    def same_code(self) -> bool:
        """Whether both sides ran identical machine code, launched the same way."""
        return self.old is not None and self.new is not None and _twins(self.old, self.new)


def compare(old: Sequence[Record], new: Sequence[Record], rules: Rules) -> list[Row]:
    """A row for each case that has a time or an answer on either side, in the order of `new`."""
    pairs = [pair for pair in _pair(old, new) if not _nothing(*pair)]
    timed = [(a, b) for a, b in pairs if a and b and not _why_not(a, b, rules)]
    rounds = [_rounds(a, b, rules) for a, b in timed]
    moved = changes(rounds, paired=rules.paired)
    known = {(id(a), id(b)): change for (a, b), change in zip(timed, moved, strict=True)}
    rows = [_row(a, b, known.get((id(a), id(b))), rules) for a, b in pairs]
    found, other = _controls(rows, rules), machine(rows, rules) is not None
    beside = [
        _judged_beside(row, found.get(row.record.n, found.get(None)), other, rules) for row in rows
    ]
    return nobody_blamed(beside, rules)


def machine(rows: Sequence[Row], rules: Rules) -> Controls | None:
    """What kernels that did not change show, or links, where that is beyond the threshold: in the
    first look, or in a later one that decided a row."""
    later = [row.taken_out for row in rows if row.taken_out]
    shown = [*_controls(rows, rules).values(), *later, *_links(rows, rules)]
    return beyond(shown, log1p(rules.thresholds.default))


def nobody_blamed(rows: Sequence[Row], rules: Rules) -> list[Row]:
    """No row is SLOWER or FASTER where the machine has changed in one of the looks at them."""
    if machine(rows, rules) is None:
        return list(rows)
    return [
        replace(row, verdict="UNCERTAIN", reason="; ".join(filter(None, (_MACHINE, row.reason))))
        if row.verdict in ("SLOWER", "FASTER") else row
        for row in rows
    ]  # fmt: skip


def _controls(rows: Iterable[Row], rules: Rules) -> Mapping[int | None, Controls]:
    """What kernels that did not change show, by sizes; nothing where they are judged by times."""
    if not rules.same_code:
        return {}
    same = (row for row in rows if row.same_code)
    return controls((row.record.n, log(row.change.ratio)) for row in same if row.change)


def _links(rows: Sequence[Row], rules: Rules) -> list[Controls]:
    """What copies between GPUs show, in the rounds of collectives; nothing where times are taken
    relative to them."""
    moves = {
        log(before / after)
        for row in rows if row.old and row.new and not rules.shares
        if (before := row.old.link_gb_s) and (after := row.new.link_gb_s)
    }  # fmt: skip
    return [together(sorted(moves), "what links carry")] if moves else []


def _judged_beside(row: Row, control: Controls | None, other: bool, rules: Rules) -> Row:
    """The row as it is judged beside kernels that did not change, if there are any; `other` is
    whether the machine has changed."""
    if row.same_code and rules.same_code:
        odd = not other and not rules.shares and _moved_alone(row, control)
        return replace(row, verdict="UNCERTAIN", reason=_ALONE) if odd else row
    return _without(row, control, rules) if control and not row.same_code else row


def _moved_alone(row: Row, control: Controls | None) -> bool:
    """Whether what did not change has moved beyond its threshold, and all of its interval, further
    than what others show together."""
    if row.verdict != "SAME" or row.change is None or row.threshold is None:
        return False
    limit, common = log1p(row.threshold), control.moved if control else 0.0
    low, high = log(row.change.low) - common, log(row.change.high) - common
    return low > limit or high < -limit


def _without(row: Row, control: Controls, rules: Rules) -> Row:
    """The row as it is judged without what kernels that did not change show."""
    if row.change is None or row.old is None or row.new is None or row.threshold is None:
        return row
    by, doubt = exp(-control.moved), exp(control.doubt)
    old = row.change
    change = Change(old.ratio * by, old.low * by / doubt, old.high * by * doubt)
    verdict, reason = _judge(row.old, row.new, change, row.threshold, rules)
    if verdict in ("SLOWER", "FASTER") and abs(log(change.ratio)) <= control.scatter:
        noise = f"{100 * expm1(control.scatter):.1f} %"
        verdict = "UNCERTAIN"
        reason = f"identical code of this size moved by up to {noise} in these runs"
    reason = "; ".join(filter(None, (reason, *_others(row.old, row.new))))
    return replace(row, verdict=verdict, reason=reason, change=change, taken_out=control)


def _nothing(old: Record | None, new: Record | None) -> bool:
    """Skipped wherever it stands, or without elements, or a library's call on either side of which
    only the host's time is known: there is nothing to compare. What does not compile is told."""
    sides = [side for side in (old, new) if side is not None]
    if old and new and all(map(_host_only, sides)):
        return True
    if new and new.unbuilt:
        return False
    return all(side.verdict == "skip" for side in sides) or all(
        side.verdict != "fail" and side.n * side.rows == 0 for side in sides
    )


def host_only(old: Sequence[Record], new: Sequence[Record]) -> list[tuple[Record, Record]]:
    """The calls of libraries, and of the host, that both sides hold and `compare` has no row for:
    only the host's time is known of them, which has no rounds to tell a change from noise by."""
    return [(a, b) for a, b in _pair(old, new) if a and b and _host_only(a) and _host_only(b)]


def _host_only(record: Record) -> bool:
    timed = record.time_us is not None
    by_host = bool(record.called or record.engine == "host") and bool(record.host_us)
    return by_host and not timed and record.verdict == "pass"


def _pair(
    old: Sequence[Record], new: Sequence[Record]
) -> Iterable[tuple[Record | None, Record | None]]:
    """Equal identities; else the only record of a problem on either side, so that a kernel whose
    header now asks for another block size is still compared with itself."""
    before = {identity(record): record for record in old}
    partners = [before.pop(identity(record), None) for record in new]
    if before:
        alone = [Counter(map(problem, side)) for side in (old, new)]
        shapeless = {
            problem(record): key
            for key, record in before.items()
            if all(counts[problem(record)] == 1 for counts in alone)
        }
        for k, record in enumerate(new):
            if partners[k] is None and problem(record) in shapeless:
                partners[k] = before.pop(shapeless[problem(record)])
    yield from zip(partners, new, strict=True)
    for record in before.values():
        yield record, None


def _why_not(old: Record, new: Record, rules: Rules) -> str:
    """Why the times of two records cannot be compared; nothing if they can."""
    for words, record in (("the baseline", old), ("the new run", new)):
        if record.time_us is None:
            return ": ".join(filter(None, (f"{words} has no time for it", record.reason)))
        count = len(record.medians_us)
        if count < MIN_ROUNDS:
            return f"{words} has {counted(count, 'round')}, and a verdict takes {MIN_ROUNDS}"
        if rules.shares and not record.bound_gb_s:
            return f"another card, and {words} has no ceiling to take a share of"
    if rules.paired and (common := len(_rounds(old, new, rules)[0])) < MIN_ROUNDS:
        shared = counted(common, "round")
        return f"the two have {shared} in common, and a verdict takes {MIN_ROUNDS}"
    return ""


def _rounds(old: Record, new: Record, rules: Rules) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Round medians, of paired rounds those that both have; across cards the new ones as they would
    be if what bounds it were as quick as on the old card."""
    if rules.paired and len(old.rounds_us) == len(new.rounds_us):
        both = [(a, b) for a, b in zip(old.rounds_us, new.rounds_us, strict=True) if a and b]
        return tuple(a for a, _ in both), tuple(b for _, b in both)
    before, after = old.bound_gb_s, new.bound_gb_s
    if rules.shares and before and after:
        return old.medians_us, tuple(us * after / before for us in new.medians_us)
    return old.medians_us, new.medians_us


def _row(old: Record | None, new: Record | None, change: Change | None, rules: Rules) -> Row:
    if new is not None and new.verdict == "fail":
        return Row(old, new, "WRONG", new.reason)
    if new is None or new.verdict == "skip":
        why = new.reason if new else "it is not in the new run"
        if new and new.cause == "time":
            return Row(old, new, "UNCERTAIN", why)
        return Row(old, new, "GONE" if old and old.verdict == "pass" else "UNCERTAIN", why)
    if old is None:
        return Row(old, new, "NEW", "it is not in the baseline")
    if old.verdict != "pass":
        was = "wrong" if old.verdict == "fail" else "skipped"
        return Row(old, new, "NEW", f"it was {was} in the baseline")
    threshold = rules.thresholds.of(new.kernel, new.engine)
    # without a change to be seen, another machine may hide, but not in the rounds of one
    known = change or (rules.paired and old.time_us and new.time_us)
    if rules.same_code and known and _twins(old, new):
        return Row(old, new, "SAME", SAME_CODE, threshold, change)
    verdict, reason = _judge(old, new, change, threshold, rules)
    reason = "; ".join(filter(None, (reason, *_others(old, new))))
    return Row(old, new, verdict, reason, threshold, change)


def _others(old: Record, new: Record) -> Iterator[str]:
    """What is not as it was, besides the times."""
    if old.chosen and new.chosen and old.chosen != new.chosen:
        yield f"took {old.chosen}, now {new.chosen}"
    if (old.block, old.items) != (new.block, new.items):
        yield f"block x items {old.block} x {old.items}, now {new.block} x {new.items}"
    if old.version != new.version:
        yield f"version {old.version or 'unknown'}, now {new.version or 'unknown'}"


def _twins(old: Record, new: Record) -> bool:
    def launched(record: Record) -> tuple[object, ...]:
        return record.cubin_sha, record.grid, record.passes, record.block, record.items

    return old.cubin_sha is not None and launched(old) == launched(new)


def _judge(
    old: Record, new: Record, change: Change | None, threshold: float, rules: Rules
) -> tuple[str, str]:
    if change is None:
        return "UNCERTAIN", _why_not(old, new, rules)
    limit = log1p(threshold)
    moved, low, high = log(change.ratio), log(change.low), log(change.high)
    if -limit <= low and high <= limit:
        return "SAME", ""
    if abs(moved) <= limit:
        return "UNCERTAIN", _REACHES
    if low <= 0 <= high:
        return "UNCERTAIN", _NOISY
    why = explained(old, new, moved, limit, clocks=rules.clocks)
    if why:
        return "UNCERTAIN", why
    return ("SLOWER" if moved > 0 else "FASTER"), ""
