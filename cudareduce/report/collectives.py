"""What several ranks did together: a table for each collective, reduction and size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cudareduce.report.columns import COLUMNS, answer_text, distinct_text
from cudareduce.report.numbers import plain_text, share_text, short_size, size_text
from cudareduce.report.section import Section
from cudareduce.results.record import Record, Run

_Columns = Sequence[tuple[str, Callable[[Record], str]]]
_TIMED: _Columns = (
    ("us", COLUMNS["time"].cell),
    ("algbw", lambda r: plain_text(r.algbw_gb_s)),
    ("busbw", lambda r: plain_text(r.busbw_gb_s)),
    ("%link", lambda r: share_text(r.pct_link)),
    ("skew us", lambda r: plain_text(r.skew_us, 2)),
    ("loop us", lambda r: plain_text(r.loop_us)),
    ("host us", COLUMNS["host"].cell),
    ("distinct", distinct_text),
)
_VERIFIED: _Columns = (
    ("answer", answer_text),
    ("distinct", distinct_text),
    ("calls", lambda r: str(r.tried_launches)),
)
_COLUMNS = (
    "us: of the slowest rank, from a start that all share; algbw and busbw in GB/s, as nccl-tests "
    "defines them; skew us: how far the ranks lie apart; loop us: a call of several back to back"
)


def collective_sections(run: Run) -> list[Section]:
    """A section for each size that was timed, and one for all that was verified alone."""
    timed = {_problem(r) for r in run.records if r.time_us is not None}
    groups: dict[tuple[object, ...], list[Record]] = {}
    for r in run.records:
        if r.ranks is None:
            continue
        *what, n = _problem(r)
        groups.setdefault((*what, n if _problem(r) in timed else None), []).append(r)
    return [_section(run, group, timed=n is not None) for (*_, n), group in groups.items()]


def _problem(r: Record) -> tuple[object, ...]:
    return r.kernel, r.op, r.dtype, r.ranks, r.n


def _section(run: Run, records: Sequence[Record], *, timed: bool) -> Section:
    first, largest = records[0], max(r.n for r in records)
    size = size_text(largest) if timed else f"up to {size_text(largest)}"
    what = f"{first.kernel} of {size} {first.dtype}, {first.op}, {first.ranks} ranks"
    title = f"{what}, {first.timing}, {run.device.name}" if timed else (
        f"{what}, {run.device.name}: answers only, nothing is timed"
    )  # fmt: skip
    columns = _TIMED if timed else _VERIFIED
    rows = tuple((r.engine or "", *(cell(r) for _, cell in columns)) for r in records)
    notes = [f"{r.engine}: WRONG: {r.reason}" for r in records if r.verdict == "fail"]
    notes += [f"{r.engine}: {r.reason}" for r in records if r.verdict == "pass" and r.reason]
    if not timed:
        notes += [f"{r.engine}: up to {short_size(r.n)}: more is too much for mail"
                  for r in records if r.n < largest and r.verdict == "pass"]  # fmt: skip
    if first.kernel == "all-reduce":
        notes.append("right: the same bits on all ranks")
    notes += [_COLUMNS] if timed else []
    return Section(title, ("engine", *(name for name, _ in columns)), rows, tuple(notes),
                   texts=1 if timed else 2)  # fmt: skip
