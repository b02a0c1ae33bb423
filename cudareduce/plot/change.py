"""Before and after: by how much each time of one run differs from that of another."""

from __future__ import annotations

from collections.abc import Sequence

from cudareduce.errors import UsageError
from cudareduce.plot.chosen import elements, short, who
from cudareduce.plot.figure import Axis, Bar, Bars
from cudareduce.plot.over_sizes import size_name
from cudareduce.report.numbers import change_text, plain_text
from cudareduce.results.record import Record

#: More rows than this are no picture; the largest changes are kept.
_MOST = 40


def change(old: Sequence[Record], new: Sequence[Record], between: str) -> Bars:
    """A row for each time that both runs have; the interval is the one that both times' intervals
    allow. `between` are the two, in words. Nothing in common is a UsageError."""
    before = {_key(r): r for r in old}
    pairs = [(before[_key(r)], r) for r in new if _key(r) in before]
    if not pairs:
        raise UsageError(
            "the two runs have no time of the same kernel and problem: name two runs of one "
            "command, or draw each by itself"
        )
    bars = [_bar(a, b, pairs) for a, b in pairs]
    kept = set(sorted(range(len(bars)), key=lambda k: -abs(bars[k].value))[:_MOST])
    notes = ["below 0 is faster; an interval beside 0 is a change beyond the runs' own noise"]
    if len(bars) > _MOST:
        notes.append(f"{len(bars) - _MOST} smaller changes are left out")
    shown = tuple(bar for k, bar in enumerate(bars) if k in kept)
    axis = Axis("change of time (%)", "change")
    return Bars(f"Change of time, {between}", axis, shown, (), tuple(notes))


def _key(r: Record) -> tuple[object, ...]:
    return (
        r.kernel, r.name, r.reduced, r.dtype, r.acc, r.n, r.rows, r.offset, r.timing, r.region,
        r.context, r.sms, r.source, r.way, r.chunk_bytes,
    )  # fmt: skip


def _bar(a: Record, b: Record, pairs: Sequence[tuple[Record, Record]]) -> Bar:
    ratio = (b.time_us or 0.0) / (a.time_us or 1.0)
    low = high = None
    if a.time_us_low and a.time_us_high and b.time_us_low and b.time_us_high:
        low, high = b.time_us_low / a.time_us_high, b.time_us_high / a.time_us_low
    several = len({elements(r) for _, r in pairs}) > 1
    types = len({(r.reduced, r.dtype) for _, r in pairs}) > 1
    name = short(b) + f" {b.reduced} {b.dtype}" * types + f" {size_name(elements(b))}" * several
    sure = low is not None and high is not None
    told = change_text(ratio, low or ratio, high or ratio) if sure else f"{100 * (ratio - 1):+.1f}%"
    times = f"{plain_text(a.time_us, 4)} to {plain_text(b.time_us, 4)} us"
    percent = [None if end is None else 100 * (end - 1) for end in (low, high)]
    return Bar(name, who(b), 100 * (ratio - 1), percent[0], percent[1], told, f"{told}, {times}")
