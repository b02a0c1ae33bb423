"""What `tune` found, as people read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from cudareduce.library.registry import AUTO_FIXED
from cudareduce.problem.sizes import counted
from cudareduce.report.numbers import HALF_TICK_US, measured_text, short_size
from cudareduce.report.section import Section
from cudareduce.report.sections import by_reason
from cudareduce.results.record import Record
from cudareduce.tune.search import Found, Outcome

_HEADER = ("n", "for", "kernel", "launch shape", "us", "speedup")


def tune_sections(found: Sequence[Found], device: str) -> list[Section]:
    """A table for each reduction, a row for each size, with what was left out below."""
    groups: dict[tuple[str, str, int], list[Found]] = {}
    for one in found:
        reduction = one.problem.reduction
        key = reduction.op.name, reduction.dtype.name, one.problem.rows
        groups.setdefault(key, []).append(one)
    return [
        Section(
            f"{op} of {dtype}{f' x {rows} rows' if rows != 1 else ''}, cold, {device}: the fastest "
            "launch shapes",
            _HEADER, tuple(_rows(group)), tuple(_notes(group)), 4,
        )
        for (op, dtype, rows), group in groups.items()
    ]  # fmt: skip


def told(found: Found) -> str:
    """What was found for one problem, a line each."""
    problem, what = found.problem, [
        f"{outcome.name}: {outcome.best.name}, {_time(outcome.record)} us, "
        + (f"{_speedup(outcome)} times as fast as before" if outcome.gains else "as before")
        for outcome in shown(found)
    ]  # fmt: skip
    rows = f" x {problem.rows} rows" if problem.rows != 1 else ""
    name = f"{problem.reduction.op.name} of {short_size(problem.n)} {problem.reduction.dtype.name}"
    lines = what or [found.why or "interrupted"]
    return "\n  ".join((f"{name}{rows}:", *lines))


def _rows(found: Sequence[Found]) -> Iterator[tuple[str, ...]]:
    for one in found:
        for outcome in shown(one):
            r, case = outcome.record, outcome.best
            yield (
                short_size(one.problem.n), outcome.name, case.kernel.id,
                f"{case.block} x {case.items} {case.kernel.grid}", _time(r), _speedup(outcome),
            )  # fmt: skip


def shown(found: Found) -> tuple[Outcome, ...]:
    """The outcomes without that of a fixed order where it is the same as without."""
    best = {outcome.name: outcome.best for outcome in found.outcomes}
    return tuple(
        outcome for outcome in found.outcomes
        if outcome.name != AUTO_FIXED or outcome.best not in [
            case for name, case in best.items() if name != AUTO_FIXED
        ]
    )  # fmt: skip


def _time(r: Record) -> str:
    return measured_text(r.time_us, r.time_us_low, r.time_us_high, HALF_TICK_US)


def _speedup(outcome: Outcome) -> str:
    """1 of what there was before, which is so by definition."""
    if outcome.record == outcome.against:
        return "1"
    finest = HALF_TICK_US / (outcome.record.time_us or 1.0)
    return measured_text(outcome.speedup, outcome.speedup_low, outcome.speedup_high, finest)


def _wrong(found: Sequence[Found]) -> Iterator[str]:
    """A line for each kernel: the first launch shape whose answers are wrong, and how many are."""
    wrong: dict[str, list[str]] = {}
    for one in found:
        for name, reason in one.wrong.items():
            kernel, _, shape = name.partition(", ")
            where = f"{shape} at {short_size(one.problem.n)}"
            wrong.setdefault(kernel, []).append(f"{where}: {reason}")
    for kernel, shapes in wrong.items():
        yield f"{kernel}: WRONG in {counted(len(shapes), 'launch shape')}, first {shapes[0]}"


def _notes(found: Sequence[Found]) -> Iterator[str]:
    """What speed-ups are against, where there is no gain, and what has no figures."""
    if any(one.outcomes for one in found):
        yield "launch shape: threads a block x elements a thread, and how many blocks"
        yield "speedup: against what was taken before, of a kernel its header's shape"
    same = [
        f"{short_size(one.problem.n)} {outcome.name}"
        for one in found for outcome in shown(one) if not outcome.gains
    ]  # fmt: skip
    if same:
        yield f"no gain outside the noise, and so no change: {', '.join(same)}"
    why = [(short_size(one.problem.n), one.why) for one in found if one.why]
    for reason, sizes in by_reason(why).items():
        yield f"{', '.join(sizes)}: {reason}"
    yield from _wrong(found)
    unfit = dict.fromkeys(
        (name, reason) for one in found for name, reason in one.unfit.items()
    )  # fmt: skip
    for reason, names in by_reason(unfit).items():
        kernels = Counter(name.partition(", ")[0] for name in names)
        which = (f"{kernel} in {counted(k, 'launch shape')}" for kernel, k in kernels.items())
        yield f"left out, {reason}: {', '.join(which)}"
