"""The distribution functions agree with SciPy over a wide range."""

from __future__ import annotations

import math

import pytest

from cudareduce.distributions import (
    binomial_upper_limit,
    incomplete_beta,
    student_quantile,
    student_tail,
)

DEGREES = (1.0, 1.3, 2.0, 4.7, 5.0, 8.0, 15.8, 16.0, 40.0, 137.2, 1e3, 1e4)


@pytest.mark.parametrize("freedom", DEGREES)
def test_the_tail_of_the_t_distribution_is_that_of_scipy(freedom: float) -> None:
    from scipy.special import stdtr  # here: it takes long to load

    for t in (0.0, 1e-6, 1e-3, 0.1, 0.5, 1.0, 1.96, 3.0, 7.5, 20.0, 37.0, 1e3, 1e6):
        expected = float(stdtr(freedom, -t))
        assert student_tail(t, freedom) == pytest.approx(expected, rel=1e-9, abs=1e-290), t


@pytest.mark.parametrize("freedom", DEGREES)
def test_quantiles_of_the_t_distribution_are_those_of_scipy(freedom: float) -> None:
    from scipy.special import stdtrit

    for tail in (0.49, 0.4, 0.25, 0.1, 0.05, 0.025, 0.01, 1e-3, 1e-5, 1e-8, 1e-12):
        expected = -float(stdtrit(freedom, tail))
        assert student_quantile(tail, freedom) == pytest.approx(expected, rel=1e-9), tail
        assert student_tail(expected, freedom) == pytest.approx(tail, rel=1e-8), tail


@pytest.mark.parametrize("freedom", [0.0, -1.0, math.nan, math.inf])
def test_a_quantile_needs_degrees_of_freedom(freedom: float) -> None:
    assert math.isnan(student_quantile(0.01, freedom))


def test_the_incomplete_beta_function_is_that_of_scipy() -> None:
    from scipy.special import betainc

    for a in (0.5, 1, 2.5, 30, 1000):
        for b in (0.5, 1, 7, 200, 1000):
            for x in (0.0, 1e-9, 0.01, 0.3, 0.5, 0.7, 0.99, 1.0):
                expected = float(betainc(a, b, x))
                assert incomplete_beta(a, b, x) == pytest.approx(expected, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("trials", [1, 2, 10, 59, 240, 3000, 100_000])
def test_binomial_upper_limit(trials: int) -> None:
    from scipy.special import betaincinv

    for successes in sorted({0, 1, trials // 100, trials // 3, trials - 1}):
        if successes < trials:
            for confidence in (0.5, 0.9, 0.95, 0.999):
                expected = float(betaincinv(successes + 1, trials - successes, confidence))
                found = binomial_upper_limit(successes, trials, confidence)
                assert found == pytest.approx(expected, rel=1e-9)
    assert binomial_upper_limit(trials, trials, 0.95) == 1
