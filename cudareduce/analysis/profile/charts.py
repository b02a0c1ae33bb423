"""Charts of a profile: the utilization of each unit, and a roofline."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from cudareduce.analysis.profile.lines import Profile, Values
from cudareduce.errors import UsageError
from cudareduce.report.numbers import plain_text
from cudareduce.report.plot.figure import Axis, Bar, Bars, Figure, Lines, Point, Reference, Series

_UNITS = {"dram_pct": "DRAM", "l2_pct": "L2", "memory_pct": "memory system", "sm_pct": "SMs"}
#: The metrics that a point of the roofline needs.
_ROOFLINE = ("read", "time_ns", "dram_bytes_a_cycle", "dram_cycles_a_s")
#: Factor by which the roof extends beyond the outermost kernels.
_MARGIN = 4.0


def charts(profiles: Sequence[Profile], elements: int, what: str) -> list[Figure]:
    """The charts of kernels that reduce `elements` each. Raises UsageError if ncu measured too few
    metrics."""
    measured = [profile for profile in profiles if not profile.static and not profile.reason]
    figures = [*_utilization(measured, what), *_roofline(measured, elements, what)]
    if not figures:
        raise UsageError("there is nothing to draw: this ncu knows too few of the metrics")
    return figures


def _utilization(profiles: Sequence[Profile], what: str) -> list[Figure]:
    bars = tuple(
        Bar(
            profile.kernel.id, share, None, None, f"{share:.0f} %",
            f"{profile.kernel.id}: {name} at {share:.0f} % of its peak", group=name,
        )
        for profile in profiles for key, name in _UNITS.items()
        if (share := profile.values.get(key)) is not None
    )  # fmt: skip
    peak = (Reference("x", 100.0, "peak"),)
    return [Bars(f"Speed of light: {what}", Axis("share of the peak (%)"), bars, peak)] * bool(bars)


def _roofline(profiles: Sequence[Profile], elements: int, what: str) -> list[Figure]:
    """Elements per second over elements per byte of DRAM traffic."""
    known = [p for p in profiles if all(p.values.get(name) for name in _ROOFLINE)]
    if not known:
        return []
    series = tuple(_point(profile, elements) for profile in known)
    gb_s, adds = (max(roof) for roof in zip(*(_roof(p.values) for p in known), strict=True))
    notes = ["on the roof: only fewer bytes make a kernel faster; below it: something else limits"]
    if adds < inf:
        notes.append(f"the level part: {plain_text(adds)} x 10^9 additions of float32 a second")
    xs = [each.points[0].x for each in series]
    first, last = min(xs) / _MARGIN, max(xs) * _MARGIN
    if adds < inf:
        last = max(last, _MARGIN * adds / gb_s)
    roof = tuple(
        Point(x, min(x * gb_s, adds), None, None, "")
        for x in sorted({first, min(last, adds / gb_s), last})
    )
    return [
        Lines(
            f"Roofline: {what}", Axis("elements per byte of DRAM", "log10"),
            Axis("10^9 elements per second", "log10"),
            (Series(f"DRAM, {plain_text(gb_s)} GB/s", roof, "limit"), *series), (), tuple(notes),
        )
    ]  # fmt: skip


def _point(profile: Profile, elements: int) -> Series:
    v = profile.values
    x, y = elements / (v["read"] + v.get("written", 0.0)), elements / v["time_ns"]
    text = f"{plain_text(y)} x 10^9 elements a second, {plain_text(x)} per byte"
    return Series(profile.kernel.id, (Point(x, y, None, None, f"{profile.kernel.id}: {text}"),))


def _roof(v: Values) -> tuple[float, float]:
    """Peak DRAM bandwidth in GB/s and peak rate of 10^9 additions per second at the clocks of this
    launch; infinity if unknown."""
    gb_s = v["dram_bytes_a_cycle"] * v["dram_cycles_a_s"] / 1e9
    return gb_s, v.get("adds_a_cycle", 0.0) * v.get("sm_cycles_a_s", 0.0) / 1e9 or inf
