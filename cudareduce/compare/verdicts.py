"""Compare two runs: one verdict per kernel, operator, type and size. No I/O.

SLOWER and FASTER need a change beyond the threshold and an interval that excludes "no change". SAME
needs the whole interval within the threshold. Everything else is UNCERTAIN, with a reason.

The control group, kernels with identical machine code and launch, measures the influence of clocks,
driver, other processes and card. Its median change is subtracted from the other rows, and the
scatter of its changes, as far as their rounds do not explain it, widens the other intervals. If the
median is beyond the threshold itself, the machine has drifted and no row is SLOWER or FASTER.
`require_evidence` judges two files without a control group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, expm1, hypot, log, log1p, sqrt
from typing import Any

import numpy as np

from cudareduce.compare.baseline import identity, problem
from cudareduce.compare.request import Thresholds
from cudareduce.compare.statistics import (
    CONFIDENCE,
    HALF_WIDTH,
    MIN_ROUNDS,
    SHORTEST_HALF_EFFICIENCY,
    Change,
    changes,
    shortest_half,
    widened,
)
from cudareduce.distributions import student_quantile
from cudareduce.reduction.sizes import counted
from cudareduce.results.record import Record, Run

#: What each verdict means, and whether it fails the command, from worst to best.
MEANINGS = {
    "WRONG": ("the result is wrong", "yes"),
    "SLOWER": (
        "the change exceeds the threshold, its 98 % interval excludes zero, and a second run "
        "confirms it", "yes",
    ),
    "GONE": ("the kernel is only in the baseline", "unless `--allow-gone`"),
    "UNCERTAIN": (
        "anything else; the reason is printed",
        "with `--strict`, or if `compare` has no unchanged kernels and a slowdown may be drift",
    ),
    "NEW": ("the kernel is not in the baseline", "no"),
    "FASTER": ("as SLOWER in the other direction, without a second run", "no"),
    "SAME": (
        "the whole interval is within the threshold, or both sides ran identical machine code",
        "no",
    ),
    "MACHINE": (
        "verdict on the whole run: the machine changed, so no kernel is SLOWER or FASTER", "yes",
    ),
}  # fmt: skip
#: The verdicts of kernels: the order of tables and annotations.
VERDICTS = tuple(verdict for verdict in MEANINGS if verdict != "MACHINE")
SAME_CODE = "the same machine code, launched the same way"
#: Reasons that more rounds may resolve.
_REACHES = "the interval reaches beyond the threshold"
_NOISY = "the rounds are too noisy to tell the change from none"
_ALONE = "the machine code is as it was, and its time is not"
_MACHINE = "the machine has changed"
_NO_CONTROLS = "no unchanged kernels show the drift between these runs"
_REMEDY = "use check, or bench three unchanged kernels too"
#: The least number of members of a control group.
FEWEST = 3
#: No GPU that does not throttle drifts as far between two runs: cards of one model differ by up to
#: 7 %.
_LARGEST_DRIFT = 0.25
#: No kernel reads at more than this percentage of the ceiling: the best reach 100 on an H200.
_OVER_CEILING = 105.0
#: Below this percentage of peak bandwidth launch overhead dominates.
_WAITS_FOR_MEMORY = 50.0


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

    @property
    def other_model(self) -> bool:
        """Whether the sides ran on different models of GPUs."""
        return self.shares and not self.clocks


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """How `count` kernels with identical machine code moved between two runs.

    All figures are logarithms of new over old. `moved` is the median change, `error` the standard
    error of the mean. `deviation` is the standard deviation between kernels that their rounds do
    not explain, with `freedom` degrees of freedom. `what` describes members that are not kernels.
    """

    count: int
    moved: float
    error: float
    deviation: float = 0.0
    freedom: int = 2
    what: str = ""

    @property
    def text(self) -> str:
        how = "slower" if self.moved > 0 else "faster"
        what = self.what or f"{self.count} kernels with unchanged machine code"
        return f"{what} became {100 * abs(expm1(self.moved)):.1f} % {how}"

    @property
    def half_width(self) -> float:
        """Half width of the prediction interval for the shift of one more kernel (Higgins, Thompson
        and Spiegelhalter, JRSS A 172, 2009)."""
        return self.deviation * student_quantile((1 - CONFIDENCE) / 2, self.freedom)

    def subtracted_from(self, change: Change) -> Change:
        """A change of another kernel without the group's shift. The half widths add as squares (Zou
        and Donner, Statistics in Medicine 27, 2008), and two standard errors of the shift."""
        ratio = change.ratio * exp(-self.moved)
        below, above = (
            hypot(log(end), self.half_width) + 2 * self.error
            for end in (change.ratio / change.low, change.high / change.ratio)
        )
        return replace(change, ratio=ratio, low=ratio * exp(-below), high=ratio * exp(above))


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
        either = self.new or self.old
        assert either is not None
        return either

    def as_uncertain(self, *reasons: str) -> Row:
        """The row with verdict UNCERTAIN for these reasons."""
        return replace(self, verdict="UNCERTAIN", reason=joined(*reasons))

    @property
    def in_doubt(self) -> bool:
        """True if the row is UNCERTAIN and a longer measurement may decide it."""
        return self.verdict == "UNCERTAIN" and self.reason.startswith((_REACHES, _NOISY, _ALONE))

    @property
    def unproven_slowdown(self) -> bool:
        """True if the row would be SLOWER if the files had a control group."""
        slower = self.change is not None and self.change.ratio > 1
        return slower and self.verdict == "UNCERTAIN" and self.reason.startswith(_NO_CONTROLS)

    @property
    def same_code(self) -> bool:
        """True if both sides ran identical machine code with the same launch."""
        old, new = self.old, self.new
        return old is not None and new is not None and _same_code(old, new)


@dataclass(frozen=True, slots=True)
class Cut:
    """Why a measurement ended early, and its exit code."""

    why: str
    exit_code: int


#: Ctrl-C, kill, or a closed terminal.
INTERRUPTED = Cut("interrupted", 130)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The records of one measurement: `old` are of the baseline tree's kernels, `new` of the
    others. `cut` says why it ended early."""

    old: tuple[Record, ...] = ()
    new: tuple[Record, ...] = ()
    floors_us: Mapping[str, float] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    protocols: tuple[Mapping[str, Any], ...] = ()
    cut: Cut | None = None

    def as_run(self, now: Run, rounds: int) -> Run:
        """The new records as a run that can be stored as a baseline."""
        protocol = {
            **now.protocol, "rounds": rounds, "floors_us": dict(self.floors_us),
            "measured": list(self.protocols), "remarks": list(self.remarks), "max_time_s": None,
        }  # fmt: skip
        return replace(now, protocol=protocol, records=self.new)


