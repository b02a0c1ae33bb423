"""Bandwidth over the number of SMs that work: how much of the card a reduction leaves to others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from cudareduce.report.columns import COLUMNS, condition_notes, label
from cudareduce.report.launched import choice_notes, few_blocks_notes
from cudareduce.report.numbers import plain_text, share_text, size_text, sms_text
from cudareduce.report.section import Section
from cudareduce.results.record import Record, Run

#: Characters that stand for all of what a read-only kernel reaches.
_FULL = 25
#: Fewer SMs are faster if the times' intervals lie apart by this: rounds of one kernel differ by
#: 0.3 % (measured on an H200).
_SURELY = 0.003
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
        if (r.time_us_low or 0.0) > (1 + _SURELY) * (best.time_us_high or float("inf")):
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
