"""Bandwidth and time over the number of elements, beside what memory can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cudareduce.plot.chosen import Problem, by_name, elements, undrawn_notes, who
from cudareduce.plot.figure import Axis, Curve, Limit, Lines, Mark, Point
from cudareduce.plot.limits import theory
from cudareduce.plot.strong import faded, faint_notes, strongest
from cudareduce.report.columns import COLUMNS
from cudareduce.report.numbers import short_size
from cudareduce.results.record import Record

#: So few sizes are no curve.
FEWEST = 3
N = Axis("n (elements)", "log2")


def over_sizes(problem: Problem) -> list[Lines]:
    """Bandwidth, which shows who streams best, and time, which shows who starts quickest; nothing
    for a problem of too few sizes."""
    named = by_name(r for r in problem.records if r.sms is None)
    sizes = {elements(r) for records in named.values() for r in records}
    if len(sizes) < FEWEST:
        return []
    rates = _curves(named, lambda r: (r.gb_s, r.gb_s_low, r.gb_s_high))
    times = _curves(named, lambda r: (r.time_us, r.time_us_low, r.time_us_high))
    strong = strongest(rates)
    rates, times = faded(rates, strong), faded(times, strong)
    notes = (*faint_notes(rates), *undrawn_notes(problem.undrawn, sizes=True))
    cache, peak = _cache(problem, sizes), theory("y", problem.device)
    return [
        Lines(f"Bandwidth over n: {problem.title}", N, Axis("GB/s"), rates, (*peak, *cache),
              _ceiling(problem), notes),
        Lines(f"Time over n: {problem.title}", N, Axis("us", "log10"), times, cache, None, notes),
    ]  # fmt: skip


def _curves(
    named: Mapping[str, Sequence[Record]],
    figures: Callable[[Record], tuple[float | None, float | None, float | None]],
) -> tuple[Curve, ...]:  # fmt: skip
    """A curve for each name, of a value that records have with its interval."""

    def point(r: Record) -> Point:
        value, low, high = figures(r)
        return Point(elements(r), value or 0.0, low, high, told(r))

    return tuple(
        Curve(name, who(records[0]), tuple(map(point, sorted(records, key=elements))))
        for name, records in named.items()
    )  # fmt: skip


def told(r: Record) -> str:
    """A record in a line: 3340±10 GB/s, 40.2±.2 us, 81.6 % of the ceiling."""
    parts = [f"{COLUMNS['rate'].cell(r)} GB/s", f"{COLUMNS['time'].cell(r)} us"]
    if r.pct_ceiling is not None:
        parts.append(f"{COLUMNS['ceiling'].cell(r)} % of the ceiling")
    return ", ".join(parts)


def brief(r: Record) -> str:
    """What stands at the end of a bar: 3340±10 GB/s, 81.6 %."""
    share = f", {COLUMNS['ceiling'].cell(r)} %" if r.pct_ceiling is not None else ""
    return f"{COLUMNS['rate'].cell(r)} GB/s{share}"


def _cache(problem: Problem, sizes: set[int]) -> tuple[Mark, ...]:
    """The size up to which the input fits into the L2."""
    # With the answer's bytes, which count for nothing at the largest size.
    long = [r.bytes / elements(r) for r in problem.records if r.bytes and r.rows == 1]
    element = min(long, default=0.0)
    cache = problem.device.l2_bytes
    if not cache or not element or not min(sizes) <= cache / element <= max(sizes):
        return ()
    return (Mark("x", cache / element, f"L2: {cache / 2**20:g} MiB"),)


def _ceiling(problem: Problem) -> Limit | None:
    """What a kernel that only reads reached at each size."""
    found = {elements(r): r.ceiling_gb_s for r in problem.records if r.ceiling_gb_s}
    points = tuple((float(n), found[n]) for n in sorted(found))
    return Limit("ceiling: only reads", points) if points else None


def size_name(n: float) -> str:
    """A size as a tick or a heading shows it."""
    return short_size(int(n))
