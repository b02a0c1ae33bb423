"""Select the records of result files to draw, and build the figures of each kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import groupby
from statistics import median
from typing import Literal

from cudareduce.catalog.registry import full_name
from cudareduce.errors import UsageError
from cudareduce.intervals import interval, paired
from cudareduce.machine import DeviceInfo
from cudareduce.reduction.sizes import LARGEST
from cudareduce.report.columns import COLUMNS, label
from cudareduce.report.numbers import (
    change_text,
    measured_text,
    plain_text,
    ratio_text,
    short_size,
    size_text,
)
from cudareduce.report.plot.figure import (
    KINDS,
    Axis,
    Bar,
    Bars,
    Cell,
    Figure,
    Grid,
    Lines,
    Point,
    Reference,
    Series,
)
from cudareduce.results.record import Record, Run
from cudareduce.text import first_few, group_by, shown

#: A time or a rate outside these bounds is damaged data, not a measurement.
_SMALLEST, _LARGEST = 1e-9, 1e15
#: A curve needs this many sizes.
_MIN_SIZES = 3
#: Curves with a colour and a label, and how many of them are kernels if there are libraries.
_MAX_HIGHLIGHTED, _MAX_KERNELS = 7, 4
_MAX_BARS, _MAX_CHANGES = 120, 40
#: Names or sizes that a message lists.
_MAX_LISTED = 6
#: Kinds that compare runs, and kinds that join several files of one device.
_COMPARISONS = ("change", "gpus")
_JOINED = ("sizes", "speedup", "ladder", "busbw")
_N = Axis("n (elements)", "log2")
_BANDWIDTH = Axis("bandwidth (GB/s)")


@dataclass(frozen=True, slots=True)
class _Problem:
    """The timed records of one reduction on one device, and those that failed or were skipped."""

    title: str
    device: DeviceInfo
    records: tuple[Record, ...]
    undrawn: tuple[Record, ...] = ()


def figures(
    runs: Sequence[Run],
    kind: str | None = None,
    only: Sequence[str] = (),
    sizes: Sequence[int] = (),
) -> list[Figure]:
    """The figures of a kind, None for the kind that fits the results best. Raises UsageError if
    there is nothing to draw."""
    timed = {record.kernel for run in runs for record in run.records}
    only = [full_name(name, timed) for name in only]
    problems = [p for run in runs for p in _problems(run, only)]
    if not problems:
        raise UsageError(_why_nothing(runs, only))
    kind = kind or _best_kind(runs, problems)
    if kind not in _COMPARISONS:
        _check_one_device(runs)
    if kind in _JOINED:
        _check_no_duplicates(_join(problems))
    built = _change(runs, only) if kind == "change" else _build(kind, problems, sizes)
    if not built and sizes and _build(kind, problems, ()):
        available = sorted({_elements(r) for p in problems for r in p.records})
        raise UsageError(
            f"these results have no times at n = {_some_sizes(sizes)}; "
            f"they have n = {_some_sizes(available)}"
        )
    if not built:
        raise UsageError(f"nothing to draw as {kind}: it shows {KINDS[kind]}")
    return built


def all_figures(run: Run) -> dict[str, list[Figure]]:
    """The figures of every kind that one run has data for, by kind."""
    problems = _problems(run)
    by_kind = {kind: _build(kind, problems, ()) for kind in KINDS if kind not in _COMPARISONS}
    return {kind: figures for kind, figures in by_kind.items() if figures}


def comparison_figures(runs: Sequence[Run]) -> dict[str, list[Figure]]:
    """The figures that compare runs: shares of the ceiling of several devices, or the change
    between two runs of one command."""
    problems = [p for run in runs for p in _problems(run)]
    if len({run.device.name for run in runs}) > 1:
        shares = _build("gpus", problems, ())
        return {"gpus": shares} if shares else {}
    if problems and _best_kind(runs, problems) == "change":
        return {"change": _change(runs, ())}
    return {}


def _build(kind: str, problems: Sequence[_Problem], sizes: Sequence[int]) -> list[Figure]:
    selected = [
        p for p in (_join(problems) if kind in _JOINED else problems)
        if p.records[0].collective == (kind == "busbw")
    ]  # fmt: skip
    if kind == "winners":
        return _winners(selected)
    if kind == "gpus":
        return _gpus(selected, sizes)
    builders: dict[str, Callable[[_Problem], list[Figure]]] = {
        "sizes": _over_sizes, "busbw": _bus_bandwidth, "speedup": _speedup, "sms": _over_sms,
        "ladder": lambda problem: _ladder(problem, sizes),
    }  # fmt: skip
    return [figure for problem in selected for figure in builders[kind](problem)]


def _best_kind(runs: Sequence[Run], problems: Sequence[_Problem]) -> str:
    records = [r for p in problems for r in p.records]
    if len({run.device.name for run in runs}) > 1:
        return "gpus"
    if len(runs) == 2 and {*map(_case, runs[0].records)} == {*map(_case, runs[1].records)}:
        return "change"
    if all(r.collective for r in records):
        return "busbw"
    if any(r.sms is not None for r in records):
        return "sms"
    if any(len({_elements(r) for r in p.records}) > _MIN_SIZES for p in problems):
        return "sizes"
    if len({r.dtype for r in records}) > 1 and any(r.scope == "library" for r in records):
        return "winners"
    return "ladder"


# Selection of records


def _problems(run: Run, only: Sequence[str] = ()) -> list[_Problem]:
    """The reductions of a run, with the timed records that match `only`. If kernels were timed
    together with libraries, only those times are comparable and the others are dropped."""
    groups = group_by(
        (r for r in run.records if r.aligned_n is None),
        lambda r: (r.op, r.map, r.dtype, r.acc, r.rows == 1, r.timing, r.region, r.ranks,
                   r.kernel if r.collective else None),
    )  # fmt: skip
    problems = []
    for records in groups.values():
        with_libraries = [r for r in records if r.context]
        selected = [r for r in with_libraries or records if _matches(r, only)]
        timed = tuple(_without_damage(r) for r in selected if _is_timed(r))
        if timed:
            failed = tuple(r for r in selected if r.verdict != "pass")
            device = _known_facts(run.device)
            problems.append(_Problem(_problem_title(timed, device), device, timed, failed))
    return problems


def _matches(r: Record, only: Sequence[str]) -> bool:
    names = (r.kernel, label(r), _short_name(r), r.kernel.removeprefix("peer:"))
    return not only or any(fnmatchcase(name, pattern) for pattern in only for name in names)


def _is_timed(r: Record) -> bool:
    is_size = 0 < _elements(r) <= LARGEST
    return r.verdict == "pass" and is_size and _are_plausible(r.time_us, r.gb_s)


def _are_plausible(*values: float | None) -> bool:
    return all(value is not None and _SMALLEST <= value <= _LARGEST for value in values)


def _without_damage(r: Record) -> Record:
    """The record without intervals that do not contain their value and without an implausible
    ceiling."""

    def is_interval(low: float | None, value: float | None, high: float | None) -> bool:
        return _are_plausible(low, high) and (low or 0.0) <= (value or 0.0) <= (high or 0.0)

    if not is_interval(r.gb_s_low, r.gb_s, r.gb_s_high):
        r = replace(r, gb_s_low=None, gb_s_high=None)
    if not is_interval(r.time_us_low, r.time_us, r.time_us_high):
        r = replace(r, time_us_low=None, time_us_high=None)
    if not _are_plausible(r.ceiling_gb_s, r.pct_ceiling):
        r = replace(r, ceiling_gb_s=None, pct_ceiling=None)
    return r


def _known_facts(device: DeviceInfo) -> DeviceInfo:
    return replace(
        device,
        name=shown(device.name),
        peak_gb_s=device.peak_gb_s if _are_plausible(device.peak_gb_s) else None,
        l2_bytes=device.l2_bytes if _are_plausible(device.l2_bytes) else None,
        sm_count=device.sm_count if _are_plausible(device.sm_count) else None,
    )


def _problem_title(records: Sequence[Record], device: DeviceInfo) -> str:
    first = records[0]
    title = f"{first.kernel}, " if first.collective else ""
    title += f"{first.reduced} of {first.dtype}"
    title += f", {first.ranks} ranks" if first.ranks else ""
    title += f", accumulated in {first.acc}" if first.acc != first.dtype else ""
    lengths, counts = {r.n for r in records}, {r.rows for r in records}
    if counts != {1} and len(lengths) == 1:
        title += f", rows of {size_text(first.n)}"
    elif counts != {1}:
        title += f", {size_text(first.rows)} rows" if len(counts) == 1 else ", rows"
    title += f", {first.timing}"
    title += ", first pass only" if first.region == "first-pass" else ""
    return shown(f"{title}, {device.name}")


def _join(problems: Sequence[_Problem]) -> list[_Problem]:
    """Problems of one title, from several files, as one."""
    return [
        replace(
            group[0],
            records=tuple(r for p in group for r in p.records),
            undrawn=tuple(r for p in group for r in p.undrawn),
        )
        for group in group_by(problems, lambda p: p.title).values()
    ]


def _check_no_duplicates(problems: Sequence[_Problem]) -> None:
    for p in problems:
        counts = Counter((_short_name(r), _elements(r), r.sms) for r in p.records)
        (name, *_), count = counts.most_common(1)[0]
        if count > 1:
            raise UsageError(
                f"these results hold several times of {name} for one problem: draw one file, or "
                "compare two with --kind change"
            )


def _check_one_device(runs: Sequence[Run]) -> None:
    names = list(dict.fromkeys(run.device.name for run in runs))
    if len(names) > 1:
        raise UsageError(
            f"these are results of {' and '.join(names)}: draw each by itself, or both in per cent "
            "of their ceilings with --kind gpus"
        )


def _why_nothing(runs: Sequence[Run], only: Sequence[str]) -> str:
    records = [r for run in runs for r in run.records]
    if not records:
        return "these results hold no records: bench again"
    if only and any(_problems(run) for run in runs):
        names = sorted({r.kernel for run in runs for p in _problems(run) for r in p.records})
        listed = first_few(names, _MAX_LISTED)
        return f"no timed kernel is called {' or '.join(only)}: there are {listed}"
    if all(r.verdict == "fail" for r in records):
        return "every result in these files is wrong, and plot draws only what is right"
    reason = next((r.reason for r in records if r.reason), "")
    first = f" (the first reason: {reason})" if reason else ""
    return f"these results hold no times on a GPU: run bench on a GPU{first}"


# Names, texts and notes of records


def _elements(r: Record) -> int:
    return r.n * r.rows


def _short_name(r: Record) -> str:
    """The label without the prefix that all names share; of a collective its engine."""
    name = r.engine if r.collective else label(r)
    return shown(name or "").removeprefix("reduce_").removeprefix("peer:")


def _is_library(r: Record) -> bool:
    return r.scope == "library"


def _measured(r: Record) -> str:
    """A record in a line: 3340±10 GB/s, 40.2±.2 us, 81.6 % of the ceiling."""
    parts = [f"{COLUMNS['rate'].cell(r)} GB/s", f"{COLUMNS['time'].cell(r)} us"]
    if r.pct_ceiling is not None:
        parts.append(f"{COLUMNS['ceiling'].cell(r)} % of the ceiling")
    return ", ".join(parts)


def _some_sizes(sizes: Sequence[int]) -> str:
    return first_few(map(short_size, sizes), _MAX_LISTED)


def _undrawn_notes(records: Sequence[Record], *, with_sizes: bool) -> list[str]:
    notes = []
    for verdict, words in {"fail": "wrong, not drawn", "skip": "skipped"}.items():
        named = group_by((r for r in records if r.verdict == verdict), _short_name)
        listed = [name + f" at {_count_sizes(rs)}" * with_sizes for name, rs in named.items()]
        notes += [f"{words}: {first_few(listed, _MAX_LISTED)}"] if listed else []
    return notes


def _count_sizes(records: Iterable[Record]) -> str:
    sizes = sorted({_elements(r) for r in records})
    return short_size(sizes[0]) if len(sizes) == 1 else f"{len(sizes)} sizes"


# Curves


def _curves(
    named: Mapping[str, Sequence[Record]], point: Callable[[Record], Point]
) -> tuple[Series, ...]:
    return tuple(
        Series(
            name,
            tuple(sorted(map(point, rs), key=lambda p: p.x)),
            "library" if _is_library(rs[0]) else "kernel",
        )
        for name, rs in named.items()
    )


def _bandwidth_point(r: Record) -> Point:
    return Point(_elements(r), r.gb_s or 0.0, r.gb_s_low, r.gb_s_high, _measured(r))


def _time_point(r: Record) -> Point:
    return Point(_elements(r), r.time_us or 0.0, r.time_us_low, r.time_us_high, _measured(r))


def _highest(series: Sequence[Series]) -> set[str]:
    """The names of the series to highlight: those closest to the highest values over all x, and of
    each library only its best variant."""
    best: dict[float, float] = {}
    for p in (p for each in series for p in each.points):
        best[p.x] = max(p.y, best.get(p.x, 0.0))

    def score(each: Series) -> float:
        return sum(p.y / best[p.x] for p in each.points if best[p.x])

    ranked = sorted(series, key=score, reverse=True)
    if len(ranked) <= _MAX_HIGHLIGHTED + 1:
        return {each.name for each in ranked}
    kernels = [each.name for each in ranked if each.role == "kernel"]
    libraries: dict[str, str] = {}
    for each in ranked:
        if each.role == "library":
            libraries.setdefault(each.name.partition(":")[0], each.name)
    kept = kernels[:_MAX_KERNELS] if libraries else kernels
    return set([*kept, *libraries.values()][:_MAX_HIGHLIGHTED])


def _highlight(series: Sequence[Series], names: set[str]) -> tuple[Series, ...]:
    return tuple(replace(each, highlighted=each.name in names) for each in series)


def _grey_notes(series: Sequence[Series]) -> tuple[str, ...]:
    count = sum(not each.highlighted for each in series)
    return (f"grey, without labels: {count} more",) if count else ()


def _limit(axis: Literal["x", "y"], name: str, gb_s: float | None) -> tuple[Reference, ...]:
    return (Reference(axis, gb_s, f"{name} {plain_text(gb_s, 4)} GB/s"),) if gb_s else ()


def _limits(
    axis: Literal["x", "y"], device: DeviceInfo, records: Iterable[Record]
) -> tuple[Reference, ...]:
    """The measured ceiling of these records of one size, and the device's theoretical peak."""
    ceiling = next((r.ceiling_gb_s for r in records if r.ceiling_gb_s), None)
    return (*_limit(axis, "ceiling", ceiling), *_limit(axis, "theory", device.peak_gb_s))


