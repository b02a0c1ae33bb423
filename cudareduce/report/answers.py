"""What `verify` found, as people read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cudareduce.report.columns import distinct_text, full_label, label
from cudareduce.report.numbers import DASH, error_text, sms_text
from cudareduce.report.sections import Section, by_reason, choice_notes
from cudareduce.results.record import Record


def verdict_section(records: Sequence[Record], title: str) -> Section:
    """What `verify` found, one line a case."""
    header = ("kernel", "op", "dtype", "answer", "error", "%bound", "ulp", "distinct")
    rows = []
    told: list[tuple[Record, str]] = []
    for r in records:
        answer = {"pass": "right", "fail": "WRONG", "skip": DASH}[r.verdict]
        accuracy = (error_text(r.error), error_text(r.pct_bound), error_text(r.error_ulp))
        rows.append((_label(r), r.op, r.dtype, answer, *accuracy, distinct_text(r)))
        if r.reason:
            kind = {"fail": "WRONG: ", "skip": "skipped: "}.get(r.verdict, "")
            told.append((r, kind + r.reason))
    notes = (*_reason_notes(told), *choice_notes(records))
    return Section(title, header, tuple(rows), notes, 4)


def _reason_notes(told: Iterable[tuple[Record, str]]) -> Iterator[str]:
    """A line for each reason, with the rows it is of; what is WRONG has one each."""
    for reason, records in by_reason(told).items():
        if len(records) == 1 or records[0].verdict == "fail":
            yield from (f"{full_label(r)}{_on(r)} {r.op} {r.dtype}: {reason}" for r in records)
            continue
        reductions: dict[str, list[str]] = {}
        for r in records:
            reductions.setdefault(_label(r), []).append(f"{r.op} {r.dtype}")
        alike: dict[str, list[str]] = {}
        for name, whats in reductions.items():
            alike.setdefault(", ".join(dict.fromkeys(whats)), []).append(name)
        who = "; ".join(f"{', '.join(names)} ({whats})" for whats, names in alike.items())
        yield f"{reason} ({len(records)} rows): {who}"


def _label(record: Record) -> str:
    """What a row is called here, where one table holds them all."""
    return label(record) + _on(record)


def _on(record: Record) -> str:
    return f" on {sms_text(record.sms)}" if record.sms else ""
