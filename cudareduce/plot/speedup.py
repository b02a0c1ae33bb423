"""Speed-up against the fastest library of each size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from statistics import median

from cudareduce.intervals import interval, paired
from cudareduce.plot.chosen import Problem, by_name, elements, short
from cudareduce.plot.figure import Axis, Curve, Lines, Mark, Point
from cudareduce.plot.over_sizes import FEWEST, N, size_name
from cudareduce.plot.strong import faded, faint_notes, strongest
from cudareduce.report.numbers import measured_text, ratio_text
from cudareduce.results.record import Record


def speedup(problem: Problem) -> Lines | None:
    """The picture; None where there is no library or no kernel at enough sizes."""
    best = _fastest(r for r in problem.records if r.scope == "library" and r.sms is None)
    named = by_name(
        r for r in problem.records
        if r.scope != "library" and r.sms is None and elements(r) in best
    )  # fmt: skip
    curves = tuple(
        Curve(name, "kernel", tuple(_point(r, best[elements(r)]) for r in sorted(rs, key=elements)))
        for name, rs in named.items()
    )
    if len({p.x for curve in curves for p in curve.points}) < FEWEST:
        return None
    curves = faded(curves, strongest(curves))
    return Lines(
        f"Speed-up against the fastest library: {problem.title}", N,
        Axis("times as fast as the fastest library"), curves,
        (Mark("y", 1.0, "as fast"),), notes=(_who_is_fastest(best), *faint_notes(curves)),
    )  # fmt: skip


def _fastest(records: Iterable[Record]) -> dict[int, Record]:
    found: dict[int, Record] = {}
    for r in records:
        other = found.get(elements(r))
        if other is None or (r.time_us or 0.0) < (other.time_us or 0.0):
            found[elements(r)] = r
    return found


def _point(r: Record, library: Record) -> Point:
    """Formed round by round where the two were timed in the same rounds."""
    ratios = paired(library.rounds_us, r.rounds_us)
    same = r.context == library.context and len(r.rounds_us) == len(library.rounds_us)
    value = median(ratios) if same and ratios else (library.time_us or 0.0) / (r.time_us or 1.0)
    low, high = (interval(ratios) if same else None) or (None, None)
    text = measured_text(value, low, high) if low is not None else ratio_text(value)
    return Point(elements(r), value, low, high, f"{text} times as fast as {short(library)}")


def _who_is_fastest(best: Mapping[int, Record]) -> str:
    """The fastest library from size to size, in words."""
    runs: Sequence[tuple[str, list[int]]] = [
        (name, list(sizes)) for name, sizes in groupby(sorted(best), lambda n: short(best[n]))
    ]
    parts = [
        f"{name} at {size_name(ns[0])}" if len(ns) == 1
        else f"{name} from {size_name(ns[0])} to {size_name(ns[-1])}"
        for name, ns in runs
    ]  # fmt: skip
    return f"the fastest library: {', '.join(parts)}"