def _over_sizes(problem: _Problem) -> list[Figure]:
    """Bandwidth and time over n, if there are enough sizes."""
    named = group_by((r for r in problem.records if r.sms is None), _short_name)
    sizes = {_elements(r) for records in named.values() for r in records}
    if len(sizes) < _MIN_SIZES:
        return []
    rates = _curves(named, _bandwidth_point)
    names = _highest(rates)
    rates = _highlight(rates, names)
    times = _highlight(_curves(named, _time_point), names)
    notes = (*_grey_notes(rates), *_undrawn_notes(problem.undrawn, with_sizes=True))
    cache, peak = _cache_size(problem, sizes), _limit("y", "theory", problem.device.peak_gb_s)
    at_size = {_elements(r): r.ceiling_gb_s for r in problem.records if r.ceiling_gb_s}
    points = tuple(Point(n, gb_s, None, None, "") for n, gb_s in sorted(at_size.items()))
    ceiling = (Series("ceiling: read only", points, "limit"),) if points else ()
    return [
        Lines(f"Bandwidth over n: {problem.title}", _N, _BANDWIDTH, (*ceiling, *rates),
              (*peak, *cache), notes),
        Lines(f"Time over n: {problem.title}", _N, Axis("time (us)", "log10"), times, cache,
              notes),
    ]  # fmt: skip


