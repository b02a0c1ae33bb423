"""One array on several GPUs: a table for each reduction and length."""

from __future__ import annotations

from collections.abc import Sequence

from cudareduce.report.columns import COLUMNS, Column, answer_text
from cudareduce.report.numbers import size_text
from cudareduce.report.section import Section
from cudareduce.results.record import Record, Run

_TIMED = ("kernel", "engine", "time", "over", "scaling", "skew", "host", "distinct")
_LEGENDS = (
    "us: the slowest rank's, from a common start; over us, scaling%: beside local, same rounds",
    "skew us: how far apart the ranks are; host us: the host's part of a call, of host all of it",
)
_ENGINE = Column("engine", lambda r: r.engine or "")
_NAME = Column("kernel", lambda r: r.name or r.kernel)
_VERIFIED = (_NAME, _ENGINE, Column("answer", answer_text), COLUMNS["distinct"],
             Column("calls", lambda r: str(r.tried_launches or "-")))  # fmt: skip


def spread_sections(run: Run, records: Sequence[Record]) -> list[Section]:
    """A section for each reduction and length among these records of a run."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    for r in records:
        groups.setdefault((r.op, r.map, r.dtype, r.acc, r.n, r.ranks), []).append(r)
    return [_section(run, group) for group in groups.values()]


def _section(run: Run, records: Sequence[Record]) -> Section:
    first = records[0]
    shown = [r for r in records if r.verdict != "skip"]
    timed = any(r.time_us is not None for r in shown)
    what = f"{first.reduced} of {size_text(first.n)} {first.dtype} on {first.ranks} ranks"
    title = f"{what}, {first.timing}, {run.device.name}" if timed else (
        f"{what}, {run.device.name}: answers only, nothing is timed"
    )  # fmt: skip
    own = {"kernel": _NAME, "engine": _ENGINE}
    columns = [own.get(name) or COLUMNS[name] for name in _TIMED] if timed else list(_VERIFIED)
    skips: dict[str, list[str]] = {}
    for r in records:
        if r.verdict == "skip":
            skips.setdefault(r.reason, []).append(_called(r))
    notes = [f"{', '.join(names)}: skipped: {reason}" for reason, names in skips.items()]
    notes += [f"{_called(r)}: WRONG: {r.reason}" for r in shown if r.verdict == "fail"]
    notes += [f"{_called(r)}: {r.reason}" for r in shown if r.verdict == "pass" and r.reason]
    notes += dict.fromkeys(f"{r.kernel}: {r.chosen}, {r.block} threads x {r.items} elements"
                           for r in records if r.chosen)  # fmt: skip
    notes += dict.fromkeys(f"{r.engine}: {r.version}" for r in records if r.version)
    right = any(r.verdict == "pass" for r in shown)
    notes += ["right: the same bits on all ranks"] if right else []
    return Section(
        title, tuple(column.heading for column in columns),
        tuple(tuple(column.cell(r) for column in columns) for r in shown),
        (*notes, *(_LEGENDS if timed else ())), texts=2 if timed else 3,
    )  # fmt: skip


def _called(record: Record) -> str:
    return f"{record.name or record.kernel} {record.engine}".rstrip()
