"""Bandwidth over the number of SMs that work."""

from __future__ import annotations

from collections.abc import Sequence

from cudareduce.plot.chosen import Problem, by_name, elements, who
from cudareduce.plot.figure import Axis, Curve, Lines, Point
from cudareduce.plot.limits import limits
from cudareduce.plot.over_sizes import told
from cudareduce.plot.strong import faded, faint_notes, strongest
from cudareduce.report.numbers import size_text
from cudareduce.results.record import Record


def over_sms(problem: Problem) -> list[Lines]:
    """A picture for each size that was timed on several numbers of SMs; what was timed on all of
    them stands where all are."""
    sizes = {elements(r) for r in problem.records if r.sms is not None}
    return [
        _at(problem, [r for r in problem.records if elements(r) == n], n) for n in sorted(sizes)
    ]


def _at(problem: Problem, records: Sequence[Record], n: int) -> Lines:
    device = problem.device
    most = device.sm_count or max(r.sms or 1 for r in records)
    curves = tuple(
        Curve(name, who(rs[0]), tuple(sorted((_point(r, most) for r in rs), key=lambda p: p.x)))
        for name, rs in by_name(records).items()
    )
    title = f"Bandwidth over SMs, n = {size_text(n)}: {problem.title}"
    marks = limits("y", device, records)
    curves = faded(curves, strongest(curves))
    return Lines(
        title, Axis("SMs that work"), Axis("GB/s"), curves, marks, notes=faint_notes(curves)
    )


def _point(r: Record, most: int) -> Point:
    return Point(r.sms or most, r.gb_s or 0.0, r.gb_s_low, r.gb_s_high, told(r))
