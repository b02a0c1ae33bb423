"""What a set of measurements says of their median, and how sure of it one may be."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from statistics import quantiles

CONFIDENCE = 0.95
#: Fewer rounds give no interval: the extremes of 5 hold the median with 94 % only.
MIN_ROUNDS = 6

Interval = tuple[float, float]


def interval(values: Sequence[float]) -> Interval | None:
    """A distribution-free interval for a median, from the order of the values.

    The k-th smallest and k-th largest of n hold the median with 1 - 2 P(Binomial(n, 1/2) < k); the
    largest k that keeps 95 % is taken: the 2nd and the 8th of 9 (96 %). None under six values.
    Source: David and Nagaraja, Order Statistics, 7.1.
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
    """The medians of those rounds that have one."""
    return tuple([us for us in rounds if us is not None])  # a generator takes twice as long


def paired(old: Sequence[float | None], new: Sequence[float | None]) -> list[float]:
    """Old over new, in each round that has both: what moves a round moves both, and cancels."""
    return [a / b for a, b in zip(old, new, strict=False) if a and b]
