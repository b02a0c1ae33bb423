"""The command `sweep`: times over a range of sizes, launch overhead, crossover points."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations, groupby, pairwise
from math import log2
from statistics import median

from cudareduce.backends.selection import never_timed
from cudareduce.bench.command import timed_run
from cudareduce.bench.request import BenchRequest
from cudareduce.errors import UsageError
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
from cudareduce.report.plot.command import show_small
from cudareduce.report.publish import publish
from cudareduce.report.section import Section
from cudareduce.report.sections import listed
from cudareduce.results.record import Record, Run
from cudareduce.results.store import run_texts
from cudareduce.text import group_by

#: Width in characters of a bar at 100 % of the ceiling.
_BAR_WIDTH = 25
#: Fewer SMs count as faster if the gap between the two intervals exceeds this fraction: rounds of
#: one kernel differ by 0.3 % (measured on an H200).
_MIN_GAP = 0.003


def curve_sections(run: Run) -> list[Section]:
    """A table for each problem and timing mode, with a row for each kernel and number of SMs, then
    libraries, which always use all SMs."""
    with_libraries = [r for r in run.records if r.context]
    problems = group_by(
        with_libraries or run.records,
        lambda r: (r.op, r.map, r.dtype, r.acc, r.n, r.rows, r.timing),
    )
    return [_curve_section(run, records) for records in problems.values()]


def curves(records: Sequence[Record]) -> list[list[Record]]:
    """The timed records of each kernel, sorted by the number of SMs. Libraries, with one record
    each, are last."""
    timed = [r for r in records if r.time_us is not None]
    first = {label(r): k for k, r in reversed(list(enumerate(timed)))}
    ordered = sorted(timed, key=lambda r: (r.sms is None, first[label(r)], r.sms or 0))
    return [list(curve) for _, curve in groupby(ordered, label)]


def dips(curve: Sequence[Record]) -> Iterator[tuple[Record, Record]]:
    """Records that are significantly slower than one with fewer SMs, each with the fastest of
    those."""
    for k, r in enumerate(curve):
        best = min(curve[:k], key=lambda s: s.time_us or 0.0, default=r)
        if (r.time_us_low or 0.0) > (1 + _MIN_GAP) * (best.time_us_high or float("inf")):
            yield r, best


def _curve_section(run: Run, records: Sequence[Record]) -> Section:
    found, first = curves(records), records[0]
    columns = [COLUMNS["rate"], COLUMNS["ceiling"]]
    columns += [COLUMNS["energy"]] * any(r.joules_per_gb for curve in found for r in curve)
    header = ("kernel", "SMs", *(c.heading for c in columns), "of the ceiling")
    rows: list[tuple[str, ...]] = []
    rules = []
    for curve in found:
        rules += [len(rows)] * bool(rows)
        for k, r in enumerate(curve):
            full = min(_BAR_WIDTH, round(_BAR_WIDTH * (r.pct_ceiling or 0.0) / 100))
            cells = (column.cell(r) for column in columns)
            bar = "█" * full + "░" * (_BAR_WIDTH - full)
            rows.append(("" if k else label(r), str(r.sms or "all"), *cells, bar))
    of = "," if first.map else " of"
    what = f"{first.reduced}{of} {size_text(first.n)} {first.dtype}"
    what += f" x {size_text(first.rows)} rows" if first.rows != 1 else ""
    title = f"{what}, {first.timing}, over the number of SMs, {run.device.name}"
    notes = (*_curve_notes(records, found), *(run.protocol.get("remarks") or ()))
    return Section(title, header, tuple(rows), notes, rules=tuple(rules))


def _curve_notes(records: Sequence[Record], found: Sequence[Sequence[Record]]) -> Iterator[str]:
    kinds = {"skip": "skipped, ", "fail": "WRONG: "}
    for name, verdict, reason in dict.fromkeys(
        (label(r), r.verdict, r.reason) for r in records if r.reason
    ):
        yield f"{name}: {kinds.get(verdict, '')}{reason}"
    yield from choice_notes(records)
    yield from condition_notes(records)
    yield from few_blocks_notes(records)
    ceiling = next((r.ceiling_gb_s for curve in found for r in curve), None)
    if ceiling is not None:
        yield (
            f"%ceil: percent of {plain_text(ceiling)} GB/s, the bandwidth a read-only kernel "
            "reached on all SMs in these rounds"
        )
    for curve in found:
        for r, fewer in dips(curve):
            yield (
                f"{label(r)}: slower on {sms_text(r.sms or 0)} than on {fewer.sms}: "
                f"%ceil {share_text(r.pct_ceiling)} and {share_text(fewer.pct_ceiling)}"
            )


#: The smallest number of sizes for a fit: with two, a line of two parameters always fits.
MIN_SIZES = 3
#: The largest relative deviation of times from their line.
MAX_MISFIT = 0.01
#: One kernel is faster than another if the interval of their ratio excludes changes below this:
#: comparisons of a kernel with itself reach 1 % (measured on an H200).
_MIN_CHANGE = 0.02


@dataclass(frozen=True, slots=True)
class Model:
    """The line T = a + V / b fitted to a kernel's times T, where V is the number of bytes.

    `floor_us` is the shortest time. The line is fitted to the largest sizes, `sizes` of them from
    `from_n` elements on: as many as deviate from it by at most MAX_MISFIT, and at least MIN_SIZES.
    `misfit_pct` is the largest deviation, at `misfit_n`. `a_us` is 0 if times grow faster than
    linearly. `gb_s` is b, and `half_n` the number of elements at which half of it is reached; both
    are None if times do not grow. Intervals (`_low`, `_high`) cover the fits to each round, and to
    all sizes but one; they are None under six rounds.
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
    """The size, about `n` elements, from which kernel `faster` is faster than kernel `slower`. It
    is significantly slower at `low_n` and significantly faster at `high_n`, by at least 2 %."""

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
_Line = tuple[float, float]  # a in us, 1/b in us per byte
_Figure = tuple[float | None, float | None, float | None]  # value, low, high