def _cache_size(problem: _Problem, sizes: set[int]) -> tuple[Reference, ...]:
    """The largest n whose input fits into the L2 cache."""
    # `bytes` includes the result, which is negligible at the largest size.
    per_element = [r.bytes / _elements(r) for r in problem.records if r.bytes and r.rows == 1]
    l2_bytes = problem.device.l2_bytes
    if not l2_bytes or not per_element:
        return ()
    n = l2_bytes / min(per_element)
    within = min(sizes) <= n <= max(sizes)
    return (Reference("x", n, f"L2: {l2_bytes / 2**20:g} MiB"),) if within else ()


def _over_sms(problem: _Problem) -> list[Figure]:
    """Bandwidth over the number of active SMs, for each size that was timed on some of them; a
    record without a limit used all SMs."""
    drawn: list[Figure] = []
    for n in sorted({_elements(r) for r in problem.records if r.sms is not None}):
        records = [r for r in problem.records if _elements(r) == n]
        sm_count = problem.device.sm_count or max(r.sms or 1 for r in records)

        def point(r: Record, all_sms: int = sm_count) -> Point:
            return replace(_bandwidth_point(r), x=r.sms or all_sms)

        series = _curves(group_by(records, _short_name), point)
        series = _highlight(series, _highest(series))
        title = f"Bandwidth over SMs, n = {size_text(n)}: {problem.title}"
        limits = _limits("y", problem.device, records)
        notes = _grey_notes(series)
        drawn.append(Lines(title, Axis("active SMs"), _BANDWIDTH, series, limits, notes))
    return drawn


