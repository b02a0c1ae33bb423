"""Bandwidth over the number of SMs that work."""

from __future__ import annotations

from collections.abc import Sequence

from cudareduce.plot.chosen import Problem, by_name, elements, who
from cudareduce.plot.figure import Axis, Curve, Lines, Mark, Point
from cudareduce.plot.over_sizes import told
from cudareduce.report.numbers import plain_text, size_text
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
    ceiling = next((r.ceiling_gb_s for r in records if r.ceiling_gb_s), None)
    marks = [(ceiling, "ceiling"), (device.peak_gb_s, "theory")]
    return Lines(
        f"Bandwidth over SMs, n = {size_text(n)}: {problem.title}", Axis("SMs that work"),
        Axis("GB/s"), curves,
        tuple(Mark("y", at, f"{name} {plain_text(at, 4)} GB/s") for at, name in marks if at),
    )  # fmt: skip


def _point(r: Record, most: int) -> Point:
    return Point(r.sms or most, r.gb_s or 0.0, r.gb_s_low, r.gb_s_high, told(r))
