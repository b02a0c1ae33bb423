"""What several ranks did together: a table for each collective, reduction and size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from cudareduce.report.columns import COLUMNS, Column, answer_text
from cudareduce.report.numbers import DASH, short_size, size_text
from cudareduce.report.section import Section
from cudareduce.results.record import Record, Run

_TIMED = ("time", "algbw", "busbw", "link", "skew", "loop", "host", "distinct")
_VERIFIED = (
    Column("answer", answer_text),
    COLUMNS["distinct"],
    Column("calls", lambda r: DASH if r.tried_launches is None else str(r.tried_launches)),
)
_LEGEND = (
    "us: of the slowest rank, from a start that all share; algbw and busbw in GB/s, as nccl-tests "
    "defines them; skew us: how far the ranks lie apart; loop us: a call of several back to back"
)


def collective_sections(run: Run, records: Sequence[Record]) -> list[Section]:
    """Of these records of a run a section for each size that was timed, and one for all that was
    verified alone."""
    timed = {_problem(r) for r in records if r.time_us is not None}
    groups: dict[tuple[object, ...], list[Record]] = {}
    for r in records:
        *what, n = _problem(r)
        groups.setdefault((*what, n if _problem(r) in timed else None), []).append(r)
    return [_section(run, group, timed=n is not None) for (*_, n), group in groups.items()]


def _problem(r: Record) -> tuple[object, ...]:
    return r.kernel, r.op, r.dtype, r.ranks, r.n


def _section(run: Run, records: Sequence[Record], *, timed: bool) -> Section:
    first = records[0]
    largest = max([r.n for r in records if r.verdict != "fail"] or [r.n for r in records])
    size = size_text(largest) if timed else f"up to {size_text(largest)}"
    what = f"{first.kernel} of {size} {first.dtype}, {first.op}, {first.ranks} ranks"
    title = f"{what}, {first.timing}, {run.device.name}" if timed else (
        f"{what}, {run.device.name}: answers only, nothing is timed"
    )  # fmt: skip
    columns = [COLUMNS[name] for name in _TIMED] if timed else _VERIFIED
    rows = tuple((r.engine or "", *(column.cell(r) for column in columns)) for r in records)
    notes = [f"{r.engine}: WRONG: {r.reason}" for r in records if r.verdict == "fail"]
    notes += [f"{r.engine}: {r.reason}" for r in records if r.verdict == "pass" and r.reason]
    notes += _libraries(records)
    if not timed:
        notes += [f"{r.engine}: up to {short_size(r.n)}: more is too much for mail"
                  for r in records if r.n < largest and r.verdict == "pass"]  # fmt: skip
    notes += [f"{r.engine} took {r.chosen}{'' if timed else f' at {short_size(r.n)}'}"
              for r in records if r.chosen]  # fmt: skip
    notes += _fastest(records)
    if first.kernel == "all-reduce" and any(r.verdict == "pass" for r in records):
        notes.append("right: the same bits on all ranks")
    notes += [_LEGEND] if timed else []
    return Section(title, ("engine", *(column.heading for column in columns)), rows, tuple(notes),
                   texts=1 if timed else 2)  # fmt: skip


def _libraries(records: Sequence[Record]) -> Iterator[str]:
    """The versions of libraries, and why some were not tried: all of one reason in a line."""
    skips: dict[str, list[str]] = {}
    for r in records:
        if r.verdict == "skip":
            skips.setdefault(r.reason, []).append(r.engine or "")
    versions = [f"{r.engine} {r.version}" for r in records if r.version]
    if versions:
        yield f"versions: {', '.join(versions)}"
    for reason, engines in skips.items():
        yield f"{', '.join(engines)}: skipped: {reason}"


def _fastest(records: Sequence[Record]) -> list[str]:
    """Which engine was fastest, where several were timed, and which others may be as fast."""
    timed = [r for r in records if r.time_us is not None]
    ours = [r for r in timed if r.chosen not in {one.engine for one in timed}]  # none twice
    if len(ours) < 2:
        return []
    best = min(ours, key=lambda r: r.time_us or 0.0)
    limit = best.time_us_high or best.time_us or 0.0
    level = [r.engine or "" for r in ours if r is not best and (r.time_us_low or inf) <= limit]
    more = f"; {' and '.join(level)} may be as fast" if level else ""
    return [f"fastest at this size: {best.engine}{more}"]