def elements(record: Record) -> int:
    """The number of elements of all rows. A warp kernel may reduce a long array as many rows, so
    only this number is comparable between kernels."""
    return record.n * record.rows


def lines(records: Sequence[Record]) -> list[Line]:
    """The timed records of each kernel, problem and timing mode, sorted by size; those with fewer
    than MIN_SIZES sizes are left out."""

    def key(r: Record) -> tuple[str, ...]:
        return *_problem(r), r.kernel, r.name or ""

    first = {key(r): k for k, r in reversed(list(enumerate(records)))}
    timed = [r for r in records if r.time_us is not None and elements(r)]
    ordered = sorted(timed, key=lambda r: (first[key(r)], elements(r)))
    by_kernel = [list(line) for _, line in groupby(ordered, key)]
    return [line for line in by_kernel if len(line) >= MIN_SIZES]


def _problem(record: Record) -> tuple[str, str, str, str]:
    """The properties other than size that two times must share to be comparable."""
    return record.reduced, record.dtype, record.acc, record.timing


def fit(line: Line) -> Model:
    """Fit a line to the median times of one kernel, at MIN_SIZES sizes or more. Intervals come from
    fits to each round, and to all sizes but one."""
    for start in range(len(line) - MIN_SIZES + 1):
        part = line[start:]
        volumes, times = [float(r.bytes or 0) for r in part], [r.time_us or 0.0 for r in part]
        a, slope = _fit_line(volumes, times)
        misfit, misfit_n = max(
            (abs(a + slope * volume - us) / us, elements(r))
            for volume, us, r in zip(volumes, times, part, strict=True)
        )
        if misfit <= MAX_MISFIT:
            break
    rounds = zip(*(r.rounds_us for r in part), strict=False)
    by_round = [_fit_line(volumes, each) for each in rounds if all(each)]
    without_one = [
        _fit_line([*volumes[:k], *volumes[k + 1 :]], [*times[:k], *times[k + 1 :]])
        for k in range(len(part))
    ]
    element = part[-1].bytes / elements(part[-1]) if part[-1].bytes else 1.0
    grows = all(s > 0 for _, s in ((a, slope), *by_round, *without_one))

    def figure(of: Callable[[_Line], float]) -> _Figure:
        ends, others = interval([of(each) for each in by_round]), [of(each) for each in without_one]
        low, high = (min(*ends, *others), max(*ends, *others)) if ends else (None, None)
        return of((a, slope)), low, high

    unknown: _Figure = None, None, None
    least = min(line, key=lambda r: r.time_us or 0.0)
    return Model(
        line[0].name or line[0].kernel, *_problem(line[0]),
        least.time_us or 0.0, least.time_us_low, least.time_us_high, elements(part[0]), len(part),
        a, *figure(lambda each: each[0])[1:],
        *(figure(lambda each: 1e-3 / each[1]) if grows else unknown),
        *(figure(lambda each: each[0] / each[1] / element) if grows else unknown),
        100 * misfit, misfit_n,
    )  # fmt: skip


