"""Tables of several ranks: collectives, and one array sharded over several GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf

from cudareduce.report.columns import COLUMNS, Column, verdict_text
from cudareduce.report.numbers import DASH, short_size, size_text
from cudareduce.report.section import Section
from cudareduce.results.record import Record, Run
from cudareduce.text import group_by

_ENGINE = Column("engine", lambda r: r.engine or "")
_KERNEL = Column("kernel", lambda r: r.name or r.kernel)
_VERIFIED = (
    Column("result", verdict_text),
    COLUMNS["distinct"],
    Column("calls", lambda r: str(r.tried_launches or DASH)),
)
_COLLECTIVE_LEGEND = (
    "us: of the slowest rank, from a start that all share; algbw and busbw in GB/s, as nccl-tests "
    "defines them; skew us: how far the ranks lie apart; loop us: a call of several back to back",
)
_SHARDED_LEGEND = (
    "us: the slowest rank's, from a common start; over us, scaling%: beside local, same rounds",
    "skew us: how far apart the ranks are; host us: the host's part of a call, of host all of it",
)


def rank_sections(run: Run) -> list[Section]:
    """The tables of collectives, one for each timed size and one for all sizes that were only
    verified; then those of sharded arrays, one for each reduction and length."""
    collectives = [r for r in run.records if r.collective]
    timed = {_problem(r) for r in collectives if r.time_us is not None}
    by_size = group_by(
        collectives, lambda r: (*_problem(r)[:-1], r.n if _problem(r) in timed else None)
    )
    sharded = [r for r in run.records if r.ranks and r.block is not None and not r.source]
    arrays = group_by(sharded, lambda r: (r.op, r.map, r.dtype, r.acc, r.n, r.ranks))
    return [
        *(_collective(run, group, timed=n is not None) for (*_, n), group in by_size.items()),
        *(_sharded(run, group) for group in arrays.values()),
    ]


def _problem(r: Record) -> tuple[object, ...]:
    return r.kernel, r.op, r.dtype, r.ranks, r.n


def _collective(run: Run, records: Sequence[Record], *, timed: bool) -> Section:
    first = records[0]
    largest = max([r.n for r in records if r.verdict != "fail"] or [r.n for r in records])
    size = size_text(largest) if timed else f"up to {size_text(largest)}"
    what = f"{first.kernel} of {size} {first.dtype}, {first.op}, {first.ranks} ranks"
    names = ("time", "algbw", "busbw", "link", "skew", "loop", "host", "distinct")
    columns = (_ENGINE, *((COLUMNS[name] for name in names) if timed else _VERIFIED))
    notes = _reason_notes(records, _ENGINE.cell)
    versions = [f"{r.engine} {r.version}" for r in records if r.version]
    notes += [f"versions: {', '.join(versions)}"] if versions else []
    notes += _skip_notes(records, _ENGINE.cell)
    if not timed:
        notes += [f"{r.engine}: up to {short_size(r.n)}: more is too much for mail"
                  for r in records if r.n < largest and r.verdict == "pass"]  # fmt: skip
    notes += [f"{r.engine} took {r.chosen}{'' if timed else f' at {short_size(r.n)}'}"
              for r in records if r.chosen]  # fmt: skip
    notes += _fastest(records)
    if first.kernel == "all-reduce":
        notes += _same_bits(records)
    notes += _COLLECTIVE_LEGEND if timed else ()
    return _table(_title(what, run, first, timed=timed), columns, records, notes, 1 if timed else 2)


def _sharded(run: Run, records: Sequence[Record]) -> Section:
    first, kept = records[0], [r for r in records if r.verdict != "skip"]
    timed = any(r.time_us is not None for r in kept)
    what = f"{first.reduced} of {size_text(first.n)} {first.dtype} on {first.ranks} ranks"
    names = ("time", "over", "scaling", "skew", "host", "distinct")
    columns = (_KERNEL, _ENGINE, *((COLUMNS[name] for name in names) if timed else _VERIFIED))
    notes = [*_skip_notes(records, _row_name), *_reason_notes(kept, _row_name)]
    notes += dict.fromkeys(f"{r.kernel}: {r.chosen}, {r.block} threads x {r.items} elements"
                           for r in records if r.chosen)  # fmt: skip
    notes += dict.fromkeys(f"{r.engine}: {r.version}" for r in records if r.version)
    notes += [*_same_bits(kept), *(_SHARDED_LEGEND if timed else ())]
    return _table(_title(what, run, first, timed=timed), columns, kept, notes, 2 if timed else 3)


def _row_name(r: Record) -> str:
    return f"{_KERNEL.cell(r)} {r.engine}".rstrip()


def _title(what: str, run: Run, first: Record, *, timed: bool) -> str:
    if timed:
        return f"{what}, {first.timing}, {run.device.name}"
    return f"{what}, {run.device.name}: results only, nothing is timed"


def _table(
    title: str, columns: Sequence[Column], records: Sequence[Record], notes: Sequence[str],
    texts: int,
) -> Section:  # fmt: skip
    rows = tuple(tuple(column.cell(r) for column in columns) for r in records)
    return Section(title, tuple(column.heading for column in columns), rows, tuple(notes), texts)


def _reason_notes(records: Sequence[Record], name: Callable[[Record], str]) -> list[str]:
    notes = [f"{name(r)}: WRONG: {r.reason}" for r in records if r.verdict == "fail"]
    return notes + [f"{name(r)}: {r.reason}" for r in records if r.verdict == "pass" and r.reason]


def _skip_notes(records: Sequence[Record], name: Callable[[Record], str]) -> Iterator[str]:
    """A line for each reason why rows were skipped."""
    skipped = (r for r in records if r.verdict == "skip")
    for reason, group in group_by(skipped, lambda r: r.reason).items():
        yield f"{', '.join(map(name, group))}: skipped: {reason}"


def _same_bits(records: Sequence[Record]) -> list[str]:
    right = any(r.verdict == "pass" for r in records)
    return ["right: the same bits on all ranks"] if right else []


def _fastest(records: Sequence[Record]) -> list[str]:
    """The fastest engine, if several were timed, and those that may be as fast."""
    timed = [r for r in records if r.time_us is not None]
    engines = {r.engine for r in timed}
    distinct = [r for r in timed if r.chosen not in engines]
    if len(distinct) < 2:
        return []
    best = min(distinct, key=lambda r: r.time_us or 0.0)
    limit = best.time_us_high or best.time_us or 0.0
    tied = [r.engine or "" for r in distinct if r is not best and (r.time_us_low or inf) <= limit]
    more = f"; {' and '.join(tied)} may be as fast" if tied else ""
    return [f"fastest at this size: {best.engine}{more}"]
