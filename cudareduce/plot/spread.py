"""Labels beside each other that would stand on top of each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places at least `gap` apart, in the same order, as near as may be to where they were and
    between two ends where there is room for that."""
    order = sorted(range(len(places)), key=lambda k: places[k])
    moved = list(places)
    for before, k in pairwise(order):
        moved[k] = max(moved[k], moved[before] + gap)
    top = high
    for k in reversed(order):
        moved[k] = min(moved[k], top)
        top = moved[k] - gap
    bottom = low
    for k in order:
        moved[k] = max(moved[k], bottom)
        bottom = moved[k] + gap
    return moved
