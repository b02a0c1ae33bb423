"""Compares two runs: one verdict per kernel, operator, type and size. No I/O.

SLOWER and FASTER need a change beyond the threshold and an interval that excludes "no change". SAME
needs the whole interval within the threshold. Everything else is UNCERTAIN, with a reason.

The control group, kernels with identical machine code and launch, shows what the clock, the driver,
another process or the card did. Its median change is subtracted from the other rows; if it is
beyond the threshold itself, the machine has changed and no row is SLOWER or FASTER.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, expm1, log, log1p

import numpy as np

from cudareduce.gate.baseline import identity, problem
from cudareduce.gate.request import Thresholds
from cudareduce.gate.statistics import MIN_ROUNDS, Change, changes
from cudareduce.problem.sizes import counted
from cudareduce.results.record import Record

#: No kernel reads at more than this percentage of the ceiling: the best reach 100 on an H200.
_OVER_CEILING = 105.0
#: Below this percentage of peak bandwidth launch overhead dominates.
_WAITS_FOR_MEMORY = 50.0


def other_cause(old: Record, new: Record, moved: float, limit: float, *, clocks: bool) -> str:
    """A cause other than the kernel for a change, a logarithm beyond the limit; empty if there is
    none. `clocks`: both sides ran on one model of card."""
    sides = (old, "the baseline") if moved > 0 else (new, "the new run")
    return _beyond_memory(*sides) or (_clock(old, new, moved, limit) if clocks else "")


def _beyond_memory(quicker: Record, words: str) -> str:
    """The faster side read more than the memory bandwidth allows."""
    share, of_peak = quicker.pct_ceiling, quicker.pct_peak
    waits = of_peak is None or of_peak > _WAITS_FOR_MEMORY
    if share is None or share <= _OVER_CEILING or not waits or quicker.timing[:4] != "cold":
        return ""
    return f"{words} reads at {share:.0f} % of what a read-only kernel reached in the same rounds"


def _clock(old: Record, new: Record, moved: float, limit: float) -> str:
    """A clock that moved in the same direction explains at least half of the change and all of it
    beyond the limit."""
    clocks = {
        "SM": (old.sm_mhz, new.sm_mhz),
        "memory": (old.memory_mhz, new.memory_mhz),
    }
    for name, (before, after) in clocks.items():
        if not before or not after:
            continue
        by = log(before / after)
        if by * moved > 0 and abs(by) >= max(abs(moved) / 2, abs(moved) - limit):
            return (
                f"the {name} clock moved with it, from {before:.0f} to {after:.0f} MHz: "
                "lock the clocks and measure again"
            )
    return ""


#: The least number of members of a control group.
FEWEST = 3


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """How `count` kernels with identical code moved: the median logarithm of new over old, and the
    95 % quantile of the deviation from it. `what` describes members that are not kernels."""

    count: int
    moved: float
    scatter: float
    what: str = ""

    @property
    def text(self) -> str:
        """The shift in words."""
        how = "slower" if self.moved > 0 else "faster"
        share = 100 * abs(expm1(self.moved))
        what = self.what or f"{self.count} kernels whose machine code is as it was"
        return f"{what} became {share:.1f} % {how}"

    @property
    def doubt(self) -> float:
        """Standard error of the median, as a logarithm."""
        return float(self.scatter / np.sqrt(self.count))


def controls(moves: Iterable[tuple[int, float]]) -> Mapping[int | None, ControlGroup]:
    """The control group of each size that has enough members, and of all sizes together under None.
    `moves` are pairs of elements per row and logarithm of new over old."""
    by_size: dict[int, list[float]] = {}
    for n, move in moves:
        by_size.setdefault(n, []).append(move)
    found: dict[int | None, ControlGroup] = {
        n: together(some) for n, some in by_size.items() if len(some) >= FEWEST
    }
    every = [move for some in by_size.values() for move in some]
    if len(every) >= FEWEST:
        found[None] = together(every)
    return found


def together(moves: Sequence[float], what: str = "") -> ControlGroup:
    """The control group of some logarithms of new over old."""
    middle = float(np.median(moves))
    scatter = float(np.quantile(np.abs(np.array(moves) - middle), 0.95))
    return ControlGroup(len(moves), middle, scatter, what)


def beyond(found: Iterable[ControlGroup], limit: float) -> ControlGroup | None:
    """The group that moved furthest beyond a limit (a logarithm) plus its standard error, if any
    did."""
    far = [one for one in found if abs(one.moved) - one.doubt > limit]
    return max(far, key=lambda one: abs(one.moved), default=None)


#: Reasons that more rounds may resolve.
_REACHES = "the interval reaches beyond the threshold"
_NOISY = "the rounds are too noisy to tell the change from none"
_ALONE = "the machine code is as it was, and its time is not"
_MACHINE = "the machine has changed"
#: From worst to best: the order of tables and annotations.
VERDICTS = ("WRONG", "SLOWER", "GONE", "UNCERTAIN", "NEW", "FASTER", "SAME")
SAME_CODE = "the same machine code, launched the same way"


@dataclass(frozen=True, slots=True)
class Rules:
    """How to compare. `paired`: both sides were measured in the same rounds. `shares`: on different
    cards, each side relative to the ceiling of its own card. `same_code`: identical machine code
    with the same launch is SAME whatever its times. `clocks`: both sides ran on one model of card,
    so clocks can explain a change."""

    thresholds: Thresholds
    paired: bool = False
    shares: bool = False
    same_code: bool = True
    clocks: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison. `threshold` is a share; `taken_out` is the control group whose shift is
    subtracted in `change`; `confirmed` is None unless there was a second measurement."""

    old: Record | None
    new: Record | None
    verdict: str
    reason: str = ""
    threshold: float | None = None
    change: Change | None = None
    confirmed: bool | None = None
    taken_out: ControlGroup | None = None

    @property
    def record(self) -> Record:
        """The new record if there is one, else the old one."""
        found = self.new or self.old
        assert found is not None
        return found

    @property
    def in_doubt(self) -> bool:
        """Whether more rounds may decide it."""
        return self.verdict == "UNCERTAIN" and self.reason.startswith((_REACHES, _NOISY, _ALONE))

    @property
    def same_code(self) -> bool:
        """Whether both sides ran identical machine code with the same launch."""
        return self.old is not None and self.new is not None and _twins(self.old, self.new)