def joined(*parts: str) -> str:
    """The parts that are not empty, separated by semicolons."""
    return "; ".join(filter(None, parts))


def compare(old: Sequence[Record], new: Sequence[Record], rules: Rules) -> list[Row]:
    """One row per case that has a time or a result on either side, in the order of `new`."""
    pairs = [pair for pair in _pair(old, new) if not _is_empty(*pair)]
    timed = [(a, b) for a, b in pairs if a and b and not _why_incomparable(a, b, rules)]
    rounds = [_rounds(a, b, rules) for a, b in timed]
    moved = widened(
        rounds, changes(rounds, paired=rules.paired), [b.n for _, b in timed], paired=rules.paired
    )
    known = {(id(a), id(b)): change for (a, b), change in zip(timed, moved, strict=True)}
    rows = [_row(a, b, known.get((id(a), id(b))), rules) for a, b in pairs]
    groups, drifted = _control_groups(rows, rules), machine(rows, rules) is not None
    adjusted = [
        _with_control_group(row, groups.get(row.record.n, groups.get(None)), drifted, rules)
        for row in rows
    ]
    return apply_drift(adjusted, rules)


def machine(rows: Sequence[Row], rules: Rules) -> ControlGroup | None:
    """The control group, or the links between GPUs, that moved furthest if it moved beyond the
    threshold plus twice its standard error in any measurement that decided a row. None on another
    model, where identical code reaches another share of the ceiling."""
    if rules.other_model:
        return None
    subtracted = [row.taken_out for row in rows if row.taken_out]
    groups = [*_control_groups(rows, rules).values(), *subtracted, *_link_change(rows, rules)]
    limit = log1p(rules.thresholds.default)
    drifted = [group for group in groups if abs(group.moved) - 2 * group.error > limit]
    return max(drifted, key=lambda group: abs(group.moved), default=None)


