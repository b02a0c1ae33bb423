"""Several GPUs beside each other, each in per cent of what a read-only kernel reaches on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cudareduce.plot.chosen import Problem, elements, short, who
from cudareduce.plot.figure import Axis, Bar, Bars, Mark
from cudareduce.plot.over_sizes import told
from cudareduce.report.columns import COLUMNS
from cudareduce.report.numbers import size_text
from cudareduce.results.record import Record


def gpus(problems: Sequence[Problem], sizes: Sequence[int] = ()) -> list[Bars]:
    """A picture for each reduction that several devices have, at the sizes asked for, else at the
    one with most kernels in common, then the largest."""
    groups: dict[tuple[object, ...], list[Problem]] = {}
    for p in problems:
        r = p.records[0]
        key = r.reduced, r.dtype, r.acc, r.rows == 1, r.timing, r.region
        groups.setdefault(key, []).append(p)
    return [bars for group in groups.values() for bars in _beside(group, sizes)]


def _beside(group: Sequence[Problem], sizes: Sequence[int]) -> list[Bars]:
    found = {  # the last one counts where files of one device hold it twice
        (p.device.name, short(r), r.n, r.rows): r
        for p in group for r in p.records if r.pct_ceiling is not None and r.sms is None
    }  # fmt: skip
    devices = Counter(key[1:] for key in found)
    common = [(key[0], r) for key, r in found.items() if devices[key[1:]] > 1]
    counts = Counter(elements(r) for _, r in common)
    if not counts:
        return []
    wanted = sizes or [max(counts, key=lambda n: (counts[n], n))]
    return [
        _at(group[0], [(d, r) for d, r in common if elements(r) == n], n)
        for n in wanted if n in counts
    ]  # fmt: skip


def _at(problem: Problem, records: Sequence[tuple[str, Record]], n: int) -> Bars:
    order = {name: k for k, name in enumerate(dict.fromkeys(short(r) for _, r in records))}
    ordered = sorted(records, key=lambda found: order[short(found[1])])
    bars = tuple(_bar(device, r) for device, r in ordered)
    title = problem.title.removesuffix(f", {problem.device.name}")
    return Bars(
        f"Share of each GPU's ceiling at n = {size_text(n)}: {title}", Axis("% of the ceiling"),
        bars, (Mark("x", 100.0, "ceiling"),),
        ("ceiling: what a kernel that only reads reached on the same card in the same rounds",),
    )  # fmt: skip


def _bar(device: str, r: Record) -> Bar:
    """The interval is that of the bandwidth, of which the share is made."""
    share = r.pct_ceiling or 0.0
    scale = share / r.gb_s if r.gb_s else 0.0
    ends = [None if end is None else end * scale for end in (r.gb_s_low, r.gb_s_high)]
    brief = f"{COLUMNS['ceiling'].cell(r)} %, {device}"
    return Bar(short(r), who(r), share, ends[0], ends[1], brief, f"{device}: {told(r)}", device)