def compare(old: Sequence[Record], new: Sequence[Record], rules: Rules) -> list[Row]:
    """One row per case that has a time or a result on either side, in the order of `new`."""
    pairs = [pair for pair in _pair(old, new) if not _nothing(*pair)]
    timed = [(a, b) for a, b in pairs if a and b and not _why_not(a, b, rules)]
    rounds = [_rounds(a, b, rules) for a, b in timed]
    moved = changes(rounds, paired=rules.paired)
    known = {(id(a), id(b)): change for (a, b), change in zip(timed, moved, strict=True)}
    rows = [_row(a, b, known.get((id(a), id(b))), rules) for a, b in pairs]
    found, other = _controls(rows, rules), machine(rows, rules) is not None
    beside = [
        _with_control_group(row, found.get(row.record.n, found.get(None)), other, rules)
        for row in rows
    ]
    return without_blame(beside, rules)


def machine(rows: Sequence[Row], rules: Rules) -> ControlGroup | None:
    """The control group, or the links between GPUs, if it moved beyond the threshold in any
    measurement that decided a row."""
    later = [row.taken_out for row in rows if row.taken_out]
    shown = [*_controls(rows, rules).values(), *later, *_links(rows, rules)]
    return beyond(shown, log1p(rules.thresholds.default))


def without_blame(rows: Sequence[Row], rules: Rules) -> list[Row]:
    """The rows with SLOWER and FASTER replaced by UNCERTAIN if the machine has changed."""
    if machine(rows, rules) is None:
        return list(rows)
    return [
        replace(row, verdict="UNCERTAIN", reason="; ".join(filter(None, (_MACHINE, row.reason))))
        if row.verdict in ("SLOWER", "FASTER") else row
        for row in rows
    ]  # fmt: skip