def _bus_bandwidth(problem: _Problem) -> list[Figure]:
    """Bus bandwidth over bytes for each engine of a collective, as nccl-tests defines it."""
    timed = [r for r in problem.records if r.busbw_gb_s and r.bytes]
    if not timed:
        return []

    def point(r: Record) -> Point:
        busbw = r.busbw_gb_s or 0.0
        factor = busbw / (r.gb_s or 1.0)
        low, high = (None if end is None else end * factor for end in (r.gb_s_low, r.gb_s_high))
        share = "" if r.pct_link is None else f", {r.pct_link:.1f} % of the link"
        text = f"{plain_text(busbw)} GB/s, {COLUMNS['time'].cell(r)} us{share}"
        return Point(r.bytes or 0, busbw, low, high, text)

    curves = _curves(group_by(timed, _short_name), point)
    rates = [100 * r.busbw_gb_s / r.pct_link for r in timed if r.busbw_gb_s and r.pct_link]
    link = median(rates) if rates else 0.0
    return [
        Lines(
            f"Bus bandwidth over bytes: {problem.title}", Axis("array per rank (bytes)", "log2"),
            Axis("bus bandwidth, one direction (GB/s)"), curves,
            (Reference("y", link, f"link {plain_text(link)} GB/s"),) if link else (),
            tuple(_undrawn_notes(problem.undrawn, with_sizes=True)),
        )
    ]  # fmt: skip


