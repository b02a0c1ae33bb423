"""Where a series of runs changes its level, and stays there.

Pure. The series is divided where its two sides differ most for what they scatter (Student's t),
then each side again, as long as what is found is too unlikely by chance. `python -m
tests.gate.change_points` shows what that finds, and how often it is wrong, beside others' ways.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: How likely a step may be by chance, whichever of the places between two runs shows it.
_LEVEL = 1e-3
#: A step must hold for so many runs; fewer than so many together have none.
HOLDS = 2
_FEWEST = 2 * HOLDS + 1
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
        if end - first < _FEWEST:
            continue
        at, chance = _largest(series[first:end])
        if chance < _LEVEL:
            found.append(first + at)
            todo += [(first, first + at), (first + at, end)]
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


def _largest(part: _Array) -> tuple[int, float]:
    """The place at which both sides differ most, and how likely that is by chance."""
    from scipy import stats

    count = len(part)
    at = np.arange(HOLDS, count - HOLDS + 1)
    rest = count - at
    sums = np.cumsum(part)
    before, after = sums[at - 1] / at, (sums[-1] - sums[at - 1]) / rest
    left = (part**2).sum() - at * before**2 - rest * after**2
    spread = np.maximum(left / (count - 2), _FINEST**2 / 12)
    t = np.abs(after - before) / np.sqrt(spread * (1 / at + 1 / rest))
    k = int(np.argmax(t))
    return int(at[k]), float(2 * stats.t.sf(t[k], count - 2) * len(at))
