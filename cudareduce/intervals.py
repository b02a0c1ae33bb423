"""Confidence intervals of medians, noise, and ratios of matched rounds."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from statistics import quantiles

CONFIDENCE = 0.95
#: The smallest number of rounds with an interval: that of 5 has a confidence of only 94 %.
MIN_ROUNDS = 6

Interval = tuple[float, float]


def interval(values: Sequence[float]) -> Interval | None:
    """A distribution-free 95 % confidence interval of the median; None under six values.

    The interval from the k-th smallest to the k-th largest of n values contains the median with
    probability 1 - 2 P(Binomial(n, 1/2) < k). k is the largest with at least 95 %: of 9 values, the
    2nd and the 8th (96 %). Source: David and Nagaraja, Order Statistics, 7.1.
    """
    n = len(values)
    tail, k = 0.0, 0
    while n and 1 - 2 * (tail + comb(n, k) / 2**n) >= CONFIDENCE:
        tail += comb(n, k) / 2**n
        k += 1
    if k == 0:
        return None
    ordered = sorted(values)
    return ordered[k - 1], ordered[n - k]


def noise_pct(samples: Sequence[float]) -> float | None:
    """The interquartile range of the samples in per cent of their median; None under four
    samples."""
    if len(samples) < 4:
        return None
    low, middle, high = quantiles(samples, n=4)
    return 100 * (high - low) / middle if middle else None


def known(rounds: Sequence[float | None]) -> tuple[float, ...]:
    """The medians of the rounds that were not lost (None)."""
    return tuple([us for us in rounds if us is not None])  # a generator takes twice as long


def paired(old: Sequence[float | None], new: Sequence[float | None]) -> list[float]:
    """The ratio old / new of each round that has both times. A disturbance of a round affects both
    times, so it cancels in the ratio."""
    return [a / b for a, b in zip(old, new, strict=False) if a and b]