def _controls(rows: Iterable[Row], rules: Rules) -> Mapping[int | None, ControlGroup]:
    """The control groups by size; none if identical code is compared by its times."""
    if not rules.same_code:
        return {}
    same = (row for row in rows if row.same_code)
    return controls((row.record.n, log(row.change.ratio)) for row in same if row.change)


def _links(rows: Sequence[Row], rules: Rules) -> list[ControlGroup]:
    """The change of the bandwidth of links between GPUs, measured in the rounds of collectives;
    none if times are relative to it."""
    moves = {
        log(before / after)
        for row in rows if row.old and row.new and not rules.shares
        if (before := row.old.link_gb_s) and (after := row.new.link_gb_s)
    }  # fmt: skip
    return [together(sorted(moves), "what links carry")] if moves else []


def _with_control_group(row: Row, control: ControlGroup | None, other: bool, rules: Rules) -> Row:
    """The row after the control group is taken into account; `other` is whether the machine has
    changed."""
    if row.same_code and rules.same_code:
        odd = not other and not rules.shares and _moved_alone(row, control)
        return replace(row, verdict="UNCERTAIN", reason=_ALONE) if odd else row
    return _without(row, control, rules) if control and not row.same_code else row


def _moved_alone(row: Row, control: ControlGroup | None) -> bool:
    """Whether identical code moved, with its whole interval, beyond its threshold and further than
    its control group."""
    if row.verdict != "SAME" or row.change is None or row.threshold is None:
        return False
    limit, common = log1p(row.threshold), control.moved if control else 0.0
    low, high = log(row.change.low) - common, log(row.change.high) - common
    return low > limit or high < -limit


def _without(row: Row, control: ControlGroup, rules: Rules) -> Row:
    """The row after the shift of the control group is subtracted."""
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
    """Whether there is nothing to compare: skipped on both sides, no elements, or only host times.
    A kernel that does not compile is reported."""
    sides = [side for side in (old, new) if side is not None]
    if old and new and all(map(_host_only, sides)):
        return True
    if new and new.unbuilt:
        return False
    return all(side.verdict == "skip" for side in sides) or all(
        side.verdict != "fail" and side.n * side.rows == 0 for side in sides
    )


def host_only(old: Sequence[Record], new: Sequence[Record]) -> list[tuple[Record, Record]]:
    """The pairs of library calls for which only the host time is known; these have no rounds and no
    row."""
    return [(a, b) for a, b in _pair(old, new) if a and b and _host_only(a) and _host_only(b)]


def _host_only(record: Record) -> bool:
    timed = record.time_us is not None
    by_host = bool(record.called or record.engine == "host") and bool(record.host_us)
    return by_host and not timed and record.verdict == "pass"


def _pair(
    old: Sequence[Record], new: Sequence[Record]
) -> Iterable[tuple[Record | None, Record | None]]:
    """Pairs of records of equal identity; else of equal problem if it is unique on both sides, so
    that a kernel with a new default block size is compared with itself."""
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
    """Why the times of two records cannot be compared; empty if they can."""
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
    """The round medians of both sides: the common rounds if paired; across cards the new ones
    scaled by the ceilings."""
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
    # without a time a different machine may hide, but not within one run
    known = change or (rules.paired and old.time_us and new.time_us)
    if rules.same_code and known and _twins(old, new):
        return Row(old, new, "SAME", SAME_CODE, threshold, change)
    verdict, reason = _judge(old, new, change, threshold, rules)
    reason = "; ".join(filter(None, (reason, *_others(old, new))))
    return Row(old, new, verdict, reason, threshold, change)


def _others(old: Record, new: Record) -> Iterator[str]:
    """What differs besides the times."""
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
    why = other_cause(old, new, moved, limit, clocks=rules.clocks)
    if why:
        return "UNCERTAIN", why
    return ("SLOWER" if moved > 0 else "FASTER"), ""