def apply_drift(rows: Sequence[Row], rules: Rules) -> list[Row]:
    """The rows with SLOWER and FASTER replaced by UNCERTAIN if the machine has drifted."""
    if machine(rows, rules) is None:
        return list(rows)
    return [
        row.as_uncertain(_MACHINE, row.reason) if row.verdict in ("SLOWER", "FASTER") else row
        for row in rows
    ]  # fmt: skip


def _control_groups(rows: Iterable[Row], rules: Rules) -> Mapping[int | None, ControlGroup]:
    """The control group of each size that has enough members, and of all sizes together under None;
    none if identical code is compared by its times.

    The deviation between kernels is pooled over sizes: the squares within sizes less those that the
    rounds explain, over the degrees of freedom (Cochran, Biometrics 10, 1954). A kernel has one
    shift at all sizes, so the degrees of freedom of the interval count kernels.
    """
    members = [row for row in rows if rules.same_code and row.same_code and row.change]
    by_size: dict[int | None, list[Change]] = {}
    for row in members:
        assert row.change is not None
        by_size.setdefault(row.record.n, []).append(row.change)
    squares, freedom = 0.0, 0
    for changes_of_size in by_size.values():
        moves = np.log([change.ratio for change in changes_of_size])
        errors = np.log1p([change.half_width for change in changes_of_size]) / HALF_WIDTH
        own = len(changes_of_size) - 1
        squares += len(changes_of_size) * float(moves.var()) - own * float((errors**2).mean())
        freedom += own
    deviation = sqrt(max(squares / max(freedom, 1), 0.0))
    kernels = len({(row.record.kernel, row.record.engine) for row in members})
    by_size[None] = [change for some in by_size.values() for change in some]
    return {
        n: _group([log(change.ratio) for change in some], deviation, max(kernels - 1, 2))
        for n, some in by_size.items() if len(some) >= FEWEST
    }  # fmt: skip


def _link_change(rows: Sequence[Row], rules: Rules) -> list[ControlGroup]:
    """How much slower the links between GPUs became, from their bandwidth in the rounds of
    collectives; none if times are relative to it."""
    moves = {
        log(before / after)
        for row in rows if row.old and row.new and not rules.shares
        if (before := row.old.link_gb_s) and (after := row.new.link_gb_s)
    }  # fmt: skip
    return [_group(sorted(moves), what="the links between GPUs")] if moves else []


def _group(
    moves: Sequence[float], deviation: float = 0.0, freedom: int = 2, what: str = ""
) -> ControlGroup:
    count = len(moves)
    error = float(np.std(moves, ddof=1)) / sqrt(count) if count > 1 else 0.0
    return ControlGroup(count, float(np.median(moves)), error, deviation, freedom, what)


def _with_control_group(row: Row, control: ControlGroup | None, drifted: bool, rules: Rules) -> Row:
    """The row after the shift of the control group is subtracted. A row with identical code is
    UNCERTAIN if it alone moved, with its whole interval, beyond its threshold."""
    old, new, change, threshold = row.old, row.new, row.change, row.threshold
    if not old or not new or change is None or threshold is None:
        return row
    if row.same_code:
        limit, common = log1p(threshold), control.moved if control else 0.0
        low, high = log(change.low) - common, log(change.high) - common
        alone = row.verdict == "SAME" and (low > limit or high < -limit)
        if rules.same_code and alone and not drifted and not rules.shares:
            return row.as_uncertain(_ALONE)
        return row
    if control is None:
        return row
    scatters = control.half_width > log1p(change.half_width)
    change = control.subtracted_from(change)
    verdict, reason = _judge(old, new, change, threshold, rules)
    if scatters and reason.startswith((_NOISY, _REACHES)):
        reason = (
            f"changes of unchanged kernels scatter by {100 * expm1(control.deviation):.1f} % "
            "(standard deviation) between these runs: measure both again"
        )
    reason = joined(reason, *_other_differences(old, new))
    return replace(row, verdict=verdict, reason=reason, change=change, taken_out=control)


