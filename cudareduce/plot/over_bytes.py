"""What links carry over the bytes of an array, by each engine of a collective."""

from __future__ import annotations

from statistics import median

from cudareduce.plot.chosen import Problem, by_name, undrawn_notes, who
from cudareduce.plot.figure import Axis, Curve, Lines, Mark, Point
from cudareduce.report.columns import COLUMNS
from cudareduce.report.numbers import plain_text
from cudareduce.results.record import Record


def over_bytes(problem: Problem) -> Lines | None:
    """Bus bandwidth of each engine, as nccl-tests defines it, beside what the links carried; None
    without a bandwidth."""
    timed = [r for r in problem.records if r.busbw_gb_s and r.bytes]
    if not timed:
        return None
    curves = tuple(
        Curve(name, who(rs[0]), tuple(_point(r) for r in sorted(rs, key=lambda r: r.bytes or 0)))
        for name, rs in by_name(timed).items()
    )
    return Lines(
        f"Bus bandwidth over bytes: {problem.title}", Axis("bytes of each rank's array", "log2"),
        Axis("GB/s, one way"), curves, _link(timed),
        notes=tuple(undrawn_notes(problem.undrawn, sizes=True)),
    )  # fmt: skip


def _point(r: Record) -> Point:
    """A bandwidth, with the interval that its time has."""
    busbw = r.busbw_gb_s or 0.0
    wire = busbw / (r.gb_s or 1.0)
    low, high = (None if end is None else end * wire for end in (r.gb_s_low, r.gb_s_high))
    share = "" if r.pct_link is None else f", {r.pct_link:.1f} % of the link"
    told = f"{plain_text(busbw)} GB/s, {COLUMNS['time'].cell(r)} us{share}"
    return Point(r.bytes or 0, busbw, low, high, told)


def _link(records: list[Record]) -> tuple[Mark, ...]:
    """What writes reached both ways at once, which the shares are of."""
    known = [100 * r.busbw_gb_s / r.pct_link for r in records if r.busbw_gb_s and r.pct_link]
    if not known:
        return ()
    return (Mark("y", median(known), f"link {plain_text(median(known))} GB/s"),)