def _speedup(problem: _Problem) -> list[Figure]:
    """Speed-up of kernels over the fastest library of each size, if there are enough sizes."""
    best: dict[int, Record] = {}
    for r in problem.records:
        if _is_library(r) and r.sms is None:
            fastest = best.get(_elements(r))
            if fastest is None or (r.time_us or 0.0) < (fastest.time_us or 0.0):
                best[_elements(r)] = r
    kernels = group_by(
        (r for r in problem.records
         if not _is_library(r) and r.sms is None and _elements(r) in best),
        _short_name,
    )  # fmt: skip
    series = _curves(kernels, lambda r: _speedup_point(r, best[_elements(r)]))
    if len({p.x for each in series for p in each.points}) < _MIN_SIZES:
        return []
    series = _highlight(series, _highest(series))
    ranges = [
        (name, list(sizes)) for name, sizes in groupby(sorted(best), lambda n: _short_name(best[n]))
    ]
    fastest_libraries = ", ".join(
        f"{name} at {short_size(sizes[0])}" if len(sizes) == 1
        else f"{name} from {short_size(sizes[0])} to {short_size(sizes[-1])}"
        for name, sizes in ranges
    )  # fmt: skip
    notes = (f"the fastest library: {fastest_libraries}", *_grey_notes(series))
    title = f"Speed-up against the fastest library: {problem.title}"
    y = Axis("speed-up (times as fast)")
    return [Lines(title, _N, y, series, (Reference("y", 1.0, "equally fast"),), notes)]


def _speedup_point(r: Record, library: Record) -> Point:
    """The median of the ratios of single rounds, if both were timed in the same rounds."""
    same_rounds = r.context == library.context and len(r.rounds_us) == len(library.rounds_us)
    ratios = paired(library.rounds_us, r.rounds_us) if same_rounds else []
    value = median(ratios) if ratios else (library.time_us or 0.0) / (r.time_us or 1.0)
    low, high = interval(ratios) or (None, None)
    text = measured_text(value, low, high) if low is not None else ratio_text(value)
    return Point(_elements(r), value, low, high, f"{text} times as fast as {_short_name(library)}")


# Bars


def _requested_sizes(records: Iterable[Record], sizes: Sequence[int]) -> list[int]:
    """The requested sizes that these records have; by default the one with most records, then the
    largest."""
    counts = Counter(map(_elements, records))
    if not sizes and counts:
        return [max(counts, key=lambda n: (counts[n], n))]
    return [n for n in sizes if n in counts]


