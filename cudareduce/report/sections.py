"""Results as people read them: sections, each a table of text with a title and notes below it.

Every format is made from the same sections, so they cannot tell different stories.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

from cudareduce.report.collectives import collective_sections
from cudareduce.report.columns import (
    COLUMNS,
    SOURCES,
    answer_text,
    chosen,
    condition_notes,
    distinct_text,
    full_label,
)
from cudareduce.report.columns import label as _label
from cudareduce.report.launched import choice_notes, few_blocks_notes
from cudareduce.report.numbers import DASH, error_text, plain_text, size_text, sms_text
from cudareduce.report.section import Section
from cudareduce.report.spread import spread_sections
from cudareduce.results.record import Record, Run

_What = TypeVar("_What")

#: What `vs prev` is against in a lineage, and in a publication's own order.
_STEP = "; vs prev: against the step before, which where a branch begins is not the row above"
_ROW = "; vs prev: against the row above"


def sections(
    run: Run, more: Sequence[str] = (), roots: Mapping[str, str] | None = None
) -> list[Section]:
    """A section for each reduction and size of a run, with `more` columns than usual; remarks on
    the run as a whole stand below the last."""
    found = collective_sections(run, [r for r in run.records if r.collective])
    spread = [r for r in run.records if r.ranks and r.block is not None and not r.source]
    found += spread_sections(run, spread)
    others = [r for r in run.records if r.source or not r.ranks]
    groups: dict[tuple[object, ...], list[Record]] = {}
    for r in others:
        odd, n = r.aligned_n is not None, r.n if r.aligned_n is None else r.aligned_n
        key = (r.op, r.map, r.dtype, r.acc, n, r.rows, r.context, r.sms, r.source, r.ranks, odd)
        groups.setdefault(key, []).append(r)
    found += [
        _odd(run, group) if odd else _section(run, group, more, roots or {})
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
    first, what = records[0], what_text(records[0], records[0].n)
    shown = [record for record in records if record.verdict != "skip"]
    notes = skips(records)
    notes += condition_notes(shown)
    marked = [(full_label(r), r.reason) for r in shown if r.verdict == "pass" and r.reason]
    notes += [
        f"{', '.join(dict.fromkeys(members))}: {reason}"
        for reason, members in by_reason(marked).items()
    ]
    notes += [*choice_notes(records), *few_blocks_notes(records)]
    wrong = [f"{full_label(r)}: WRONG: {r.reason}" for r in shown if r.verdict == "fail"]
    if any(record.time_us is not None for record in shown):
        timed = _timed(run, what, shown, more)
        notes = [*wrong, *notes, *timed.notes]
        return replace(timed, notes=tuple(notes), rules=_rules(shown, roots))
    title = f"{what}, {run.device.name}: answers only, nothing is timed"
    header = ("kernel", "blocks", "passes", "answer", "error", "%bound", "ulp", "distinct")
    rows = tuple(
        (
            _label(r), *(DASH if k is None else str(k) for k in (r.grid, r.passes)),
            answer_text(r),
            error_text(r.error), error_text(r.pct_bound), error_text(r.error_ulp), distinct_text(r),
        )
        for r in shown
    )  # fmt: skip
    rounds = first.op in ("sum", "prod", "mean")
    if rounds and shown and all(r.bound == 0 and r.error_ulp is not None for r in shown):
        notes.append("no %bound: verified with inputs of which no partial answer is rounded")
    return Section(title, header, rows, (*wrong, *notes), rules=_rules(shown, roots))


def what_text(record: Record, n: int | None) -> str:
    """What was reduced, in the words of titles; without `n` of any size."""
    of = "," if record.map else " of"
    what = f"{record.reduced}{of} {'' if n is None else f'{size_text(n)} '}{record.dtype}"
    what += SOURCES.get(record.source or "", "")
    what += f" on {record.ranks} ranks" if record.ranks else ""
    if record.rows != 1:
        what += f" x {size_text(record.rows)} rows"
    if record.acc != record.dtype:
        what += f", accumulated in {record.acc}"
    return what if record.sms is None else f"{what}, on {sms_text(record.sms)}"


def skips(records: Sequence[Record]) -> list[str]:
    """What was skipped, by reasons."""
    skipped = [(_label(r), r.reason) for r in records if r.verdict == "skip"]
    return [
        f"{members[0]}: skipped, {reason}" if len(set(members)) == 1
        else f"skipped, {reason} ({len(members)} rows): {', '.join(dict.fromkeys(members))}"
        for reason, members in by_reason(skipped).items()
    ]  # fmt: skip


def _odd(run: Run, records: Sequence[Record]) -> Section:
    """What one element more costs, and a start one element off, each against the same without."""
    first = records[0]
    title = (
        f"{what_text(first, first.aligned_n or 0)}, {first.timing}, {run.device.name}, beside "
        "libraries: the same with one element more, and starting one element off"
    )
    more = {_label(r): r for r in records if not r.offset}
    off = {_label(r): r for r in records if r.offset}
    rows = tuple(
        (name, *(COLUMNS[column].cell(side[name]) if name in side else DASH
                 for side in (more, off) for column in ("time", "slowdown")))
        for name in dict.fromkeys(map(_label, records))
        if any(side[name].verdict == "pass" for side in (more, off) if name in side)
    )  # fmt: skip
    failed: dict[tuple[str, str], list[str]] = {}  # one that ends its process tells not where
    for r in records:
        if r.verdict == "fail":
            failed.setdefault((_label(r), r.reason), []).append("off" if r.offset else "n + 1")
    wrong = [f"{name}, {' or '.join(where)}: WRONG: {why}" for (name, why), where in failed.items()]
    notes = (
        *wrong, *skips(records),
        "x: how many times longer than on what was asked for, in the same rounds",
    )  # fmt: skip
    return Section(title, ("kernel", "n + 1 us", "x", "off us", "x"), rows, notes)


def _timed(run: Run, what: str, records: Sequence[Record], more: Sequence[str]) -> Section:
    timed = [record for record in records if record.time_us is not None]
    first = timed[0]
    kinds = dict.fromkeys(record.timing for record in timed)
    title = f"{what}, {listed(kinds)}, {run.device.name}"
    if first.context:
        title += f", in the {first.context} context, beside libraries"
    if first.region == "first-pass":
        title += ", first pass only"
    columns = chosen(records, more)
    rows = tuple(
        tuple(
            "" if column.heading == "kernel" and k and _label(records[k - 1]) == _label(r)
            else column.cell(r)
            for column in columns
        )
        for k, r in enumerate(records)
    )  # fmt: skip
    headings = {column.heading for column in columns}
    notes = [*_reference_notes(timed, headings), *_share_notes(run, first, headings)]
    notes += [*_kind_notes(kinds, timed), *_answer_notes(timed), *_interval_notes(timed)]
    notes += library_notes(records)
    headings_in_order = tuple(column.heading for column in columns)
    return Section(title, headings_in_order, rows, tuple(notes))


def _rules(records: Sequence[Record], roots: Mapping[str, str]) -> tuple[int, ...]:
    """Rows that begin another lineage than those above; a publication has an order of its own."""
    lineages = [None if r.suite else roots.get(r.kernel, r.baseline) for r in records]
    above: str | None = None
    rules = []
    for k, lineage in enumerate(lineages):
        if above is not None and lineage is not None and lineage != above:
            rules.append(k)
        above = lineage or above
    return tuple(rules)


def _reference_notes(timed: Sequence[Record], headings: set[str]) -> Iterator[str]:
    """What speed-ups are against."""
    names = {r.kernel: _label(r) for r in timed}
    references = [
        names.get(name, name) for name in dict.fromkeys(r.baseline for r in timed) if name
    ]
    if "speedup" not in headings or not references:
        return
    where = " (the one in the same part)" if len(references) > 1 else ""
    step = _ROW if all(r.suite for r in timed) else _STEP
    yield f"speedup: against {listed(references)}{where}{step if 'vs prev' in headings else ''}"


def listed(words: Iterable[str]) -> str:
    """Each once: a, `a and b`, or with commas."""
    kinds = list(dict.fromkeys(words))
    return " and ".join(kinds) if len(kinds) < 3 else ", ".join(kinds)


def first_few(words: Iterable[str], most: int) -> str:
    """So many, each once, and how many more there are."""
    kinds = list(dict.fromkeys(words))
    more = f" and {len(kinds) - most} more" if len(kinds) > most else ""
    return f"{', '.join(kinds[:most])}{more}"


def _interval_notes(timed: Sequence[Record]) -> Iterator[str]:
    """Why times have no interval, and which if others have one."""
    few: dict[int, list[str]] = {}
    for r in timed:
        if r.time_us_low is None:
            few.setdefault(len(r.medians_us), []).append(_label(r))
    for rounds, names in few.items():
        who = "" if len(names) == len(timed) else f"{', '.join(dict.fromkeys(names))}: "
        yield f"{who}{rounds} round{'s' if rounds > 1 else ''}: no interval; it takes at least 6"


def _floors_text(floors: Mapping[str, float]) -> str:
    """Events and launch of each kind of timing, at the last size; the first kind's have no kind in
    their names."""
    kinds: dict[str, list[str]] = {}
    for name, us in floors.items():
        what, _, kind = name.removeprefix("floor: ").partition(", ")
        kinds.setdefault(kind, []).append(f"{what} {us:.2f} us")
    return "; ".join(f"{kind}: {', '.join(a)}".removeprefix(": ") for kind, a in kinds.items())


def _share_notes(run: Run, first: Record, headings: set[str]) -> Iterator[str]:
    """What the two percentages are shares of."""
    peak, ceiling = run.device.peak_gb_s, first.ceiling_gb_s
    if "%peak" in headings and peak is None:
        yield "%peak: the driver does not know the theory; --peak-gb-s sets it"
    elif "%peak" in headings:
        given = run.protocol.get("peak_gb_s") is not None
        source = "as --peak-gb-s says" if given else "theory from clock and bus width"
        yield f"%peak: of {peak:.4g} GB/s, {source}"
    for heading, who in (("%copy", "copies alone"), ("%ceil", "a read-only kernel")):
        if heading in headings and ceiling is not None:
            reached = f"of {plain_text(ceiling)} GB/s, which {who} reached in the same rounds"
            yield f"{heading}: {reached}"


def _kind_notes(kinds: Iterable[str], timed: Sequence[Record]) -> Iterator[str]:
    """What must be known of times that are not cold, or not of one launch."""
    cached = [r for r in timed if not r.timing.startswith("cold") and (r.pct_peak or 0) > 100]
    if cached:
        yield "warm and over 100 % of theory: these bytes came from the cache, not from memory"
    if any((r.batch or 1) > 1 for r in timed):
        yield "batch: launches between two events, for kernels under 20 us; us is one's share"
    if any("graph" in kind for kind in kinds):
        yield (
            "graph: the launches were captured once and replayed; host us is what the host needs "
            "to enqueue one reduction, and no part of us"
        )


def _answer_notes(timed: Sequence[Record]) -> Iterator[str]:
    """Kernels whose answer depends on the order in which blocks arrive."""
    loose = dict.fromkeys(
        f"{_label(r)} {distinct_text(r)}"
        for r in timed
        if r.distinct is not None and r.distinct > 1
    )
    if loose:
        yield f"answers differ in their bits (distinct/launches): {', '.join(loose)}"


def library_notes(records: Sequence[Record]) -> Iterator[str]:
    """Which call of which version each library's row is of."""
    if any(r.context for r in records):
        yield (
            "one process holds all of these: ratios hold within this table, and not to others; "
            "where there is no us, host us is the whole call, until its answer is on the host"
        )
    for r in {r.kernel: r for r in records if r.called}.values():
        library = _label(r).removeprefix("peer:").partition(":")[0]
        yield f"{_label(r)}: {' '.join(filter(None, (library, r.version, r.called)))}"


def by_reason(told: Iterable[tuple[_What, str]]) -> dict[str, list[_What]]:
    """What has a reason, by reasons, in the order in which they are told first."""
    found: dict[str, list[_What]] = {}
    for what, reason in told:
        found.setdefault(reason, []).append(what)
    return found


def alignment(section: Section, column: int) -> Literal["left", "right"]:
    """Words to the left, numbers to the right."""
    return "left" if column < section.texts else "right"