def _fit_line(volumes: Sequence[float], times: Sequence[float | None]) -> _Line:
    """The least-squares line with non-negative parameters. Relative errors are minimised, since
    times of a sweep span orders of magnitude."""
    weights = [1 / us for us in times if us]
    slopes = [volume * weight for volume, weight in zip(volumes, weights, strict=True)]
    ww, ws, ss = _dot(weights, weights), _dot(weights, slopes), _dot(slopes, slopes)
    w, s = sum(weights), sum(slopes)
    determinant = ww * ss - ws * ws
    if determinant > 1e-12 * ww * ss:
        launch, slope = (w * ss - s * ws) / determinant, (s * ww - w * ws) / determinant
        if launch >= 0 and slope >= 0:
            return launch, slope
    # One parameter is zero: the one without which the error is smaller.
    return (0.0, s / ss) if ss and s * s / ss > w * w / ww else (w / ww, 0.0)


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


_Ratio = tuple[float, float, float]  # low, high and median


def _ratios(
    all_lines: Sequence[Line],
) -> Iterator[tuple[Line, Line, list[tuple[int, _Ratio | None]]]]:
    """Each pair of comparable lines, with the ratio of their times (first over second) at each
    common size. A ratio is None without an interval: too few rounds, or different numbers."""
    for one, other in combinations(all_lines, 2):
        if _problem(one[0]) != _problem(other[0]):
            continue
        others, ratios = {elements(r): r for r in other}, list[tuple[int, _Ratio | None]]()
        for r in one:
            s = others.get(elements(r))
            if s is not None:
                each = paired(r.rounds_us, s.rounds_us)
                ends = interval(each) if len(r.rounds_us) == len(s.rounds_us) else None
                ratios.append((elements(r), (*ends, median(each)) if ends else None))
        yield one, other, ratios


def crossovers(all_lines: Sequence[Line]) -> Iterator[Crossover]:
    """The sizes at which one kernel becomes significantly faster than another, for all pairs."""
    for one, other, ratios in _ratios(all_lines):
        sides = [
            (n, log2(ratio[2])) for n, ratio in ratios
            if ratio and (ratio[0] > 1 + _MIN_CHANGE or ratio[1] < 1 / (1 + _MIN_CHANGE))
        ]  # fmt: skip
        for (n, before), (m, after) in pairwise(sides):
            if before * after < 0:
                share = before / (before - after)
                where = 2 ** (log2(n) + share * (log2(m) - log2(n)))
                names = [line[0].name or line[0].kernel for line in (one, other)]
                faster, slower = names if after < 0 else names[::-1]
                yield Crossover(faster, slower, *_problem(one[0]), where, n, m)


def lacks_intervals(all_lines: Sequence[Line]) -> bool:
    """True if a ratio of two times has no interval, so that crossovers may be missing."""
    return any(ratio is None for *_, ratios in _ratios(all_lines) for _, ratio in ratios)


#: Tables show at most this many crossovers; --json has all.
_MOST_CROSSINGS = 20
#: The number of kernels per table whose times with intervals fit into 80 characters.
_KERNELS_PER_TABLE = 5


