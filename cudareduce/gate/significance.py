"""How much times changed and how sure that is: intervals over rounds.

The unit is the round, a median of many launches: launches within one are not independent, and a
test over them flags a quarter to a half of identical code as changed. Logarithms, because noise is
relative and a change is a ratio.

Two ways to an interval, and a rule between them (`python -m tests.gate.rates` shows why): means and
Student's t, which are the better ones where rounds fall into two states of a clock; and
ranks, where a round stands apart from all others, which would widen the former beyond use.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, expm1, log1p, sqrt

import numpy as np

from cudareduce.distributions import student_quantile
from cudareduce.gate.ranks import Estimate, moved, moved_in_pairs
from cudareduce.machine.device import EVENT_TICK_US

#: Two-sided, so that an interval that excludes "no change" is a one-sided test at 1 %.
CONFIDENCE = 0.98
#: Fewer rounds than this decide nothing.
MIN_ROUNDS = 6
#: A round stands apart that lies so many deviations from the median, by the median deviation of
#: all, and at least so far, as a share; one in so many may. More are a state of the machine.
_APART, _APART_BY, _ONE_IN = 5.0, 0.01, 8
#: What makes a median of deviations a standard deviation, of normal ones.
_NORMAL = 1.4826
#: Deviations that 95 in 100 normal values stay below, and those of which a half width is made, with
#: nine rounds a side.
_ONE_SIDED, _HALF_WIDTH = 1.645, 2.58
#: Logarithms of ratios end here: what is farther apart is no measurement, and has no exponential.
_FAR = 300.0

Rounds = Sequence[float]
_Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Change:
    """New over old, as a ratio, with its interval."""

    ratio: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """What is left in doubt, as a share."""
        return sqrt(self.high / self.low) - 1


def changes(pairs: Sequence[tuple[Rounds, Rounds]], *, paired: bool = False) -> list[Change]:
    """The change of each pair of old and new rounds, in us, all with at least two rounds a side.

    `paired`: both were measured in the same rounds, so what moves a round moves both and cancels;
    else the rounds are independent and their spreads may differ (Welch).
    """
    found: list[Change | None] = [None] * len(pairs)
    shapes: dict[tuple[int, int], list[int]] = {}
    for k, (old, new) in enumerate(pairs):
        shapes.setdefault((len(old), len(new)), []).append(k)
    for members in shapes.values():
        before = np.log(np.array([pairs[k][0] for k in members], float))
        after = np.log(np.array([pairs[k][1] for k in members], float))
        middle, low, high = _moved(before, after, paired and before.shape == after.shape)
        still = np.isnan(low) | np.isnan(high)  # rounds without any spread
        low, high = np.where(still, middle, low), np.where(still, middle, high)
        step = EVENT_TICK_US / 2 * (np.exp(-before).mean(axis=1) + np.exp(-after).mean(axis=1))
        ends = np.clip((middle, low - step, high + step), -_FAR, _FAR)
        for k, *values in zip(members, *ends, strict=True):
            found[k] = Change(*(exp(value) for value in values))
    return [change for change in found if change is not None]


def _moved(old: _Array, new: _Array, paired: bool) -> Estimate:
    """How far logarithms moved, by rows, and the interval: by ranks where a round stands apart."""
    low, high = _by_means(old, new, paired)
    found = new.mean(axis=1) - old.mean(axis=1), low, high
    sides = (new - old,) if paired else (old, new)
    odd = [stands_apart(side).sum(axis=1) for side in sides]
    few = [
        count <= max(1, side.shape[1] // _ONE_IN) for side, count in zip(sides, odd, strict=True)
    ]
    ranked = np.any(odd, axis=0) & np.all(few, axis=0)
    if ranked.any():
        by_ranks = (
            moved_in_pairs((new - old)[ranked], CONFIDENCE) if paired
            else moved(old[ranked], new[ranked], CONFIDENCE)
        )  # fmt: skip
        for values, better in zip(found, by_ranks, strict=True):
            values[ranked] = better
    return found


def stands_apart(logs: _Array) -> _Array:
    """Which values lie apart from all others of their row."""
    off = np.abs(logs - np.median(logs, axis=1, keepdims=True))
    usual = _NORMAL * np.median(off, axis=1, keepdims=True)
    return np.asarray(off > np.maximum(_APART * usual, _APART_BY))


def _by_means(old: _Array, new: _Array, paired: bool) -> tuple[_Array, _Array]:
    """Student's interval for the mean difference of pairs, else Welch's for the difference of
    means."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # rounds without spread give NaN, as said
        if paired:
            errors = _squared_error(new - old)
            freedom = np.full(len(old), old.shape[1] - 1.0)
        else:
            parts = [_squared_error(logs) for logs in (new, old)]
            errors = parts[0] + parts[1]
            freedom = errors**2 / sum(
                part**2 / (logs.shape[1] - 1) for part, logs in zip(parts, (new, old), strict=True)
            )
        quantiles = [student_quantile((1 - CONFIDENCE) / 2, float(value)) for value in freedom]
        half = np.sqrt(errors) * quantiles
        apart = new.mean(axis=1) - old.mean(axis=1)
    return apart - half, apart + half


def _squared_error(logs: _Array) -> _Array:
    """That of the mean of each row."""
    return np.asarray(logs.var(axis=1, ddof=1) / logs.shape[1])


def found_from(half_width: float, threshold: float) -> float:
    """From which slowdown on, as a share, 95 in 100 are found by intervals of this half width: its
    estimate must lie beyond the threshold, and all of its interval beyond no change."""
    half = log1p(half_width)
    return expm1(max(log1p(threshold), half) + _ONE_SIDED * half / _HALF_WIDTH)
