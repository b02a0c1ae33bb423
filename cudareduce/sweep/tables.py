"""The tables of a sweep: times by size, and the lines fitted to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby, pairwise
from math import log2
from statistics import median
from typing import NamedTuple

from cudareduce.intervals import interval, paired
from cudareduce.report.columns import (
    COLUMNS,
    choice_notes,
    condition_notes,
    few_blocks_notes,
    label,
)
from cudareduce.report.numbers import (
    DASH,
    HALF_TICK_US,
    measured_text,
    plain_text,
    share_text,
    short_size,
    size_text,
    sms_text,
)
from cudareduce.report.section import Section
from cudareduce.report.sections import listed
from cudareduce.results.record import Record, Run

#: Characters that stand for all of what a read-only kernel reaches.
_FULL = 25
#: Fewer SMs are faster if the times' intervals lie apart by this: rounds of one kernel differ by
#: 0.3 % (measured on an H200).
_SURE_SMS = 0.003
_KINDS = {"skip": "skipped, ", "fail": "WRONG: "}


def curve_sections(run: Run) -> list[Section]:
    """A table for each problem and kind of timing: kernels with a bar for each number of SMs, then
    libraries, which take all of them."""
    beside = [r for r in run.records if r.context]
    problems: dict[tuple[object, ...], list[Record]] = {}
    for r in beside or run.records:
        problems.setdefault((r.op, r.map, r.dtype, r.acc, r.n, r.rows, r.timing), []).append(r)
    return [_section(run, records) for records in problems.values()]


def curves(records: Sequence[Record]) -> list[list[Record]]:
    """The timed records of each kernel by the number of SMs, in the order of tables; libraries,
    which have one record each, stand last."""
    timed = [r for r in records if r.time_us is not None]
    first = {label(r): k for k, r in reversed(list(enumerate(timed)))}
    ordered = sorted(timed, key=lambda r: (r.sms is None, first[label(r)], r.sms or 0))
    return [list(curve) for _, curve in groupby(ordered, label)]


def dips(curve: Sequence[Record]) -> Iterator[tuple[Record, Record]]:
    """Where more SMs are surely slower than fewer: the record, and the fastest on fewer."""
    for k, r in enumerate(curve):
        best = min(curve[:k], key=lambda s: s.time_us or 0.0, default=r)
        if (r.time_us_low or 0.0) > (1 + _SURE_SMS) * (best.time_us_high or float("inf")):
            yield r, best


def _section(run: Run, records: Sequence[Record]) -> Section:
    found, first = curves(records), records[0]
    columns = [COLUMNS["rate"], COLUMNS["ceiling"]]
    columns += [COLUMNS["energy"]] * any(r.joules_per_gb for curve in found for r in curve)
    header = ("kernel", "SMs", *(c.heading for c in columns), "of the ceiling")
    rows: list[tuple[str, ...]] = []
    rules = []
    for curve in found:
        rules += [len(rows)] * bool(rows)
        for k, r in enumerate(curve):
            cells = (column.cell(r) for column in columns)
            rows.append(
                ("" if k else label(r), str(r.sms or "all"), *cells, _bar(r.pct_ceiling or 0.0))
            )
    of = "," if first.map else " of"
    what = f"{first.reduced}{of} {size_text(first.n)} {first.dtype}"
    what += f" x {size_text(first.rows)} rows" if first.rows != 1 else ""
    title = f"{what}, {first.timing}, over the number of SMs, {run.device.name}"
    notes = (*_notes(records, found), *(run.protocol.get("remarks") or ()))
    return Section(title, header, tuple(rows), notes, rules=tuple(rules))


def _bar(percent: float) -> str:
    full = min(_FULL, round(_FULL * percent / 100))
    return "█" * full + "░" * (_FULL - full)


def _notes(records: Sequence[Record], found: Sequence[Sequence[Record]]) -> Iterator[str]:
    told = dict.fromkeys((label(r), r.verdict, r.reason) for r in records if r.reason)
    for name, verdict, reason in told:
        yield f"{name}: {_KINDS.get(verdict, '')}{reason}"
    yield from choice_notes(records)
    yield from condition_notes(records)
    yield from few_blocks_notes(records)
    ceiling = next((r.ceiling_gb_s for curve in found for r in curve), None)
    if ceiling is not None:
        yield (
            f"%ceil: of {plain_text(ceiling)} GB/s, which a read-only kernel reached on all SMs in "
            "these rounds"
        )
    for curve in found:
        for r, fewer in dips(curve):
            yield (
                f"{label(r)}: slower on {sms_text(r.sms or 0)} than on {fewer.sms}: "
                f"%ceil {share_text(r.pct_ceiling)} and {share_text(fewer.pct_ceiling)}"
            )


#: Two parameters leave nothing to judge a fit by with fewer sizes.
MIN_SIZES = 3
#: Times lie this close to a line that holds for them.
HOLDS = 0.01
#: One kernel is faster than another if the whole interval of their ratio says so by this much:
#: comparisons of a kernel with itself reach 1 % (measured on an H200).
_SURELY = 0.02


@dataclass(frozen=True, slots=True)
class Model:
    """One kernel's line; a low and a high are None under six rounds.

    `floor_us` is the shortest time of the range. The line is that of the `sizes` from `from_n`
    elements on, the most that all lie within HOLDS of one, else the largest MIN_SIZES;
    `misfit_pct` is how far off the worst of those is, which is that at `misfit_n`. `a_us` is 0
    where times grow faster than a line does. `half_n` is the number of elements at which half of
    `gb_s` is reached. Where times do not grow bandwidth does not show, and both are None. An
    interval holds what other rounds would give, and what the line would be without any one size.
    """

    kernel: str
    op: str
    dtype: str
    acc: str
    timing: str
    floor_us: float
    floor_us_low: float | None
    floor_us_high: float | None
    from_n: int
    sizes: int
    a_us: float
    a_us_low: float | None
    a_us_high: float | None
    gb_s: float | None
    gb_s_low: float | None
    gb_s_high: float | None
    half_n: float | None
    half_n_low: float | None
    half_n_high: float | None
    misfit_pct: float
    misfit_n: int


@dataclass(frozen=True, slots=True)
class Crossover:
    """From about `n` elements on one kernel is the faster: surely at `high_n`, while it was surely
    the slower at `low_n`, both by 2 % at least."""

    faster: str
    slower: str
    op: str
    dtype: str
    acc: str
    timing: str
    n: float
    low_n: int
    high_n: int


Line = Sequence[Record]
_Line = tuple[float, float]  # a in us, 1/b in us a byte
_Figure = tuple[float | None, float | None, float | None]  # with its interval


def elements(record: Record) -> int:
    """The size of a problem: a long array may be many rows to one kernel and one to another."""
    return record.n * record.rows


def lines(records: Sequence[Record]) -> list[Line]:
    """The timed records of each kernel and kind of timing, by size, where there are enough."""

    def key(r: Record) -> tuple[str, ...]:
        return *_problem(r), r.kernel, r.name or ""

    first = {key(r): k for k, r in reversed(list(enumerate(records)))}
    timed = [r for r in records if r.time_us is not None and elements(r)]
    ordered = sorted(timed, key=lambda r: (first[key(r)], elements(r)))
    by_kernel = [list(line) for _, line in groupby(ordered, key)]
    return [line for line in by_kernel if len(line) >= MIN_SIZES]


def _problem(record: Record) -> tuple[str, str, str, str]:
    """What two times must have in common, besides the size, to be compared."""
    return record.reduced, record.dtype, record.acc, record.timing


def fit(line: Line) -> Model:
    """Fit one kernel's times, at MIN_SIZES sizes or more: to the medians, and for the intervals to
    each round, and to all sizes but one."""
    least = min(line, key=lambda r: r.time_us or 0.0)
    part, misfit, where = _straight(line)
    volumes, times = _points(part)
    a, slope = _fitted(volumes, times)
    rounds = zip(*(r.rounds_us for r in part), strict=False)
    by_round = [_fitted(volumes, [us for us in one if us]) for one in rounds if all(one)]
    without = [
        _fitted([*volumes[:k], *volumes[k + 1 :]], [*times[:k], *times[k + 1 :]])
        for k in range(len(part))
    ]
    element = part[-1].bytes / elements(part[-1]) if part[-1].bytes else 1.0
    visible = all(s > 0 for _, s in ((a, slope), *by_round, *without))

    def figure(of: Callable[[_Line], float], shown: bool = True) -> _Figure:
        if not shown:
            return None, None, None
        ends, others = interval([of(one) for one in by_round]), [of(one) for one in without]
        low, high = (min(*ends, *others), max(*ends, *others)) if ends else (None, None)
        return of((a, slope)), low, high

    rest, rate = figure(lambda one: one[0]), figure(lambda one: 1e-3 / one[1], visible)
    return Model(
        line[0].name or line[0].kernel, *_problem(line[0]),
        least.time_us or 0.0, least.time_us_low, least.time_us_high, elements(part[0]), len(part),
        a, *rest[1:], *rate, *figure(lambda one: one[0] / one[1] / element, visible),
        100 * misfit, where,
    )  # fmt: skip


def _straight(line: Line) -> tuple[Line, float, int]:
    """The most of the larger sizes that lie on one line, else the least that make one; how far off
    the worst of them is, and at how many elements."""
    for start in range(len(line) - MIN_SIZES + 1):
        part = line[start:]
        volumes, times = _points(part)
        a, slope = _fitted(volumes, times)
        misfit, where = max(
            (abs(a + slope * volume - us) / us, elements(r))
            for volume, us, r in zip(volumes, times, part, strict=True)
        )
        if misfit <= HOLDS:
            break
    return part, misfit, where


def _points(line: Line) -> tuple[list[float], list[float]]:
    """Bytes and microseconds of each size."""
    return [float(r.bytes or 0) for r in line], [r.time_us or 0.0 for r in line]


def _fitted(volumes: Sequence[float], times: Sequence[float]) -> _Line:
    """The line, neither part negative, that makes the relative errors least: times of a sweep span
    orders of magnitude, and the short ones must count as well."""
    weights = [1 / us for us in times]
    slopes = [volume * weight for volume, weight in zip(volumes, weights, strict=True)]
    ww, ws, ss = _dot(weights, weights), _dot(weights, slopes), _dot(slopes, slopes)
    w, s = sum(weights), sum(slopes)
    determinant = ww * ss - ws * ws
    if determinant > 1e-12 * ww * ss:
        launch, slope = (w * ss - s * ws) / determinant, (s * ww - w * ws) / determinant
        if launch >= 0 and slope >= 0:
            return launch, slope
    # One of the two is zero: the one whose removal leaves the smaller error.
    return (0.0, s / ss) if ss and s * s / ss > w * w / ww else (w / ww, 0.0)


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def pairs(all_lines: Sequence[Line]) -> list[tuple[Line, Line]]:
    """The lines that can be compared, two at a time."""
    return [
        (one, other)
        for one, other in combinations(all_lines, 2)
        if _problem(one[0]) == _problem(other[0])
    ]


def crossovers(all_lines: Sequence[Line]) -> Iterator[Crossover]:
    """Where one kernel overtakes another, by size; only what the rounds agree on counts."""
    for one, other in pairs(all_lines):
        yield from _between(one, other)


def undecided(all_lines: Sequence[Line]) -> bool:
    """Whether there are two times of one size whose ratio has no interval."""
    return any(
        _ratio(r, s) is None
        for one, other in pairs(all_lines)
        for r, s in _at_same_size(one, other)
    )


def _at_same_size(one: Line, other: Line) -> list[tuple[Record, Record]]:
    others = {elements(r): r for r in other}
    return [(r, others[elements(r)]) for r in one if elements(r) in others]


def _between(one: Line, other: Line) -> Iterator[Crossover]:
    sides = []
    for r, s in _at_same_size(one, other):
        ratio = _ratio(r, s)
        if ratio and (ratio.low > 1 + _SURELY or ratio.high < 1 / (1 + _SURELY)):
            sides.append((elements(r), log2(ratio.middle)))
    for (n, before), (m, after) in pairwise(sides):
        if before * after < 0:
            share = before / (before - after)
            where = 2 ** (log2(n) + share * (log2(m) - log2(n)))
            names = [line[0].name or line[0].kernel for line in (one, other)]
            faster, slower = names if after < 0 else names[::-1]
            yield Crossover(faster, slower, *_problem(one[0]), where, n, m)


class _Ratio(NamedTuple):
    """How many times slower one is than another: interval and median over rounds."""

    low: float
    high: float
    middle: float


def _ratio(one: Record, other: Record) -> _Ratio | None:
    """None where rounds are too few for an interval, or cannot be told which is which."""
    ratios = paired(one.rounds_us, other.rounds_us)
    ends = interval(ratios) if len(one.rounds_us) == len(other.rounds_us) else None
    return _Ratio(*ends, median(ratios)) if ends else None


#: More crossings than this are left to the JSON.
_MOST_CROSSINGS = 20
#: So many kernels beside each other fit 80 columns, each time with its interval.
_ABREAST = 5


def sweep_sections(
    run: Run, lines: Sequence[Line], models: Sequence[Model], crossed: Sequence[Crossover]
) -> list[Section]:
    """Times by size, then the models with what they show."""
    if not lines:
        skipped = dict.fromkeys(
            f"{label(r)}{_kind(run, r)}: {r.reason}"
            for r in run.records
            if r.verdict != "pass" or r.reason
        )
        notes = (*skipped, *(run.protocol.get("remarks") or ()))
        return [Section(f"Nothing was timed at {MIN_SIZES} sizes", ("kernel",), (), tuple(notes))]
    return [*_times(run, lines), _models(run, lines, models, crossed)]


def _times(run: Run, lines: Sequence[Line]) -> list[Section]:
    """As many tables as it takes for every time to have room for its interval."""
    title, sizes = _title(run, lines), sorted({elements(r) for line in lines for r in line})
    tables = []
    for start in range(0, len(lines), _ABREAST):
        shown = list(enumerate(lines[start : start + _ABREAST], start + 1))
        cells = [{elements(r): COLUMNS["time"].cell(r) for r in line} for _, line in shown]
        rows = tuple((short_size(n), *(cell.get(n, DASH) for cell in cells)) for n in sizes)
        named = ", ".join(f"{k} {label(line[0])}{_kind(run, line[0])}" for k, line in shown)
        tables.append(Section(title, ("n", *(str(k) for k, _ in shown)), rows, (named,)))
    last = tables[-1]
    timed = [r for line in lines for r in line]
    told = (*choice_notes(timed), *condition_notes(timed))
    notes = (*last.notes, *_row_notes(run, lines), *told, *_missing(run))
    tables[-1] = replace(last, notes=notes)
    return tables


def _missing(run: Run) -> Iterator[str]:
    """What has no time on the device, and at which sizes."""
    found: dict[tuple[str, str], list[int]] = {}
    for r in run.records:
        if r.time_us is None and r.reason:
            kind = "WRONG: " if r.verdict == "fail" else ""
            found.setdefault((label(r) + _kind(run, r), kind + r.reason), []).append(elements(r))
    for (name, why), sizes in found.items():
        more = f" and {len(sizes) - 1} more sizes" if len(sizes) > 1 else ""
        yield f"{name} at {size_text(sizes[0])}{more}: {why}"
    called = [r for r in run.records if r.verdict == "pass" and r.time_us is None and r.host_us]
    if called:
        yield (
            f"no line, since only the host's time is known, which --json stores: "
            f"{', '.join(dict.fromkeys(label(r) for r in called))}"
        )


def _title(run: Run, lines: Sequence[Line]) -> str:
    """What was timed, in the words of the tables of `bench`."""
    first = [line[0] for line in lines]
    title = f"{listed(r.reduced for r in first)} of {listed(r.dtype for r in first)}"
    if _asked_rows(run) != 1:
        title += f" x {size_text(_asked_rows(run))} rows"
    if len({r.acc for r in first}) == 1 and any(r.acc != r.dtype for r in first):
        title += f", accumulated in {first[0].acc}"
    title += f", us, {run.device.name}"
    return f"{title}, first pass only" if first[0].region == "first-pass" else title


def _asked_rows(run: Run) -> int:
    return int(run.protocol.get("rows", 1))


def _row_notes(run: Run, lines: Sequence[Line]) -> Iterator[str]:
    """What n counts where there are rows, and which kernels make rows of one array."""
    if _asked_rows(run) != 1:
        yield "n: the elements of all rows"
    for line in lines:
        if line[-1].rows != _asked_rows(run):
            yield f"{label(line[0])}{_kind(run, line[0])}: n elements are rows of {line[-1].n}"


def _models(
    run: Run, lines: Sequence[Line], models: Sequence[Model], crossed: Sequence[Crossover]
) -> Section:
    header = ("kernel", "floor us", "a us", "GB/s", "half at n", "line from")
    rows = tuple(
        (
            f"{k} {m.kernel}{_kind(run, m)}",
            measured_text(m.floor_us, m.floor_us_low, m.floor_us_high, _tick_us(line[0])),
            _rest_text(m, line),
            _rate_text(m, line),
            _half_text(m),
            short_size(m.from_n),
        )
        for k, (m, line) in enumerate(zip(models, lines, strict=True), 1)
    )
    notes = [
        "floor: the shortest time; T = a + V / b from the size line from on: GB/s is b, which is "
        "reached by half where V = a b",
        *_model_notes(models),
        *(crossing_text(crossing, _kind(run, crossing)) for crossing in crossed[:_MOST_CROSSINGS]),
    ]
    if len(crossed) > _MOST_CROSSINGS:
        notes.append(f"{len(crossed) - _MOST_CROSSINGS} more crossings are in the JSON")
    if undecided(lines):
        notes.append(
            "no crossover where the ratio of two times has no interval: it takes at least 6 "
            "rounds, as many of the one kernel as of the other"
        )
    elif pairs(lines) and not crossed:
        notes.append("no kernel overtakes another within this range")
    return Section("Model", header, rows, (*notes, *(run.protocol.get("remarks") or ())))


def _rest_text(model: Model, line: Line) -> str:
    """No finer than the event clock at the smallest size, where it weighs most."""
    if not model.a_us:
        return DASH
    return measured_text(model.a_us, model.a_us_low, model.a_us_high, _tick_us(line[0]))


def _rate_text(model: Model, line: Line) -> str:
    """No finer than the event clock at the largest size, where the bandwidth shows."""
    share = _tick_us(line[-1]) / (line[-1].time_us or 1.0)
    finest = share * (model.gb_s or 0.0)
    return measured_text(model.gb_s, model.gb_s_low, model.gb_s_high, finest)


def _half_text(model: Model) -> str:
    if not model.half_n:
        return DASH
    low, high = model.half_n_low, model.half_n_high
    if not low or not high:
        return f"2^{log2(model.half_n):.1f}"
    return f"2^{measured_text(log2(model.half_n), log2(low), log2(high), 0.01)}"


def _tick_us(record: Record) -> float:
    return HALF_TICK_US / (record.batch or 1)


def _model_notes(models: Sequence[Model]) -> Iterator[str]:
    """What must be known of lines that are not what they should be."""
    for m in models:
        if m.misfit_pct > 100 * HOLDS:
            yield (
                f"{m.kernel}: no {MIN_SIZES} sizes lie on a line; the last {MIN_SIZES} lie up to "
                f"{m.misfit_pct:.0f} % off theirs, at {short_size(m.misfit_n)}: sweep to larger "
                "sizes"
            )
    if any(not m.a_us for m in models):
        yield "no a where times grow faster than a line; sweep from smaller sizes"
    if any(m.gb_s is None for m in models):
        yield "no GB/s: times hardly grow over this range; sweep to larger sizes"
    if any(m.a_us_low is None for m in models):
        yield "no intervals: they take at least 6 rounds"


def crossing_text(crossing: Crossover, kind: str) -> str:
    """Where one kernel overtakes another, in words."""
    return (
        f"{crossing.faster} overtakes {crossing.slower}{kind} at about n = "
        f"2^{log2(crossing.n):.1f}, between {short_size(crossing.low_n)} and "
        f"{short_size(crossing.high_n)}"
    )


def _kind(run: Run, of: Record | Model | Crossover) -> str:
    """What tells a line from others of the same kernel, as far as the run has several kinds."""
    several_ops = len({r.reduced for r in run.records}) > 1
    several_types = len({r.dtype for r in run.records}) > 1
    op = of.reduced if isinstance(of, Record) else of.op
    what = [op] * several_ops + [of.dtype] * several_types
    kinds = [" of ".join(what), "" if of.timing == "cold" else of.timing]
    said = ", ".join(filter(None, kinds))
    return f" ({said})" if said else ""