def sweep_sections(
    run: Run, lines: Sequence[Line], models: Sequence[Model], crossed: Sequence[Crossover]
) -> list[Section]:
    """The tables of times by size, then the table of fitted lines, with crossovers as notes."""
    if lines:
        return [*_time_sections(run, lines), _model_section(run, lines, models, crossed)]
    skipped = dict.fromkeys(
        f"{label(r)}{_kind(run, r)}: {r.reason}"
        for r in run.records
        if r.verdict != "pass" or r.reason
    )
    notes = (*skipped, *(run.protocol.get("remarks") or ()))
    return [Section(f"Nothing was timed at {MIN_SIZES} sizes", ("kernel",), (), tuple(notes))]


def _time_sections(run: Run, lines: Sequence[Line]) -> list[Section]:
    """The tables of times by size, with at most _KERNELS_PER_TABLE kernels in each."""
    first, rows_asked = [line[0] for line in lines], int(run.protocol.get("rows", 1))
    title = f"{listed(r.reduced for r in first)} of {listed(r.dtype for r in first)}"
    if rows_asked != 1:
        title += f" x {size_text(rows_asked)} rows"
    if len({r.acc for r in first}) == 1 and any(r.acc != r.dtype for r in first):
        title += f", accumulated in {first[0].acc}"
    title += f", us, {run.device.name}"
    title += ", first pass only" * (first[0].region == "first-pass")
    sizes = sorted({elements(r) for line in lines for r in line})
    tables = []
    for start in range(0, len(lines), _KERNELS_PER_TABLE):
        shown = list(enumerate(lines[start : start + _KERNELS_PER_TABLE], start + 1))
        cells = [{elements(r): COLUMNS["time"].cell(r) for r in line} for _, line in shown]
        rows = tuple((short_size(n), *(cell.get(n, DASH) for cell in cells)) for n in sizes)
        named = ", ".join(f"{k} {label(line[0])}{_kind(run, line[0])}" for k, line in shown)
        tables.append(Section(title, ("n", *(str(k) for k, _ in shown)), rows, (named,)))
    timed = [r for line in lines for r in line]
    notes = [*tables[-1].notes]
    notes += ["n: the elements of all rows"] if rows_asked != 1 else []
    notes += [
        f"{label(line[0])}{_kind(run, line[0])}: n elements are rows of {line[-1].n}"
        for line in lines if line[-1].rows != rows_asked
    ]  # fmt: skip
    notes += [*choice_notes(timed), *condition_notes(timed), *_missing(run)]
    tables[-1] = replace(tables[-1], notes=tuple(notes))
    return tables


def _missing(run: Run) -> Iterator[str]:
    """Notes on kernels without a device time: the reason, and the sizes."""
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
            "no line, since only the host's time is known, which --json stores: "
            f"{', '.join(dict.fromkeys(label(r) for r in called))}"
        )


def _model_section(
    run: Run, lines: Sequence[Line], models: Sequence[Model], crossed: Sequence[Crossover]
) -> Section:
    def tick_us(record: Record) -> float:
        """The resolution of a time: half a tick of the event clock over the batch size."""
        return HALF_TICK_US / (record.batch or 1)

    rows = []
    for k, (m, line) in enumerate(zip(models, lines, strict=True), 1):
        least, largest = tick_us(line[0]), tick_us(line[-1]) / (line[-1].time_us or 1.0)
        rows.append((
            f"{k} {m.kernel}{_kind(run, m)}",
            measured_text(m.floor_us, m.floor_us_low, m.floor_us_high, least),
            measured_text(m.a_us, m.a_us_low, m.a_us_high, least) if m.a_us else DASH,
            measured_text(m.gb_s, m.gb_s_low, m.gb_s_high, largest * (m.gb_s or 0.0)),
            _half_text(m), short_size(m.from_n),
        ))  # fmt: skip
    notes = [
        "floor: the shortest time; T = a + V / b from the size line from on: GB/s is b, which is "
        "reached by half where V = a b",
        *_model_notes(models),
        *(crossing_text(crossing, _kind(run, crossing)) for crossing in crossed[:_MOST_CROSSINGS]),
    ]
    if len(crossed) > _MOST_CROSSINGS:
        notes.append(f"{len(crossed) - _MOST_CROSSINGS} more crossings are in the JSON")
    if lacks_intervals(lines):
        notes.append(
            "no crossover where the ratio of two times has no interval: it takes at least 6 "
            "rounds, as many of the one kernel as of the other"
        )
    elif not crossed and any(_ratios(lines)):
        notes.append("no kernel overtakes another within this range")
    header = ("kernel", "floor us", "a us", "GB/s", "half at n", "line from")
    remarks = run.protocol.get("remarks") or ()
    return Section("Model", header, tuple(rows), (*notes, *remarks))


