"""A kernel's times over the runs of a history, and the change points in them.

Times from other cards of the same model are scaled to the card of the last run by the ceilings of
a read-only kernel: by the median ceiling of each card, so that the noise of one run's ceiling is
not added.

Change points: a series is split where the means of its two sides differ most in units of its
scatter (Student's t), or around the stretch that differs most from the rest, or in its middle if it
only rises or falls; then each part again, as long as the split is too unlikely by chance.
`python -m tests.compare.change_points` measures the power and the false positives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log, log1p
from statistics import median
from typing import Literal

import numpy as np

from cudareduce.compare.baseline import Identity, identity, problem
from cudareduce.compare.history_store import Entry
from cudareduce.compare.verdicts import launched_code
from cudareduce.distributions import student_tail
from cudareduce.results.record import Record

Verdict = Literal["SLOWER", "MACHINE", "SAME"]
#: How far a level may lie above the best one by default, as a share.
THRESHOLD = 0.02


@dataclass(frozen=True, slots=True)
class Point:
    """One run of a series; `us` is scaled to the card of the last run."""

    entry: Entry
    record: Record
    us: float


@dataclass(frozen=True, slots=True)
class Level:
    """Successive runs without a change point, from `first` up to `end`, exclusive, and their median
    time in us."""

    first: int
    end: int
    us: float


@dataclass(frozen=True, slots=True)
class Series:
    """One kernel and problem over time. `cards` counts the cards it ran on, `omitted` the runs of
    another card that have no ceiling to scale by."""

    points: tuple[Point, ...]
    levels: tuple[Level, ...]
    cards: int = 1
    omitted: int = 0

    @property
    def record(self) -> Record:
        return self.points[-1].record

    @property
    def last(self) -> Level:
        return self.levels[-1]

    @property
    def best(self) -> Level:
        """The lowest level of at least two runs."""
        held = [level for level in self.levels if level.end - level.first >= HOLDS]
        return min(held or self.levels, key=lambda level: level.us)

    @property
    def change(self) -> float:
        """The current level over the best one, as a ratio."""
        return self.last.us / self.best.us

    def verdict(self, threshold: float) -> Verdict:
        """SLOWER if the current level is above the best one by more than the threshold, a share;
        MACHINE if the same machine code ran at the best level."""
        if log(self.change) <= log1p(threshold):
            return "SAME"
        codes = {
            launched_code(point.record) for point in self.points[self.best.first : self.best.end]
        }
        return "MACHINE" if launched_code(self.record) in codes - {None} else "SLOWER"


def all_series(entries: Sequence[Entry]) -> list[Series]:
    """All series in the runs of one kind of machine, in order of first appearance."""
    by_problem: dict[Identity, list[tuple[Entry, Record]]] = {}
    for entry in entries:
        counts = Counter(map(problem, entry.records))
        for record in entry.records:
            # A new default launch shape continues the series, unless a run has several of a kernel.
            key = identity(record) if counts[problem(record)] > 1 else problem(record)
            by_problem.setdefault(key, []).append((entry, record))
    all_curves = (_series(some) for some in by_problem.values())
    return [series for series in all_curves if series.points]


def _series(runs: Sequence[tuple[Entry, Record]]) -> Series:
    by_card: dict[str | None, list[float]] = {}
    for entry, record in runs:
        if record.bound_gb_s:
            by_card.setdefault(entry.device.uuid, []).append(record.bound_gb_s)
    ceilings = {card: median(some) for card, some in by_card.items()}
    here = runs[-1][0].device.uuid
    points = []
    for entry, record in runs:
        assert record.time_us is not None
        card = entry.device.uuid
        if card == here:
            points.append(Point(entry, record, record.time_us))
        elif card in ceilings and here in ceilings:
            points.append(Point(entry, record, record.time_us * ceilings[card] / ceilings[here]))
    cards = len({point.entry.device.uuid for point in points})
    us = [point.us for point in points]
    ends = [0, *change_points([log(time) for time in us]), len(us)]
    levels = tuple(Level(first, end, median(us[first:end])) for first, end in pairwise(ends) if us)
    return Series(tuple(points), levels, cards, len(runs) - len(points))


#: The significance level of a change point, corrected for the number of candidate positions.
_LEVEL = 1e-3
#: The least number of runs of a level.
HOLDS = 2
#: The least number of runs between two change points that are found together (two outliers are not
#: a level), and the divisor of the significance level, since both ends are selected.
_STRETCH, _STRETCH_PENALTY = 4, 10
#: The least number of runs that can have a change point.
FEWEST = 2 * HOLDS + 1
#: A run is an outlier if it deviates from both neighbours by this many standard deviations.
_OUTLIER = 4.0
#: Standard deviation over median absolute deviation of a normal distribution; and the least
#: relative scatter of times, since the event timer has a finite resolution.
_NORMAL, _FINEST = 1.4826, 3e-4

_Array = np.ndarray


def change_points(logs: Sequence[float]) -> list[int]:
    """The change points of a series of logarithms of times: the runs at which new levels begin."""
    series = _without_outliers(np.asarray(logs, float))
    points: list[int] = []
    todo = [(0, len(series))]
    while todo:
        first, end = todo.pop()
        if end - first < FEWEST:
            continue
        part = series[first:end]
        cuts, chance = _step_change(part)
        if chance >= _LEVEL:
            cuts, chance = _segment_change(part)
            chance *= _STRETCH_PENALTY
        if chance >= _LEVEL:
            cuts, chance = [len(part) // 2], _trend_p_value(part)
        if chance < _LEVEL:
            bounds = [first, *(first + at for at in cuts), end]
            points += bounds[1:-1]
            todo += pairwise(bounds)
    return sorted(points)


def _without_outliers(series: _Array) -> _Array:
    """The series with single outliers replaced by the median of the run and its neighbours."""
    if len(series) < 3:
        return series
    threes = np.lib.stride_tricks.sliding_window_view(series, 3)
    middle = np.median(threes, axis=1)
    middle = np.concatenate([middle[:1], middle, middle[-1:]])
    scatter = max(_NORMAL * float(np.median(np.abs(np.diff(series)))) / 2**0.5, _FINEST)
    return np.asarray(np.where(np.abs(series - middle) > _OUTLIER * scatter, middle, series))


def _step_change(part: _Array) -> tuple[list[int], float]:
    """The split with the largest difference between its sides, and its p-value."""
    count = len(part)
    at = np.arange(HOLDS, count - HOLDS + 1)
    contrast = np.abs(_cumulative_deviations(part)[at]) / _spread_of_sums(count, at)
    k = int(np.argmax(contrast))
    return [int(at[k])], _p_value(part, float(contrast[k]), len(at))


def _segment_change(part: _Array) -> tuple[list[int], float]:
    """The segment that differs most from the runs before and after it, and its p-value; 1 if there
    are too few runs."""
    count = len(part)
    longest = count - 2 * HOLDS
    lengths = np.arange(_STRETCH, longest + 1)
    if not len(lengths):
        return [], 1.0
    scales = _spread_of_sums(count, lengths)
    sums = _cumulative_deviations(part)[HOLDS : count - HOLDS + 1]
    furthest, most, ends = float(np.ptp(sums)), -1.0, [0, 0]
    for k in np.argsort(scales, kind="stable"):
        length, scale = int(lengths[k]), float(scales[k])
        if furthest <= most * scale:  # no longer scale can exceed it
            break
        contrast = np.abs(sums[length:] - sums[: len(sums) - length])
        first = int(np.argmax(contrast))
        if contrast[first] > most * scale:
            most, ends = float(contrast[first]) / scale, [HOLDS + first, HOLDS + first + length]
    return ends, _p_value(part, most, int((longest - lengths + 1).sum()))


def _trend_p_value(part: _Array) -> float:
    """The p-value of the slope of a straight line through the part: a gradual regression."""
    count = len(part)
    runs = np.arange(count) - (count - 1) / 2
    scale = (runs**2).sum() ** 0.5
    return _p_value(part, abs(float((runs * part).sum() / scale)), 1)


def _cumulative_deviations(part: _Array) -> _Array:
    """Cumulative sums of the deviations from the mean, from 0."""
    return np.concatenate([[0.0], np.cumsum(part - part.mean())])


def _spread_of_sums(count: int, inside: _Array) -> _Array:
    """Standard deviation of `_cumulative_deviations` after `inside` of `count` values, in units of
    one value's."""
    return np.asarray(np.sqrt(inside * (count - inside) / count))


def _p_value(part: _Array, contrast: float, candidates: int) -> float:
    """The p-value of the largest of `candidates` contrasts, `contrast`, in units of the standard
    deviation of one value (Bonferroni)."""
    count = len(part)
    left = ((part - part.mean()) ** 2).sum() - contrast**2
    spread = max(left / (count - 2), _FINEST**2 / 12)
    return float(2 * student_tail(contrast / spread**0.5, count - 2) * candidates)