def require_evidence(rows: Sequence[Row], rules: Rules) -> list[Row]:
    """The rows of two files, with SLOWER and FASTER replaced by UNCERTAIN where drift between the
    runs could explain the change.

    With a control group, drift is already subtracted. Otherwise the changes of all kernels must
    show it: half of them give a common shift and a scatter that slower kernels do not influence. A
    change counts if it differs from the common shift by more than its own interval and the scatter
    that rounds do not explain. Of too few kernels only changes beyond any drift count.
    """
    if _control_groups(rows, rules):
        return list(rows)
    known = [(row.record, row.change) for row in rows if row.change]
    kernels = len({(record.kernel, record.engine) for record, _ in known})
    if kernels < FEWEST:
        reason = f"{_NO_CONTROLS}, and {counted(kernels, 'kernel')} cannot: {_REMEDY}"
        common, drift = 0.0, log1p(_LARGEST_DRIFT)
    else:
        common, scatter = shortest_half([log(change.ratio) for _, change in known])
        error = float(np.median([log1p(change.half_width) for _, change in known])) / HALF_WIDTH
        deviation = sqrt(max(scatter**2 - error**2, 0.0))
        freedom = SHORTEST_HALF_EFFICIENCY * (kernels - 1)
        drift = deviation * student_quantile((1 - CONFIDENCE) / 2, freedom)
        reason = (
            f"{_NO_CONTROLS}, and half of all kernels moved by {100 * expm1(common):+.1f} % "
            f"(scatter {100 * expm1(deviation):.1f} %): {_REMEDY}"
        )
    return [
        row.as_uncertain(reason, row.reason)
        if row.verdict in ("SLOWER", "FASTER") and row.change
        and abs(log(row.change.ratio) - common) <= hypot(drift, log1p(row.change.half_width))
        else row
        for row in rows
    ]  # fmt: skip


def _is_empty(old: Record | None, new: Record | None) -> bool:
    """Whether there is nothing to compare: skipped on both sides, no elements, or only host times.
    A kernel that does not compile is reported."""
    sides = [side for side in (old, new) if side is not None]
    if old and new and all(map(_is_host_only, sides)):
        return True
    if new and new.unbuilt:
        return False
    return all(side.verdict == "skip" for side in sides) or all(
        side.verdict != "fail" and side.n * side.rows == 0 for side in sides
    )


def host_only(old: Sequence[Record], new: Sequence[Record]) -> list[tuple[Record, Record]]:
    """The pairs of library calls for which only the host time is known; these have no rounds and no
    row."""
    return [(a, b) for a, b in _pair(old, new) if a and b and _is_host_only(a) and _is_host_only(b)]


def _is_host_only(record: Record) -> bool:
    by_host = bool(record.called or record.engine == "host") and bool(record.host_us)
    return by_host and record.time_us is None and record.verdict == "pass"


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


def _why_incomparable(old: Record, new: Record, rules: Rules) -> str:
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
    """The round medians of both records: only common rounds if paired; the new ones scaled by the
    ceilings across cards."""
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
        gone = old and old.verdict == "pass" and not (new and new.cause == "time")
        return Row(old, new, "GONE" if gone else "UNCERTAIN", why)
    if old is None:
        return Row(old, new, "NEW", "it is not in the baseline")
    if old.verdict != "pass":
        was = "wrong" if old.verdict == "fail" else "skipped"
        return Row(old, new, "NEW", f"it was {was} in the baseline")
    threshold = rules.thresholds.of(new.kernel, new.engine)
    # Without a time a different machine may hide, but not within one run.
    known = change or (rules.paired and old.time_us and new.time_us)
    if rules.same_code and known and _same_code(old, new):
        return Row(old, new, "SAME", SAME_CODE, threshold, change)
    if change is None:
        verdict, reason = "UNCERTAIN", _why_incomparable(old, new, rules)
    else:
        verdict, reason = _judge(old, new, change, threshold, rules)
    reason = joined(reason, *_other_differences(old, new))
    return Row(old, new, verdict, reason, threshold, change)


