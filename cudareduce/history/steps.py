"""Where a series of runs changes its level, and stays there.

Pure. The series is divided where its two sides differ most for what they scatter (Student's t), or
around the stretch that differs most from the rest, where what came has gone again, or in its
middle, where it does nothing but rise or fall; then each part, as long as what is found is too
unlikely by chance. `python -m tests.gate.change_points` shows what
that finds, and how often it is wrong, beside others' ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

#: How likely a step may be by chance, whichever of the places between two runs shows it.
_LEVEL = 1e-3
#: A step must hold for so many runs; fewer than so many together have none.
HOLDS = 2
#: What has come and gone must have held for longer: two odd runs are no level.
_STRETCH = 4
#: And must be so much less likely by chance: it has two ends to choose.
_SURER = 10
FEWEST = 2 * HOLDS + 1
#: A run is left out that lies so many deviations from both its neighbours.
_APART = 4.0
#: What makes a median of deviations a standard deviation, of normal ones; and the finest scatter
#: that times have, as a share: they come in steps.
_NORMAL, _FINEST = 1.4826, 3e-4

_Array = np.ndarray


def steps(logs: Sequence[float]) -> list[int]:
    """Where new levels begin, of logarithms of times in the order of the runs. What a single run
    shows is none: it takes the place of its neighbours."""
    series = _without_odd_runs(np.asarray(logs, float))
    found: list[int] = []
    todo = [(0, len(series))]
    while todo:
        first, end = todo.pop()
        if end - first < FEWEST:
            continue
        part = series[first:end]
        cuts, chance = _step(part)
        if chance >= _LEVEL:
            cuts, chance = _stretch(part)
            chance *= _SURER
        if chance >= _LEVEL:
            cuts, chance = [len(part) // 2], _slope(part)
        if chance < _LEVEL:
            places = [first, *(first + at for at in cuts), end]
            found += places[1:-1]
            todo += pairwise(places)
    return sorted(found)


def _without_odd_runs(series: _Array) -> _Array:
    """The series with the middle of three in the place of each run that stands alone."""
    if len(series) < 3:
        return series
    threes = np.lib.stride_tricks.sliding_window_view(series, 3)
    middle = np.median(threes, axis=1)
    middle = np.concatenate([middle[:1], middle, middle[-1:]])
    scatter = max(_NORMAL * float(np.median(np.abs(np.diff(series)))) / 2**0.5, _FINEST)
    return np.asarray(np.where(np.abs(series - middle) > _APART * scatter, middle, series))


def _step(part: _Array) -> tuple[list[int], float]:
    """The place at which both sides differ most, and how likely that is by chance."""
    count = len(part)
    at = np.arange(HOLDS, count - HOLDS + 1)
    k, chance = _furthest(part, at, np.cumsum(part)[at - 1])
    return [int(at[k])], chance


def _stretch(part: _Array) -> tuple[list[int], float]:
    """The ends of the stretch that differs most from all before and behind it, and how likely that
    is by chance; where there is no room for one, it is certain."""
    count, sums = len(part), np.concatenate([[0.0], np.cumsum(part)])
    first, end = np.triu_indices(count + 1, _STRETCH)
    inside = (first >= HOLDS) & (end <= count - HOLDS)
    first, end = first[inside], end[inside]
    if not len(first):
        return [], 1.0
    k, chance = _furthest(part, end - first, sums[end] - sums[first])
    return [int(first[k]), int(end[k])], chance


def _slope(part: _Array) -> float:
    """How likely it is by chance that a straight line through a part rises or falls as it does."""
    from scipy import stats

    count = len(part)
    runs = np.arange(count) - (count - 1) / 2
    slope = (runs * part).sum() / (runs**2).sum()
    left = ((part - part.mean() - slope * runs) ** 2).sum()
    spread = max(left / (count - 2), _FINEST**2 / 12)
    t = abs(slope) * (runs**2).sum() ** 0.5 / spread**0.5
    return float(2 * stats.t.sf(t, count - 2))


def _furthest(part: _Array, inside: _Array, sums: _Array) -> tuple[int, float]:
    """Of ways to take so many values with these sums out of a series, the one that differs most
    from what it leaves, and how likely that is, whichever of them it is."""
    from scipy import stats

    count, total = len(part), part.sum()
    rest = count - inside
    one, other = sums / inside, (total - sums) / rest
    left = (part**2).sum() - inside * one**2 - rest * other**2
    spread = np.maximum(left / (count - 2), _FINEST**2 / 12)
    t = np.abs(one - other) / np.sqrt(spread * (1 / inside + 1 / rest))
    k = int(np.argmax(t))
    return k, float(2 * stats.t.sf(t[k], count - 2) * len(t))
