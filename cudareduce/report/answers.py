"""What `verify` found, as people read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from cudareduce.report.columns import (
    answer_text,
    condition_text,
    distinct_text,
    full_label,
    label,
)
from cudareduce.report.launched import shape_text
from cudareduce.report.numbers import error_text, sms_text
from cudareduce.report.section import Section
from cudareduce.report.sections import by_reason
from cudareduce.results.record import Record

#: What rows of `auto` are called, by its name and what it took.
Names = Mapping[tuple[str, str], str]


def answer_sections(records: Sequence[Record], title: str) -> list[Section]:
    """What `verify` found, a table for each number of SMs."""
    by_sms: dict[int | None, list[Record]] = {}
    for r in records:
        by_sms.setdefault(r.sms, []).append(r)
    return [
        _section(some, title if sms is None else f"{title}, on {sms_text(sms)}")
        for sms, some in by_sms.items()
    ] or [_section((), title)]


def _section(records: Sequence[Record], title: str) -> Section:
    """One line a case."""
    header = ("kernel", "op", "dtype", "answer", "error", "%bound", "ulp", "distinct")
    names = _names(records)
    rows = []
    told: list[tuple[Record, str]] = []
    for r in records:
        answer = answer_text(r)
        accuracy = (error_text(r.error), error_text(r.pct_bound), error_text(r.error_ulp))
        rows.append((_name(r, names), r.reduced, r.dtype, answer, *accuracy, distinct_text(r)))
        if r.verdict == "pass" and r.conditions:
            told.append((r, condition_text(r)))
        if r.reason:
            kind = {"fail": "WRONG: ", "skip": "skipped: "}.get(r.verdict, "")
            told.append((r, kind + r.reason))
    taken = (f"{name}: {shape}" for (_, shape), name in names.items())
    notes = (*_reason_notes(told, names), *taken)
    return Section(title, header, tuple(rows), notes, 4)


def _names(records: Iterable[Record]) -> Names:
    """What rows of `auto` are called, by what it took: with a number where that is several."""
    taken: dict[str, dict[str, None]] = {}
    for r in records:
        if r.chosen is not None:
            taken.setdefault(label(r), {})[shape_text(r)] = None
    return {
        (name, shape): f"{name} {number}" if len(shapes) > 1 else name
        for name, shapes in taken.items() for number, shape in enumerate(shapes, 1)
    }  # fmt: skip


def _name(record: Record, names: Names) -> str:
    return names.get((label(record), shape_text(record)), label(record))


def _reason_notes(told: Iterable[tuple[Record, str]], names: Names) -> Iterator[str]:
    """A line for each reason, with the rows it is of; what is WRONG has one each."""
    for reason, records in by_reason(told).items():
        if len(records) == 1 or records[0].verdict == "fail":
            yield from (f"{full_label(r)} {r.reduced} {r.dtype}: {reason}" for r in records)
            continue
        reductions: dict[str, list[str]] = {}
        for r in records:
            reductions.setdefault(_name(r, names), []).append(f"{r.reduced} {r.dtype}")
        alike: dict[str, list[str]] = {}
        for name, whats in reductions.items():
            alike.setdefault(", ".join(dict.fromkeys(whats)), []).append(name)
        who = "; ".join(f"{', '.join(names)} ({whats})" for whats, names in alike.items())
        yield f"{reason} ({len(records)} rows): {who}"
