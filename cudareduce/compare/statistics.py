"""How much times changed, with confidence intervals over rounds.

A sample is the median of a round, not a launch: launches within a round are not independent, and a
test over launches reports a quarter to a half of identical code as changed. Times are compared by
their logarithms, because noise is relative and a change is a ratio.

The interval is Student's t on means (Welch for independent rounds). Where a round is an outlier, it
is that of trimmed means (Yuen, Biometrika 61, 1974), which are worse where rounds fall into two
states of a clock. `python -m tests.compare.rates` compares both.

Rounds that resemble their predecessors say less than independent ones: `autocorrelation` estimates
by how much over all series of a run, and `widened` widens the intervals.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, expm1, log, log1p, sqrt

import numpy as np

from cudareduce.distributions import student_quantile
from cudareduce.machine import EVENT_TICK_US

#: Two-sided, so an interval that excludes no change is a one-sided test at 1 %.
CONFIDENCE = 0.98
#: With fewer rounds there is no verdict.
MIN_ROUNDS = 6
#: A round is an outlier if it lies this many standard deviations, estimated from the median
#: deviation, and at least this share from the median. At most one of this many rounds may be an
#: outlier; more of them are a state of the machine.
_APART, _APART_BY, _ONE_IN = 5.0, 0.01, 8
#: Standard deviation over median absolute deviation of a normal distribution.
_NORMAL = 1.4826
#: The 95 % quantile of the normal distribution, and the half width of an interval of two times nine
#: rounds, in standard errors.
_ONE_SIDED, HALF_WIDTH = 1.645, 2.58
#: Ratios are clipped to exp of this, to avoid overflow.
_FAR = 300.0

Rounds = Sequence[float]
_Array = np.ndarray
#: Shifts, and the low and high ends of their intervals, by rows.
Estimate = tuple[_Array, _Array, _Array]


@dataclass(frozen=True, slots=True)
class Change:
    """New time over old, as a ratio, with its confidence interval. `autocorrelation` is that of the
    rounds of the run where it widened the interval, and `worth` the independent rounds that as many
    are worth."""

    ratio: float
    low: float
    high: float
    autocorrelation: float = 0.0
    worth: float = 0.0

    @property
    def half_width(self) -> float:
        """Half the width of the interval, as a share of the ratio."""
        return sqrt(self.high / self.low) - 1


def changes(pairs: Sequence[tuple[Rounds, Rounds]], *, paired: bool = False) -> list[Change]:
    """The change of each pair of old and new rounds in us, each with at least two rounds. `paired`:
    both sides were measured in the same rounds, so that common changes of a round cancel. Otherwise
    the rounds are independent and may scatter differently (Welch)."""
    results: list[Change | None] = [None] * len(pairs)
    shapes: dict[tuple[int, int], list[int]] = {}
    for k, (old, new) in enumerate(pairs):
        shapes.setdefault((len(old), len(new)), []).append(k)
    for members in shapes.values():
        before = np.log(np.array([pairs[k][0] for k in members], float))
        after = np.log(np.array([pairs[k][1] for k in members], float))
        middle, low, high = _shifts(before, after, paired and before.shape == after.shape)
        still = np.isnan(low) | np.isnan(high)  # rounds without any spread
        low, high = np.where(still, middle, low), np.where(still, middle, high)
        step = EVENT_TICK_US / 2 * (np.exp(-before).mean(axis=1) + np.exp(-after).mean(axis=1))
        ends = np.clip((middle, low - step, high + step), -_FAR, _FAR)
        for k, *values in zip(members, *ends, strict=True):
            results[k] = Change(*(exp(value) for value in values))
    return [change for change in results if change is not None]


def _shifts(old: _Array, new: _Array, paired: bool) -> Estimate:
    """Shifts of logarithms with intervals, by rows; of trimmed means if a round is an outlier."""
    sides = (new - old,) if paired else (old, new)
    outliers = [find_outliers(side).sum(axis=1) for side in sides]
    few = [count <= _trim(side.shape[1]) for side, count in zip(sides, outliers, strict=True)]
    trimmed = np.any(outliers, axis=0) & np.all(few, axis=0)
    shifts = shift_of_means(sides)
    if trimmed.any():
        better = shift_of_means([side[trimmed] for side in sides], trimmed=True)
        for values, replacement in zip(shifts, better, strict=True):
            values[trimmed] = replacement
    return shifts


def _trim(count: int) -> int:
    """The number of values that a trimmed mean of `count` values omits at each end."""
    return max(1, count // _ONE_IN)


def find_outliers(logs: _Array) -> _Array:
    """Marks the outliers of each row."""
    off = np.abs(logs - np.median(logs, axis=1, keepdims=True))
    usual = _NORMAL * np.median(off, axis=1, keepdims=True)
    return np.asarray(off > np.maximum(_APART * usual, _APART_BY))


def shift_of_means(sides: Sequence[_Array], *, trimmed: bool = False) -> Estimate:
    """Differences with Student's interval, by rows: the mean of one side of differences, or that
    of the second less that of the first, with Welch's degrees of freedom."""
    means, errors, freedoms = zip(*(_mean(side, trimmed) for side in sides), strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # rounds without spread give NaN
        if len(sides) == 1:
            shift, error, freedom = means[0], errors[0], np.full(len(means[0]), freedoms[0])
        else:
            shift, error = means[1] - means[0], errors[0] + errors[1]
            parts = zip(errors, freedoms, strict=True)
            freedom = error**2 / sum(part**2 / own for part, own in parts)
        half = np.sqrt(error) * [
            student_quantile((1 - CONFIDENCE) / 2, float(value)) for value in freedom
        ]
    return shift, shift - half, shift + half


def _mean(logs: _Array, trimmed: bool) -> tuple[_Array, _Array, int]:
    """The mean of each row, its squared standard error, and the degrees of freedom. The error of a
    trimmed mean comes from the variance of the winsorized values (Yuen)."""
    count = logs.shape[1]
    if not trimmed:
        return logs.mean(axis=1), logs.var(axis=1, ddof=1) / count, count - 1
    trim, ordered = _trim(count), np.sort(logs, axis=1)
    kept = ordered[:, trim : count - trim]
    winsorized = np.clip(ordered, kept[:, :1], kept[:, -1:])
    left = kept.shape[1]
    error = winsorized.var(axis=1, ddof=1) * (count - 1) / (left * (left - 1))
    return kept.mean(axis=1), error, left - 1


#: The largest lag-1 autocorrelation that is estimated, and the least with which a series alone does
#: not know its scatter.
_MOST_ALIKE, _ALIKE = 0.95, 0.5
#: The 99.9 % quantile of the normal distribution.
_SIGNIFICANT = 3.09


def autocorrelation(series: Sequence[_Array]) -> float:
    """The lag-1 autocorrelation of rounds, pooled over all series of a run, from 0 to 0.95.

    0 unless it is significant at 0.1 %, so that two series do not show one by chance.

    The ratio of the sums of lag-1 products and squares is compared with its expectation for AR(1)
    of the same length, because deviations from the own mean of nine rounds bias it down (Marriott
    and Pope, Biometrika 41, 1954).
    """
    squares, expected, products, variance = 0.0, np.zeros(len(_GRID)), 0.0, 0.0
    for logs in series:
        off = logs - logs.mean()
        own = float(off @ off)
        squares += own
        products += float(off[1:] @ off[:-1])
        expected += own * _expected(len(logs))
        variance += own**2 / len(logs)  # of the products, if rounds are independent
    if products - expected[0] <= _SIGNIFICANT * sqrt(variance):
        return 0.0
    return float(np.interp(products, expected, _GRID))


_GRID = tuple(float(rho) for rho in np.linspace(0, _MOST_ALIKE, 20))


@cache
def _expected(count: int) -> _Array:
    return np.array([_ar1(count, rho)[0] for rho in _GRID])


@cache
def _ar1(count: int, rho: float) -> tuple[float, float, float]:
    """Of `count` rounds of AR(1): the ratio of expected lag-1 products to squares; the variance of
    the mean over the usual estimate s^2/n; and the degrees of freedom of s^2 (Satterthwaite)."""
    at = np.arange(count)
    covariance = rho ** np.abs(at[:, None] - at)
    centred = np.eye(count) - 1 / count
    inner = centred @ covariance @ centred
    squares = float(np.trace(inner))
    lagged = float(np.trace(inner, 1))
    inflation = float(covariance.mean()) / (squares / (count - 1) / count)
    return lagged / squares, inflation, squares**2 / float((inner * inner).sum())


def widened(
    pairs: Sequence[tuple[Rounds, Rounds]], measured_changes: Sequence[Change],
    groups: Sequence[object], *, paired: bool = False,
) -> list[Change]:  # fmt: skip
    """The changes with intervals that allow for autocorrelated rounds; never narrower.

    The variance of a mean is s^2/n times the inflation for AR(1) (1 + 2 sum (1 - k/n) rho^k for the
    mean, with the bias of s^2: Bayley and Hammersley, Supplement to JRSS 8, 1946), with the degrees
    of freedom that s^2 has. From an autocorrelation of 0.5 on, s^2 is at least the mean of its
    `groups`, since rounds that stay in one state of a clock do not show the other.
    """
    sides: list[list[_Array]] = []
    for old, new in pairs:
        logs = [np.log(np.array(rounds, float)) for rounds in (old, new)]
        together = paired and len(old) == len(new)
        sides.append([logs[1] - logs[0]] if together else logs)
    rho = autocorrelation([logs for some in sides for logs in some])
    if not rho:
        return list(measured_changes)
    pooled: dict[object, list[float]] = {}
    for group, some in zip(groups, sides, strict=True):
        pooled.setdefault(group, []).extend(float(logs.var(ddof=1)) for logs in some)
    changed = []
    for change, group, some in zip(measured_changes, groups, sides, strict=True):
        least = float(np.mean(pooled[group])) if rho >= _ALIKE else 0.0
        count, variance, freedom = max(map(len, some)), 0.0, 0.0
        for side in some:
            _, inflation, known = _ar1(len(side), rho)
            variance += inflation * max(float(side.var(ddof=1)), least) / len(side)
            freedom += known
        half = student_quantile((1 - CONFIDENCE) / 2, freedom) * sqrt(variance)
        low = min(log(change.low), log(change.ratio) - half)
        high = max(log(change.high), log(change.ratio) + half)
        low, high = max(low, -_FAR), min(high, _FAR)
        worth = count / _ar1(count, rho)[1]
        changed.append(Change(change.ratio, exp(low), exp(high), rho, worth))
    return changed


#: Degrees of freedom of the scatter from the shortest half, as a share of those of the standard
#: deviation: 0.37 for many values (that of the median deviation), less for few.
SHORTEST_HALF_EFFICIENCY = 0.3


def shortest_half(values: Sequence[float]) -> tuple[float, float]:
    """The middle of the shortest interval that holds more than half of the values, and the standard
    deviation of a normal distribution with such a half (Rousseeuw and Leroy, Robust Regression and
    Outlier Detection, 1987). The other values have no influence."""
    ordered = np.sort(values)
    held = len(ordered) // 2 + 1
    first, last = ordered[: len(ordered) - held + 1], ordered[held - 1 :]
    k = int(np.argmin(last - first))
    return float(first[k] + last[k]) / 2, _NORMAL * float(last[k] - first[k]) / 2


def detectable_slowdown(half_width: float, threshold: float) -> float:
    """The smallest relative slowdown that is detected with 95 % probability by intervals of this
    half width: the estimate must exceed the threshold and the interval exclude no change."""
    half = log1p(half_width)
    return expm1(max(log1p(threshold), half) + _ONE_SIDED * half / HALF_WIDTH)
