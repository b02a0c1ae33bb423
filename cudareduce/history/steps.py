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

from cudareduce.distributions import student_tail

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
    apart = np.abs(_bridge(part)[at]) / _spread_of_sums(count, at)
    k = int(np.argmax(apart))
    return [int(at[k])], _chance(part, float(apart[k]), len(at))


def _stretch(part: _Array) -> tuple[list[int], float]:
    """The ends of the stretch that differs most from all before and behind it, and how likely that
    is by chance; where there is no room for one, it is certain."""
    count = len(part)
    longest = count - 2 * HOLDS
    lengths = np.arange(_STRETCH, longest + 1)
    if not len(lengths):
        return [], 1.0
    scales = _spread_of_sums(count, lengths)
    sums = _bridge(part)[HOLDS : count - HOLDS + 1]
    furthest, most, ends = float(np.ptp(sums)), -1.0, [0, 0]
    for k in np.argsort(scales, kind="stable"):
        length, scale = int(lengths[k]), float(scales[k])
        if furthest <= most * scale:  # nor can any of those to come be further apart
            break
        apart = np.abs(sums[length:] - sums[: len(sums) - length])
        first = int(np.argmax(apart))
        if apart[first] > most * scale:
            most, ends = float(apart[first]) / scale, [HOLDS + first, HOLDS + first + length]
    return ends, _chance(part, most, int((longest - lengths + 1).sum()))


def _slope(part: _Array) -> float:
    """How likely it is by chance that a straight line through a part rises or falls as it does."""
    count = len(part)
    runs = np.arange(count) - (count - 1) / 2
    scale = (runs**2).sum() ** 0.5
    return _chance(part, abs(float((runs * part).sum() / scale)), 1)


def _bridge(part: _Array) -> _Array:
    """Sums of the first so many values, from none to all, each without its mean."""
    return np.concatenate([[0.0], np.cumsum(part - part.mean())])


def _spread_of_sums(count: int, inside: _Array) -> _Array:
    """How far the sum of so many of all values scatters, in deviations of one."""
    return np.asarray(np.sqrt(inside * (count - inside) / count))


def _chance(part: _Array, apart: float, ways: int) -> float:
    """How likely it is by chance that a part lies so far from a level, in deviations of one value
    but in the unit of the series, in one of so many ways."""
    count = len(part)
    left = ((part - part.mean()) ** 2).sum() - apart**2
    spread = max(left / (count - 2), _FINEST**2 / 12)
    return float(2 * student_tail(apart / spread**0.5, count - 2) * ways)
