"""The ladder: a bar for each kernel at one size, in the order of the lesson."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cudareduce.plot.chosen import Problem, elements, short, undrawn_notes, who
from cudareduce.plot.figure import Axis, Bar, Bars
from cudareduce.plot.limits import limits
from cudareduce.plot.over_sizes import brief, told
from cudareduce.report.numbers import size_text
from cudareduce.results.record import Record

#: More bars than this are no picture.
_MOST = 120


def ladder(problem: Problem, sizes: Sequence[int] = ()) -> list[Bars]:
    """A picture for each size that is asked for; of none the one with most kernels, then the
    largest."""
    everywhere = [r for r in problem.records if r.sms is None]
    if not everywhere:
        return []
    counts = Counter(map(elements, everywhere))
    wanted = sizes or [max(counts, key=lambda n: (counts[n], n))]
    return [
        _ladder(problem, [r for r in everywhere if elements(r) == n], n)
        for n in wanted if n in counts
    ]  # fmt: skip


def _ladder(problem: Problem, records: Sequence[Record], n: int) -> Bars:
    left = len(records) - _MOST
    if left > 0:
        slowest = set(sorted(range(len(records)), key=lambda k: records[k].gb_s or 0.0)[:left])
        records = [r for k, r in enumerate(records) if k not in slowest]
    bars = tuple(
        Bar(short(r), who(r), r.gb_s or 0.0, r.gb_s_low, r.gb_s_high, brief(r), told(r))
        for r in records
    )
    marks = limits("x", problem.device, records)
    notes = ["± and whiskers: 95 % intervals"] if any(bar.low for bar in bars) else []
    if left > 0:
        notes.append(f"the {left} slowest are left out")
    if len(marks) > 1:
        notes.append("ceiling: what a kernel that only reads reached in the same rounds")
    notes += undrawn_notes([r for r in problem.undrawn if elements(r) == n], sizes=False)
    title = f"Bandwidth at n = {size_text(n)}: {problem.title}"
    return Bars(title, Axis("GB/s"), bars, marks, tuple(notes))
