"""Of many curves those that are told apart; the others are context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cudareduce.plot.figure import Curve

#: As many curves as can be told apart, and how many of them are kernels where there are libraries.
_STRONG, _KERNELS = 7, 4


def strongest(curves: Sequence[Curve]) -> set[str]:
    """The names of those that come closest to the highest over all places, of a library only its
    best way."""
    best: dict[float, float] = {}
    for p in (p for curve in curves for p in curve.points):
        best[p.x] = max(p.y, best.get(p.x, 0.0))

    def share(curve: Curve) -> float:
        return sum(p.y / best[p.x] for p in curve.points if best[p.x])

    ranked = sorted(curves, key=share, reverse=True)
    if len(ranked) <= _STRONG + 1:
        return {curve.name for curve in ranked}
    kernels = [curve.name for curve in ranked if curve.who == "kernel"]
    libraries: dict[str, str] = {}
    for curve in ranked:
        if curve.who == "library":
            libraries.setdefault(curve.name.partition(":")[0], curve.name)
    kept = kernels[:_KERNELS] if libraries else kernels
    return set([*kept, *libraries.values()][:_STRONG])


def faded(curves: Sequence[Curve], strong: set[str]) -> tuple[Curve, ...]:
    """The same, all but the strong ones as context."""
    return tuple(replace(curve, strong=curve.name in strong) for curve in curves)


def faint_notes(curves: Sequence[Curve]) -> tuple[str, ...]:
    """What is said of those without a name, if there are any."""
    faint = sum(not curve.strong for curve in curves)
    return (f"in grey, without a name: {faint} more",) * bool(faint)
