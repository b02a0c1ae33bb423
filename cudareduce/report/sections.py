"""The tables of a run, with a section for each reduction and size.

All output formats are made from the same sections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from cudareduce.errors import UsageError
from cudareduce.report.columns import (
    COLUMNS,
    SOURCES,
    choice_notes,
    condition_notes,
    condition_text,
    distinct_text,
    few_blocks_notes,
    full_label,
    label,
    shape_text,
    timed_columns,
    verdict_text,
)
from cudareduce.report.numbers import (
    DASH,
    error_text,
    plain_text,
    short_size,
    size_text,
    sms_text,
)
from cudareduce.report.ranks import rank_sections
from cudareduce.report.section import Section
from cudareduce.results.record import Record, Run
from cudareduce.text import group_by

_Item = TypeVar("_Item")

#: The tables by size of a run with libraries: title, and the column shown in the cells.
_LIBRARY_TABLES = {
    "us": ("us", "time"),
    "ceiling": ("% of the bandwidth of a read-only kernel", "ceiling"),
    "ratios": ("speed-up, from ratios of single rounds", "speedup"),
    "host": ("host us for a call", "host"),
}
#: The tables by size of a collective.
_COLLECTIVE_TABLES = {
    "us": ("us of the slowest rank", "time"),
    "busbw": ("busbw, GB/s", "busbw"),
    "link": ("busbw, % of writes in both directions", "link"),
    "loop": ("us per call of several back to back", "loop"),
}
_FASTEST = "bold: the shortest time of each size"


def sections(
    run: Run, more: Sequence[str] = (), roots: Mapping[str, str] | None = None
) -> list[Section]:
    """A section for each reduction and size of a run, for all sizes if nothing was timed, with the
    columns `more` in addition. `roots`
    are the first kernels of lineages, by kernel. Remarks on the run stand below the last table."""
    records = [r for r in run.records if r.source or not r.ranks]
    untimed = all(r.time_us is None and r.host_us is None for r in records)

    def size(r: Record) -> int | None:
        """The size that has a table of its own; without times, all sizes share one."""
        return None if untimed else r.n if r.aligned_n is None else r.aligned_n

    groups = group_by(
        records,
        lambda r: (r.op, r.map, r.dtype, r.acc, size(r), r.rows, r.context, r.sms, r.source,
                   r.ranks, r.aligned_n is not None),
    )  # fmt: skip
    found = rank_sections(run)
    found += [
        _unaligned_section(run, group) if odd else _section(run, group, more, roots or {})
        for (*_, odd), group in groups.items()
    ]
    floors = run.protocol.get("floors_us")
    remarks = (f"floor, not subtracted: {_floors_text(floors)}",) if floors else ()
    remarks += tuple(run.protocol.get("remarks") or ())
    if found:
        found[-1] = replace(found[-1], notes=(*found[-1].notes, *remarks))
    return found


def _section(
    run: Run, records: Sequence[Record], more: Sequence[str], roots: Mapping[str, str]
) -> Section:
    sizes = {r.n for r in records}
    title = what_text(records[0], records[0].n if len(sizes) == 1 else None)
    if len(sizes) > 1:
        records = [r for same in group_by(records, label).values() for r in same]
    kept = [r for r in records if r.verdict != "skip"]
    marked = [(full_label(r), r.reason) for r in kept if r.verdict == "pass" and r.reason]
    notes = [f"{full_label(r)}: WRONG: {r.reason}" for r in kept if r.verdict == "fail"]
    notes += [*skips(records), *condition_notes(kept)]
    notes += [
        f"{', '.join(dict.fromkeys(names))}: {reason}"
        for reason, names in by_reason(marked).items()
    ]
    notes += [*choice_notes(records), *few_blocks_notes(records)]
    is_timed = any(r.time_us is not None for r in kept)
    section = _timed(run, title, kept, more) if is_timed else _verified(run, title, kept)
    return replace(section, notes=(*notes, *section.notes), rules=_rules(kept, roots))


def _verified(run: Run, title: str, records: Sequence[Record]) -> Section:
    columns = {
        "kernel": label,
        "n": lambda r: short_size(r.n),
        "blocks": lambda r: DASH if r.grid is None else str(r.grid),
        "passes": lambda r: DASH if r.passes is None else str(r.passes),
        "result": verdict_text,
        "error": lambda r: error_text(r.error),
        "%bound": lambda r: error_text(r.pct_bound),
        "ulp": lambda r: error_text(r.error_ulp),
        "distinct": distinct_text,
    }
    if len({r.n for r in records}) < 2:
        del columns["n"]
    if all(r.distinct is None for r in records):
        del columns["distinct"]
    rows = tuple(tuple(cell(r) for cell in columns.values()) for r in records)
    notes = list(_repeated_notes(records))
    may_round = records and records[0].op in ("sum", "prod", "mean")
    if may_round and all(r.bound == 0 and r.error_ulp is not None for r in records):
        notes.append("no %bound: with these inputs no partial result is rounded")
    title = f"{title}, {run.device.name}: results only, nothing is timed"
    return Section(title, tuple(columns), rows, tuple(notes))


def _repeated_notes(records: Sequence[Record]) -> Iterator[str]:
    """How to read `distinct`, if results vary."""
    varying = next((r for r in records if (r.distinct or 0) > 1), None)
    if varying is not None:
        yield (
            f"distinct {distinct_text(varying)}: {varying.launches} launches on one random input "
            f"gave {varying.distinct} results that differ in their bits, all within the bound; "
            "error and ulp are of the input that comes nearest to its bound"
        )


def _timed(run: Run, title: str, records: Sequence[Record], more: Sequence[str]) -> Section:
    timed = [r for r in records if r.time_us is not None]
    first = timed[0]
    timings = dict.fromkeys(r.timing for r in timed)
    title += f", {listed(timings)}, {run.device.name}"
    if first.context:
        title += f", in the {first.context} context, beside libraries"
    if first.region == "first-pass":
        title += ", first pass only"
    columns = timed_columns(records, more)
    rows = tuple(
        tuple(
            "" if column.heading == "kernel" and k and label(records[k - 1]) == label(r)
            else column.cell(r)
            for column in columns
        )
        for k, r in enumerate(records)
    )  # fmt: skip
    header = tuple(column.heading for column in columns)
    notes = (
        *_speedup_notes(timed, header), *_share_notes(run, first, header),
        *_timing_notes(timings, timed), *_distinct_notes(timed), *_interval_notes(timed),
        *library_notes(records),
    )  # fmt: skip
    return Section(title, header, rows, notes)


def _unaligned_section(run: Run, records: Sequence[Record]) -> Section:
    """The slowdown by one more element, and by a start that is misaligned by one element."""
    first = records[0]
    title = (
        f"{what_text(first, first.aligned_n or 0)}, {first.timing}, {run.device.name}, beside "
        "libraries: the same with one element more, and starting one element off"
    )
    longer = {label(r): r for r in records if not r.offset}
    shifted = {label(r): r for r in records if r.offset}
    cases = (longer, shifted)
    rows = tuple(
        (name, *(COLUMNS[column].cell(case[name]) if name in case else DASH
                 for case in cases for column in ("time", "slowdown")))
        for name in dict.fromkeys(map(label, records))
        if any(case[name].verdict == "pass" for case in cases if name in case)
    )  # fmt: skip
    failed: dict[tuple[str, str], list[str]] = {}
    for r in records:
        if r.verdict == "fail":
            failed.setdefault((label(r), r.reason), []).append("off" if r.offset else "n + 1")
    wrong = [f"{name}, {' or '.join(where)}: WRONG: {why}" for (name, why), where in failed.items()]
    notes = (*wrong, *skips(records), "x: slowdown against the aligned case, in the same rounds")
    return Section(title, ("kernel", "n + 1 us", "x", "off us", "x"), rows, notes)


def _rules(records: Sequence[Record], roots: Mapping[str, str]) -> tuple[int, ...]:
    """Indices of the rows at which a new lineage begins; none in the table of a suite."""
    above: str | None = None
    rules = []
    for k, r in enumerate(records):
        root = None if r.suite else roots.get(r.kernel, r.baseline)
        if above is not None and root is not None and root != above:
            rules.append(k)
        above = root or above
    return tuple(rules)


def what_text(record: Record, n: int | None) -> str:
    """The reduction as in titles; without a size if `n` is None."""
    of = "," if record.map else " of"
    what = f"{record.reduced}{of} {'' if n is None else f'{size_text(n)} '}{record.dtype}"
    what += SOURCES.get(record.source or "", "")
    what += f" on {record.ranks} ranks" if record.ranks else ""
    if record.rows != 1:
        what += f" x {size_text(record.rows)} rows"
    if record.acc != record.dtype:
        what += f", accumulated in {record.acc}"
    return what if record.sms is None else f"{what}, on {sms_text(record.sms)}"


# Notes


def skips(records: Sequence[Record]) -> list[str]:
    """A note for each reason why kernels were skipped, with their names."""
    skipped = [(label(r), r.reason) for r in records if r.verdict == "skip"]
    return [
        f"{names[0]}: skipped, {reason}" if len(set(names)) == 1
        else f"skipped, {reason} ({len(names)} rows): {', '.join(dict.fromkeys(names))}"
        for reason, names in by_reason(skipped).items()
    ]  # fmt: skip


def _speedup_notes(timed: Sequence[Record], header: Sequence[str]) -> Iterator[str]:
    names = {r.kernel: label(r) for r in timed}
    references = [
        names.get(name, name) for name in dict.fromkeys(r.baseline for r in timed) if name
    ]
    if "speedup" not in header or not references:
        return
    note = f"speedup: against {listed(references)}"
    note += " (the one in the same part)" if len(references) > 1 else ""
    if "vs prev" in header and all(r.suite for r in timed):
        note += "; vs prev: against the row above"
    elif "vs prev" in header:
        note += "; vs prev: against the predecessor in the lineage"
    yield note


def _interval_notes(timed: Sequence[Record]) -> Iterator[str]:
    without = [r for r in timed if r.time_us_low is None]
    for rounds, records in group_by(without, lambda r: len(r.medians_us)).items():
        names = ", ".join(dict.fromkeys(map(label, records)))
        who = "" if len(records) == len(timed) else f"{names}: "
        yield f"{who}{rounds} round{'s' if rounds > 1 else ''}: no interval; it takes at least 6"


def _floors_text(floors: Mapping[str, float]) -> str:
    """The launch floor of each timing mode. The names of the first mode's floors do not contain the
    mode."""
    modes: dict[str, list[str]] = {}
    for name, us in floors.items():
        what, _, mode = name.removeprefix("floor: ").partition(", ")
        modes.setdefault(mode, []).append(f"{what} {us:.2f} us")
    return "; ".join(f"{mode}: {', '.join(a)}".removeprefix(": ") for mode, a in modes.items())


def _share_notes(run: Run, first: Record, header: Sequence[str]) -> Iterator[str]:
    peak, ceiling = run.device.peak_gb_s, first.ceiling_gb_s
    if "%peak" in header and peak is None:
        yield "%peak: the driver does not report the theoretical bandwidth; --peak-gb-s sets it"
    elif "%peak" in header:
        is_given = run.protocol.get("peak_gb_s") is not None
        source = "set by --peak-gb-s" if is_given else "theory from clock and bus width"
        yield f"%peak: of {peak:.4g} GB/s, {source}"
    for heading, who in (("%copy", "copies alone"), ("%ceil", "a read-only kernel")):
        if heading in header and ceiling is not None:
            reached = f"of {plain_text(ceiling)} GB/s, which {who} reached in the same rounds"
            yield f"{heading}: {reached}"


def _timing_notes(timings: Iterable[str], timed: Sequence[Record]) -> Iterator[str]:
    if any(not r.timing.startswith("cold") and (r.pct_peak or 0) > 100 for r in timed):
        yield "warm and over 100 % of theory: these bytes came from the cache, not from memory"
    if any((r.batch or 1) > 1 for r in timed):
        yield "batch: launches between two events, for kernels under 20 us; us is per launch"
    if any("graph" in timing for timing in timings):
        yield (
            "graph: the launches were captured once and replayed; host us is the host's time to "
            "enqueue one reduction and is not part of us"
        )


def _distinct_notes(timed: Sequence[Record]) -> Iterator[str]:
    varying = dict.fromkeys(
        f"{label(r)} {distinct_text(r)}" for r in timed if r.distinct is not None and r.distinct > 1
    )
    if varying:
        yield f"results differ in their bits (distinct/launches): {', '.join(varying)}"


def library_notes(records: Sequence[Record]) -> Iterator[str]:
    """Notes with the version and call of each library."""
    if any(r.context for r in records):
        yield (
            "all rows were timed in one process: compare ratios within this table only; without "
            "us, host us is the whole call until its result is on the host"
        )
    for r in {r.kernel: r for r in records if r.called}.values():
        library = label(r).removeprefix("peer:").partition(":")[0]
        yield f"{label(r)}: {' '.join(filter(None, (library, r.version, r.called)))}"


def by_reason(pairs: Iterable[tuple[_Item, str]]) -> dict[str, list[_Item]]:
    """The items with each reason, in the order in which reasons first occur."""
    groups = group_by(pairs, lambda pair: pair[1])
    return {reason: [item for item, _ in group] for reason, group in groups.items()}


def listed(words: Iterable[str]) -> str:
    """Distinct words as a list for a sentence: `a`, `a and b`, `a, b and c`."""
    distinct = list(dict.fromkeys(words))
    return " and ".join(distinct) if len(distinct) < 3 else ", ".join(distinct)


# Verification


def verification_sections(records: Sequence[Record], title: str) -> list[Section]:
    """The results of `verify`: a row per case, and a table for each number of SMs."""
    return [
        _verification(group, title if sms is None else f"{title}, on {sms_text(sms)}")
        for sms, group in group_by(records, lambda r: r.sms).items()
    ] or [_verification((), title)]


def _verification(records: Sequence[Record], title: str) -> Section:
    header = ("kernel", "op", "dtype", "result", "error", "%bound", "ulp", "distinct")
    names = _auto_names(records)
    rows = []
    remarks: list[tuple[Record, str]] = []
    for r in records:
        accuracy = (error_text(r.error), error_text(r.pct_bound), error_text(r.error_ulp))
        name = names.get((label(r), shape_text(r)), label(r))
        rows.append((name, r.reduced, r.dtype, verdict_text(r), *accuracy, distinct_text(r)))
        if r.verdict == "pass" and r.conditions:
            remarks.append((r, condition_text(r)))
        if r.reason:
            prefix = {"fail": "WRONG: ", "skip": "skipped: "}.get(r.verdict, "")
            remarks.append((r, prefix + r.reason))
    selected = (f"{name}: {shape}" for (_, shape), name in names.items())
    return Section(title, header, tuple(rows), (*_remark_notes(remarks, names), *selected), 4)


def _auto_names(records: Iterable[Record]) -> dict[tuple[str, str], str]:
    """The names of `auto`'s rows, by label and launch shape; numbered if there are several launch
    shapes."""
    selected: dict[str, dict[str, None]] = {}
    for r in records:
        if r.chosen is not None:
            selected.setdefault(label(r), {})[shape_text(r)] = None
    return {
        (name, shape): f"{name} {number}" if len(shapes) > 1 else name
        for name, shapes in selected.items() for number, shape in enumerate(shapes, 1)
    }  # fmt: skip


def _remark_notes(
    remarks: Iterable[tuple[Record, str]], names: Mapping[tuple[str, str], str]
) -> Iterator[str]:
    """A note for each remark, with the names of its rows; WRONG rows have a note each."""
    for remark, records in by_reason(remarks).items():
        if len(records) == 1 or records[0].verdict == "fail":
            yield from (f"{full_label(r)} {r.reduced} {r.dtype}: {remark}" for r in records)
            continue
        reductions: dict[str, dict[str, None]] = {}
        for r in records:
            name = names.get((label(r), shape_text(r)), label(r))
            reductions.setdefault(name, {})[f"{r.reduced} {r.dtype}"] = None
        kernels: dict[str, list[str]] = {}
        for name, cases in reductions.items():
            kernels.setdefault(", ".join(cases), []).append(name)
        who = "; ".join(f"{', '.join(group)} ({cases})" for cases, group in kernels.items())
        yield f"{remark} ({len(records)} rows): {who}"


# Tables with a column for each size


def by_size(run: Run, name: str | None = None) -> list[Section]:
    """Tables with a row for each kernel and a column for each size, of a run with libraries or of a
    collective: all of them, or the one called `name`. Raises UsageError for other runs and
    names."""
    collectives = [r for r in run.records if r.ranks and r.engine and r.time_us is not None]
    tables = _COLLECTIVE_TABLES if collectives else _LIBRARY_TABLES
    if name not in (None, *tables):
        raise UsageError(f"there is no table {name} by size: name one of {', '.join(tables)}")
    wanted = {key: table for key, table in tables.items() if name in (None, key)}
    if collectives:
        engines = group_by(collectives, lambda r: (r.kernel, r.op, r.dtype, r.ranks))
        return [s for group in engines.values() for s in _collective_tables(run, group, wanted)]
    groups = group_by(
        (r for r in run.records if r.context),
        lambda r: (r.op, r.map, r.dtype, r.acc, r.rows, r.timing, r.sms),
    )
    if not groups:
        raise UsageError("this run has no libraries to compare with: use bench --peers")
    return [
        section for group in groups.values()
        for section in _library_tables(run, group, wanted, with_unaligned=name is None)
    ]  # fmt: skip


def _collective_tables(
    run: Run, records: Sequence[Record], tables: Mapping[str, tuple[str, str]]
) -> Iterator[Section]:
    r = records[0]
    for unit, column in tables.values():
        title = f"{r.kernel} of {r.dtype}, {r.op}, {r.ranks} ranks, {unit}, {run.device.name}"
        notes = [_FASTEST] if column == "time" else []
        yield _matrix(title, records, _cell(column, records), notes, lambda r: r.engine or "")


def _library_tables(
    run: Run, records: Sequence[Record], tables: Mapping[str, tuple[str, str]], *,
    with_unaligned: bool,
) -> Iterator[Section]:  # fmt: skip
    aligned = [r for r in records if r.aligned_n is None]
    what = what_text(records[0], None)
    about = f"{records[0].timing}, {run.device.name}, beside libraries"
    for unit, column in tables.values():
        filled = [r for r in aligned if r.verdict == "fail" or COLUMNS[column].cell(r) != DASH]
        if not filled and column != "host":
            continue  # nothing was timed; the notes of the last table say why
        notes = [_FASTEST] if column == "time" else []
        if column == "speedup":
            notes = ["against the kernel with 1; below 1 is slower"]
        if column == "host":
            notes = [
                f"{label(r)} at {short_size(r.n)}: WRONG: {r.reason}"
                for r in aligned if r.verdict == "fail"
            ]  # fmt: skip
            notes += [*skips(aligned), *library_notes(aligned)]
        yield _matrix(f"{what}, {unit}, {about}", filled, _cell(column, aligned), notes)
    for case, offset in (("with one element more", False), ("starting one element off", True)):
        unaligned = [
            r for r in records
            if r.aligned_n is not None and r.slowdown is not None and bool(r.offset) == offset
        ]  # fmt: skip
        if unaligned and with_unaligned:
            title = f"{what}, {case}: how many times longer, {about}"
            yield _matrix(title, unaligned, COLUMNS["slowdown"].cell, [])


def _cell(column: str, records: Sequence[Record]) -> Callable[[Record], str]:
    """The function that renders a cell; the shortest time of each size is bold."""
    text = COLUMNS[column].cell
    best: dict[int, float] = {}
    for r in records:
        if column == "time" and r.time_us is not None:
            best[r.n] = min(r.time_us, best.get(r.n, r.time_us))

    def cell(r: Record) -> str:
        if r.verdict == "fail":
            return "WRONG"
        return f"**{text(r)}**" if r.time_us is not None and best.get(r.n) == r.time_us else text(r)

    return cell


def _matrix(
    title: str, records: Sequence[Record], cell: Callable[[Record], str], notes: Sequence[str],
    name: Callable[[Record], str] = label,
) -> Section:  # fmt: skip
    sizes = sorted({r.aligned_n or r.n for r in records})
    cells = {(name(r), r.aligned_n or r.n): cell(r) for r in records}
    rows = tuple(
        (row, *(cells.get((row, n), DASH) for n in sizes))
        for row in dict.fromkeys(map(name, records))
    )
    return Section(title, ("", *map(short_size, sizes)), rows, tuple(notes))