def launched_code(record: Record) -> tuple[object, ...] | None:
    """The hash of a record's machine code with its launch configuration; None if unknown."""
    if record.cubin_sha is None:
        return None
    return record.cubin_sha, record.grid, record.passes, record.block, record.items


def _same_code(old: Record, new: Record) -> bool:
    return old.cubin_sha is not None and launched_code(old) == launched_code(new)


def _other_differences(old: Record, new: Record) -> Iterator[str]:
    if old.chosen and new.chosen and old.chosen != new.chosen:
        yield f"took {old.chosen}, now {new.chosen}"
    if (old.block, old.items) != (new.block, new.items):
        yield f"block x items {old.block} x {old.items}, now {new.block} x {new.items}"
    if old.version != new.version:
        yield f"version {old.version or 'unknown'}, now {new.version or 'unknown'}"


def _judge(
    old: Record, new: Record, change: Change, threshold: float, rules: Rules
) -> tuple[str, str]:
    """The verdict on a change, and its reason."""
    limit = log1p(threshold)
    moved, low, high = log(change.ratio), log(change.low), log(change.high)
    if -limit <= low and high <= limit:
        return "SAME", ""
    if abs(moved) <= limit:
        return "UNCERTAIN", _with_cause(_REACHES, old, new, change)
    if low <= 0 <= high:
        return "UNCERTAIN", _with_cause(_NOISY, old, new, change)
    other_cause = _why_impossible(old, new, moved) or (
        _clock_drift(old, new, moved, limit) if rules.clocks else ""
    )
    if other_cause:
        return "UNCERTAIN", other_cause
    return ("SLOWER" if moved > 0 else "FASTER"), ""


def _with_cause(reason: str, old: Record, new: Record, change: Change) -> str:
    """The reason, and how few independent rounds the autocorrelated ones are worth."""
    count = max(len(old.medians_us), len(new.medians_us))
    if not change.worth or change.worth > count / 2:
        return reason
    return (
        f"{reason}: rounds resemble the ones before (autocorrelation "
        f"{change.autocorrelation:.1f}), so {count} count as {change.worth:.1f}; lock the clocks "
        "and measure again"
    )


def _why_impossible(old: Record, new: Record, moved: float) -> str:
    """Why the faster side's time is impossible, as it exceeds the memory bandwidth; empty if it is
    possible."""
    faster, side = (old, "the baseline") if moved > 0 else (new, "the new run")
    share, of_peak = faster.pct_ceiling, faster.pct_peak
    waits = of_peak is None or of_peak > _WAITS_FOR_MEMORY
    if share is None or share <= _OVER_CEILING or not waits or faster.timing[:4] != "cold":
        return ""
    return f"{side} reads at {share:.0f} % of what a read-only kernel reached in the same rounds"


def _clock_drift(old: Record, new: Record, moved: float, limit: float) -> str:
    """The clock that explains the change, in words: it moved in the same direction by at least half
    of the change and all of it beyond the limit."""
    for name, before, after in (
        ("SM", old.sm_mhz, new.sm_mhz), ("memory", old.memory_mhz, new.memory_mhz)
    ):  # fmt: skip
        by = log(before / after) if before and after else 0.0
        if by * moved > 0 and abs(by) >= max(abs(moved) / 2, abs(moved) - limit):
            return (
                f"the {name} clock moved with it, from {before:.0f} to {after:.0f} MHz: "
                "lock the clocks and measure again"
            )
    return ""