def _half_text(model: Model) -> str:
    if not model.half_n:
        return DASH
    low, high = model.half_n_low, model.half_n_high
    if not low or not high:
        return f"2^{log2(model.half_n):.1f}"
    return f"2^{measured_text(log2(model.half_n), log2(low), log2(high), 0.01)}"


def _model_notes(models: Sequence[Model]) -> Iterator[str]:
    """Notes on lines that do not fit, and on missing parameters and intervals."""
    for m in models:
        if m.misfit_pct > 100 * MAX_MISFIT:
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
    """A crossover as a sentence."""
    return (
        f"{crossing.faster} overtakes {crossing.slower}{kind} at about n = "
        f"2^{log2(crossing.n):.1f}, between {short_size(crossing.low_n)} and "
        f"{short_size(crossing.high_n)}"
    )


def _kind(run: Run, of: Record | Model | Crossover) -> str:
    """The operator and type, if the run has several, and the timing mode unless it is cold; in
    brackets."""
    op = of.reduced if isinstance(of, Record) else of.op
    what = [op] * (len({r.reduced for r in run.records}) > 1)
    what += [of.dtype] * (len({r.dtype for r in run.records}) > 1)
    kinds = ", ".join(filter(None, [" of ".join(what), "" if of.timing == "cold" else of.timing]))
    return f" ({kinds})" if kinds else ""


#: The default sizes, and the default size of a sweep over SMs, where kernels are limited by memory
#: bandwidth.
_SIZES, _SIZE = tuple(2**k for k in range(10, 31)), (2**28,)


def sweep(request: BenchRequest) -> int:
    """Time a range of sizes and fit lines, or time every size on several numbers of SMs; returns
    the exit code. Raises UsageError for a backend without times or too few sizes, and
    EnvironmentProblem without a GPU."""
    if never_timed(request.machine.backend):
        raise UsageError("sweep fits times, and the CPU emulator has none: use --backend cuda")
    over_sms = bool(request.selection.sms)
    sizes = request.problem.n or (_SIZE if over_sms else _SIZES)
    if not over_sms and len([n for n in sizes if n]) < MIN_SIZES:
        raise UsageError(f"sweep fits a line: give --n at least {MIN_SIZES} sizes, as 2^10..2^30")
    problem, machine = replace(request.problem, n=sizes), replace(request.machine, backend="cuda")
    done = timed_run(replace(request, problem=problem, machine=machine))
    if over_sms:
        run, sections = done.run, curve_sections(done.run)
    else:
        # With libraries, kernels are timed a second time, and only those times are comparable.
        with_libraries = [record for record in done.run.records if record.context]
        by_kernel = lines(with_libraries or done.run.records)
        models = [fit(line) for line in by_kernel]
        crossings = sorted(crossovers(by_kernel), key=lambda crossing: crossing.n)
        protocol = {
            **done.run.protocol,
            "models": [asdict(model) for model in models],
            "crossovers": [asdict(crossing) for crossing in crossings],
        }
        run = replace(done.run, protocol=protocol)
        sections = sweep_sections(run, by_kernel, models, crossings)
    publish(request.outputs, sections, run_texts(run))
    show_small(done.run, request.outputs)
    return done.exit_code
