"""What lies apart: as rarely wrong as it says, and several odd values do not hide each other."""

from __future__ import annotations

import numpy as np
import pytest

from cudareduce.several.fleet.outliers import spread


@pytest.mark.parametrize("count", [8, 9, 20, 200])
def test_equal_cards_are_rarely_called_apart(count: int) -> None:
    rng = np.random.default_rng(count)
    drawn = (rng.normal(0, 0.007, count) for _ in range(1000))
    fleets = [values - np.median(values) for values in drawn]
    wrong = sum(any(values[k] > 0 for k in spread(list(values), 0.01).apart) for values in fleets)
    assert wrong <= 19  # 1 % of 1000, and three standard deviations


def test_deviations_from_the_median_are_oftener_wrong() -> None:
    """The usual rule, four times the median absolute deviation, on fleets of eight equal cards."""
    values = np.random.default_rng(8).normal(0, 0.007, (4000, 8))
    off = values - np.median(values, axis=1, keepdims=True)
    usual = 1.4826 * np.median(np.abs(off), axis=1, keepdims=True)
    assert 0.03 < np.mean((off > 4 * usual).any(axis=1)) < 0.07
    ours = [any(row[k] > 0 for k in spread(list(row), 0.01).apart) for row in off]
    assert np.mean(ours) < 0.0135  # 1 %, and two standard deviations


@pytest.mark.parametrize("slow", [1, 2, 3])
def test_slow_ones_do_not_hide_each_other(slow: int) -> None:
    rng = np.random.default_rng(slow)
    values = rng.normal(0, 0.007, 8)
    values[:slow] += 0.15
    found = spread(list(values - np.median(values)), 0.01)
    assert found.apart == set(range(slow))
    assert 0.001 < found.usual < 0.02
    assert 0.0 < found.limit < 0.15


def test_a_quick_one_hides_no_slow_one() -> None:
    values = np.random.default_rng(5).normal(0, 0.007, 12)
    values[0], values[1] = 0.12, -0.12
    assert spread(list(values - np.median(values)), 0.01).apart == {0, 1}


@pytest.mark.parametrize("count", [3, 8, 9])
def test_values_that_are_all_alike(count: int) -> None:
    found = spread([0.0] * count, 0.01)
    assert (found.usual, found.limit, found.apart) == (0.0, 0.0, frozenset())
    assert spread([0.0] * (count - 1) + [0.1], 0.01).apart == {count - 1}
