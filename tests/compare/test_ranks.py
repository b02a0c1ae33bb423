"""Estimates by ranks: beside SciPy's tests, which they invert, and beside what they promise."""

from __future__ import annotations

import numpy as np
import pytest

from cudareduce.compare.statistics import changes, paired_shift_by_ranks, shift_by_ranks


@pytest.mark.parametrize(("size", "other"), [(6, 6), (9, 9), (9, 18), (7, 30)])
def test_an_interval_ends_where_the_rank_test_would_reject(size: int, other: int) -> None:
    from scipy import stats  # here: it takes long to load

    rng = np.random.default_rng(size * other)
    old, new = rng.normal(0, 1, (1, size)), rng.normal(0.5, 1, (1, other))
    middle, low, high = shift_by_ranks(old, new, 0.98)
    assert middle[0] == np.median(new[0][:, np.newaxis] - old[0])
    for end, inwards in ((low[0], 1e-9), (high[0], -1e-9)):
        inside, outside = (
            stats.mannwhitneyu(new[0] - end - step, old[0], method="exact").pvalue
            for step in (inwards, -inwards)
        )
        assert outside <= 0.02 < inside


@pytest.mark.parametrize("count", [8, 9, 20])
def test_pairs_too(count: int) -> None:
    from scipy import stats

    rng = np.random.default_rng(count)
    differences = rng.normal(0.3, 1, (1, count))
    _, low, high = paired_shift_by_ranks(differences, 0.98)
    for end, inwards in ((low[0], 1e-9), (high[0], -1e-9)):
        inside, outside = (
            stats.wilcoxon(differences[0] - end - step, method="exact").pvalue
            for step in (inwards, -inwards)
        )
        assert outside <= 0.02 < inside


def test_too_few_pairs_have_no_interval() -> None:
    _, low, high = paired_shift_by_ranks(np.zeros((1, 6)), 0.98)
    assert (low[0], high[0]) == (-np.inf, np.inf)


def test_it_holds_what_it_should_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    old, new = rng.standard_t(2, (4000, 9)), rng.standard_t(2, (4000, 9))
    _, low, high = shift_by_ranks(old, new, 0.98)
    assert 0.98 <= ((low <= 0) & (high >= 0)).mean() < 0.99


@pytest.mark.parametrize("paired", [False, True])
def test_one_odd_round_does_not_hide_a_change(paired: bool) -> None:
    rng = np.random.default_rng(2)
    old = 40 * np.exp(rng.normal(0, 0.003, 9))
    new = 1.1 * 40 * np.exp(rng.normal(0, 0.003, 9))
    new[4] *= 1.3
    [change] = changes([(tuple(old), tuple(new))], paired=paired)
    assert 1.09 < change.low < 1.1 < change.high
    assert change.ratio == pytest.approx(1.1, rel=0.003)
    assert paired or change.high < 1.115  # of nine pairs one reaches into the interval's end
    new[2:4] *= 1.3  # three of nine are no odd round, but a state of the machine
    [change] = changes([(tuple(old), tuple(new))], paired=paired)
    assert change.low < 1.09 < 1.2 < change.high
