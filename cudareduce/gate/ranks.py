"""How far times moved, by ranks: what one odd round among them does not shift.

The estimate is that of Hodges and Lehmann (Annals of Mathematical Statistics 34, 1963), its
interval the exact one of Wilcoxon's rank tests, whose distributions are counted here: both suppose
nothing of how rounds scatter but that the two sides do so alike.
"""

from __future__ import annotations

from functools import cache

import numpy as np

_Array = np.ndarray
Estimate = tuple[_Array, _Array, _Array]


def moved(old: _Array, new: _Array, confidence: float) -> Estimate:
    """How far `new` lies above `old`, samples by rows, with the interval's ends: the median of all
    differences."""
    apart = new[:, :, np.newaxis] - old[:, np.newaxis, :]
    size, other = old.shape[1], new.shape[1]
    return _middle(apart.reshape(len(apart), -1), _beyond(_rank_sums(size, other), confidence))


def moved_in_pairs(differences: _Array, confidence: float) -> Estimate:
    """How far the middle of samples of differences lies from 0, by rows: the median of the means of
    all pairs."""
    count = differences.shape[1]
    first, second = np.triu_indices(count)
    means = (differences[:, first] + differences[:, second]) / 2
    return _middle(means, _beyond(_signed_ranks(count), confidence))


def _middle(values: _Array, beyond: int) -> Estimate:
    """Of values by rows the median, and the interval outside of which so many lie on each side; no
    interval is wide enough where there are not even as many."""
    ordered = np.sort(values, axis=1)
    middle = np.median(ordered, axis=1)
    if beyond < 1:
        return middle, np.full(len(values), -np.inf), np.full(len(values), np.inf)
    return middle, ordered[:, beyond - 1], ordered[:, -beyond]


def _beyond(counts: list[int], confidence: float) -> int:
    """Which of the ordered values from either end bounds the interval, by how many arrangements
    give each value of the statistic; 0 where even the outermost is too sure of itself."""
    most = (1 - confidence) / 2 * sum(counts)
    tail, rank = 0, 0
    for count in counts:
        tail += count
        if tail > most:
            break
        rank += 1
    return rank


@cache
def _rank_sums(size: int, other: int) -> list[int]:
    """Of the orders in which two samples can lie, how many have 0, 1, ... pairs with the second
    above the first: coefficients of a Gaussian binomial."""
    last = size * other
    counts = [1] + [0] * last
    for k in range(1, size + 1):
        for u in range(last, other + k - 1, -1):
            counts[u] -= counts[u - other - k]
        for u in range(k, last + 1):
            counts[u] += counts[u - k]
    return counts


@cache
def _signed_ranks(count: int) -> list[int]:
    """Of the ways to give ranks 1 to `count` signs, how many have positive ones that sum up to 0,
    1, ..."""
    last = count * (count + 1) // 2
    counts = [1] + [0] * last
    for rank in range(1, count + 1):
        for total in range(last, rank - 1, -1):
            counts[total] += counts[total - rank]
    return counts