def _ladder(problem: _Problem, sizes: Sequence[int]) -> list[Figure]:
    """A bar for each kernel at each requested size, in the order of the file."""
    all_sms = [r for r in problem.records if r.sms is None]
    drawn: list[Figure] = []
    for n in _requested_sizes(all_sms, sizes):
        records = [r for r in all_sms if _elements(r) == n]
        surplus = len(records) - _MAX_BARS
        if surplus > 0:
            slowest = {id(r) for r in sorted(records, key=lambda r: r.gb_s or 0.0)[:surplus]}
            records = [r for r in records if id(r) not in slowest]
        limits = _limits("x", problem.device, records)
        notes = ["±: half of the 95 % interval"] if any(r.gb_s_low for r in records) else []
        notes += [f"the {surplus} slowest are left out"] if surplus > 0 else []
        if len(limits) > 1:
            notes.append("ceiling: bandwidth of a read-only kernel in the same rounds")
        notes += _undrawn_notes([r for r in problem.undrawn if _elements(r) == n], with_sizes=False)
        title = f"Bandwidth at n = {size_text(n)}: {problem.title}"
        bars = tuple(map(_bandwidth_bar, records))
        drawn.append(Bars(title, _BANDWIDTH, bars, limits, tuple(notes)))
    return drawn


def _bandwidth_bar(r: Record) -> Bar:
    share = f", {COLUMNS['ceiling'].cell(r)} %" if r.pct_ceiling is not None else ""
    text = f"{COLUMNS['rate'].cell(r)} GB/s{share}"
    return Bar(
        _short_name(r), r.gb_s or 0.0, r.gb_s_low, r.gb_s_high, text, _measured(r), _is_library(r)
    )


def _gpus(problems: Sequence[_Problem], sizes: Sequence[int]) -> list[Figure]:
    """Shares of the ceiling of several devices, for each reduction that at least two of them
    ran."""

    def same(p: _Problem) -> tuple[object, ...]:
        r = p.records[0]
        return r.reduced, r.dtype, r.acc, r.rows == 1, r.timing, r.region

    groups = group_by(problems, same)
    drawn: list[Figure] = []
    for group in groups.values():
        # The last record wins if several files of one device have the same case.
        cases = {
            (p.device.name, _short_name(r), r.n, r.rows): r
            for p in group for r in p.records if r.pct_ceiling is not None and r.sms is None
        }  # fmt: skip
        devices = Counter(key[1:] for key in cases)
        common = {key: r for key, r in cases.items() if devices[key[1:]] > 1}
        for n in _requested_sizes(common.values(), sizes):
            at_n = {key: r for key, r in common.items() if _elements(r) == n}
            order = {name: k for k, name in enumerate(dict.fromkeys(key[1] for key in at_n))}
            ranked = sorted(at_n.items(), key=lambda item: order[item[0][1]])
            bars = tuple(_share_bar(key[0], r) for key, r in ranked)
            problem = group[0].title.removesuffix(f", {group[0].device.name}")
            title = f"Share of each GPU's ceiling at n = {size_text(n)}: {problem}"
            references = (Reference("x", 100.0, "ceiling"),)
            axis = Axis("share of the ceiling (%)")
            note = "ceiling: bandwidth of a read-only kernel on the same GPU in the same rounds"
            drawn.append(Bars(title, axis, bars, references, (note,)))
    return drawn


def _share_bar(device: str, r: Record) -> Bar:
    share = r.pct_ceiling or 0.0
    factor = share / r.gb_s if r.gb_s else 0.0
    low, high = (None if end is None else end * factor for end in (r.gb_s_low, r.gb_s_high))
    text = f"{COLUMNS['ceiling'].cell(r)} %"
    return Bar(
        _short_name(r), share, low, high, text, f"{device}: {_measured(r)}", _is_library(r), device
    )


def _case(r: Record) -> tuple[object, ...]:
    """What two records have in common if they measured the same."""
    return (
        r.kernel, r.name, r.reduced, r.dtype, r.acc, r.n, r.rows, r.offset, r.timing, r.region,
        r.context, r.sms, r.source, r.way, r.chunk_bytes,
    )  # fmt: skip


