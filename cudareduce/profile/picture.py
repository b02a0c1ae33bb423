"""A profile as a picture: how near each unit comes to its speed of light, and the roofline."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from cudareduce.errors import UsageError
from cudareduce.plot.figure import Axis, Bar, Bars, Curve, Figure, Limit, Lines, Mark, Point
from cudareduce.profile.lines import Values
from cudareduce.profile.profiles import Profile
from cudareduce.report.numbers import plain_text

_UNITS = {"dram_pct": "DRAM", "l2_pct": "L2", "memory_pct": "memory system", "sm_pct": "SMs"}
#: What a point of the roofline is made of.
_ROOFLINE = ("read", "time_ns", "dram_bytes_a_cycle", "dram_cycles_a_s")
#: How far the roof goes beyond the outermost kernels.
_BESIDE = 4.0


def pictures(profiles: Sequence[Profile], elements: int, what: str) -> list[Figure]:
    """What can be drawn of these kernels, each of which reduces so many elements. Nothing is a
    UsageError."""
    counted = [profile for profile in profiles if not profile.static and not profile.reason]
    drawn = _speed_of_light(counted, what), _roofline(counted, elements, what)
    found: list[Figure] = [figure for figure in drawn if figure is not None]
    if not found:
        raise UsageError("there is nothing to draw: this ncu knows too few of the metrics")
    return found


def _speed_of_light(profiles: Sequence[Profile], what: str) -> Bars | None:
    bars = tuple(
        Bar(
            profile.kernel.id, "kernel", share, None, None, f"{name} {share:.0f} %",
            f"{profile.kernel.id}: {name} at {share:.0f} % of its peak", name,
        )
        for profile in profiles for key, name in _UNITS.items()
        if (share := profile.values.get(key)) is not None
    )  # fmt: skip
    peak = (Mark("x", 100.0, "peak"),)
    return Bars(f"Speed of light: {what}", Axis("% of peak"), bars, peak) if bars else None


def _roofline(profiles: Sequence[Profile], elements: int, what: str) -> Lines | None:
    """Elements combined a second, in 10^9, over elements combined a byte of DRAM."""
    known = [p for p in profiles if all(p.values.get(name) for name in _ROOFLINE)]
    if not known:
        return None
    curves = tuple(_point(profile, elements) for profile in known)
    gb_s, adds = (max(roof) for roof in zip(*(_roof(p.values) for p in known), strict=True))
    notes = ["on the roof nothing but fewer bytes helps; below it, something else takes time"]
    if adds < inf:
        notes.append(f"the roof is level where it adds {plain_text(adds)} x 10^9 float32 a second")
    places = [curve.points[0].x for curve in curves]
    first, last = min(places) / _BESIDE, max(places) * _BESIDE
    if adds < inf:
        last = max(last, _BESIDE * adds / gb_s)
    roof = tuple((x, min(x * gb_s, adds)) for x in sorted({first, min(last, adds / gb_s), last}))
    return Lines(
        f"Roofline: {what}", Axis("elements a byte of DRAM", "log10"),
        Axis("10^9 elements a second", "log10"), curves,
        limit=Limit(f"DRAM, {plain_text(gb_s)} GB/s", roof), notes=tuple(notes),
    )  # fmt: skip


def _point(profile: Profile, elements: int) -> Curve:
    v = profile.values
    x, y = elements / (v["read"] + v.get("written", 0.0)), elements / v["time_ns"]
    told = f"{profile.kernel.id}: {plain_text(y)} x 10^9 elements a second, {plain_text(x)} a byte"
    return Curve(profile.kernel.id, "kernel", (Point(x, y, None, None, told),))


def _roof(v: Values) -> tuple[float, float]:
    """GB/s of DRAM and 10^9 additions a second, at the clocks of this launch; without
    end where they are not known."""
    gb_s = v["dram_bytes_a_cycle"] * v["dram_cycles_a_s"] / 1e9
    return gb_s, v.get("adds_a_cycle", 0.0) * v.get("sm_cycles_a_s", 0.0) / 1e9 or inf