def _change(runs: Sequence[Run], only: Sequence[str]) -> list[Figure]:
    """The change of each time that two runs have in common; the largest changes if there are
    many."""
    if len(runs) != 2:
        raise UsageError("--kind change compares two results: name two files")
    _check_one_device(runs)
    old, new = ([r for p in _problems(run, only) for r in p.records] for run in runs)
    before = {_case(r): r for r in old}
    pairs = [(before[_case(r)], r) for r in new if _case(r) in before]
    if not pairs:
        raise UsageError(
            "the two runs have no time of the same kernel and problem: name two runs of one "
            "command, or draw each by itself"
        )
    bars = [_change_bar(a, b, pairs) for a, b in pairs]
    largest = {id(bar) for bar in sorted(bars, key=lambda bar: -abs(bar.value))[:_MAX_CHANGES]}
    kept = tuple(bar for bar in bars if id(bar) in largest)
    notes = ["below 0: faster; an interval that does not contain 0: more than noise"]
    if len(bars) > len(kept):
        notes.append(f"{len(bars) - len(kept)} smaller changes are left out")
    same_day = runs[0].created[:10] == runs[1].created[:10]
    dates = [shown(run.created[: 16 if same_day else 10].replace("T", " ")) for run in runs]
    title = f"Change of time, {' to '.join(dates)}, {shown(runs[1].device.name)}"
    return [Bars(title, Axis("change of time (%)"), kept, (), tuple(notes), is_change=True)]


def _change_bar(old: Record, new: Record, pairs: Sequence[tuple[Record, Record]]) -> Bar:
    """A change with the widest interval that the intervals of both times allow."""
    ratio = (new.time_us or 0.0) / (old.time_us or 1.0)
    low = high = None
    if old.time_us_low and old.time_us_high and new.time_us_low and new.time_us_high:
        low, high = new.time_us_low / old.time_us_high, new.time_us_high / old.time_us_low
    name = _short_name(new)
    if len({(r.reduced, r.dtype) for _, r in pairs}) > 1:
        name += f" {new.reduced} {new.dtype}"
    if len({_elements(r) for _, r in pairs}) > 1:
        name += f" {short_size(_elements(new))}"
    change = change_text(ratio, low, high)
    times = f"{plain_text(old.time_us, 4)} to {plain_text(new.time_us, 4)} us"
    low, high = (None if end is None else 100 * (end - 1) for end in (low, high))
    text = f"{change}, {times}"
    return Bar(name, 100 * (ratio - 1), low, high, change, text, _is_library(new))


# The fastest of each type and size


def _winners(problems: Sequence[_Problem]) -> list[Figure]:
    """A grid of the fastest kernel or library for each type and size, if at least two cells have
    competitors."""
    records = [(_row_name(p, problems), r) for p in problems for r in p.records if r.sms is None]
    fields = group_by(records, lambda named: (named[0], _elements(named[1])))
    cells = tuple(
        _fastest_cell(name, n, [r for _, r in group])
        for (name, n), group in fields.items()
        if len({_short_name(r) for _, r in group}) > 1
    )
    shown_rows = tuple(dict.fromkeys(cell.row for cell in cells))
    columns = sorted({n for _, n in fields})
    names = tuple(name for name in map(short_size, columns) if name in {c.column for c in cells})
    if len(shown_rows) * len(names) < 2:
        return []
    notes = ("~: tied, the interval of at least one other overlaps",)
    title = f"Who is fastest where, {problems[0].device.name}"
    has_ties = any(cell.ties for cell in cells)
    return [Grid(title, _N.title, shown_rows, names, cells, notes if has_ties else ())]


def _row_name(problem: _Problem, problems: Iterable[_Problem]) -> str:
    """The properties of a reduction that differ between the rows of the grid."""
    r = problem.records[0]
    firsts = [p.records[0] for p in problems]
    parts = [r.dtype]
    if len({f.reduced for f in firsts}) > 1:
        parts.insert(0, r.reduced)
    if r.acc != r.dtype:
        parts.append(f"in {r.acc}")
    if len({f.rows == 1 for f in firsts}) > 1 and r.rows != 1:
        parts.append("rows")
    if len({f.timing for f in firsts}) > 1:
        parts.append(r.timing)
    return " ".join(parts)


def _fastest_cell(row: str, n: int, records: Sequence[Record]) -> Cell:
    first, second, *_ = ranked = sorted(records, key=lambda r: r.time_us or 0.0)
    end = first.time_us_high or first.time_us or 0.0
    ties = tuple(_short_name(r) for r in ranked[1:] if (r.time_us_low or r.time_us or 0.0) <= end)
    factor = (second.time_us or 0.0) / (first.time_us or 1.0)
    text = f"{_short_name(first)}: {_measured(first)}; then {_short_name(second)}, {factor:.2f} x"
    return Cell(row, short_size(n), _short_name(first), ties, text)
