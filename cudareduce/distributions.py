"""Student's t distribution and a binomial confidence limit, without SciPy.

The tests compare every function with SciPy. The incomplete beta function is the continued fraction
of Numerical Recipes, section 6.4, evaluated by Lentz's method.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, isfinite, lgamma, log, log1p, nan, pi, sqrt
from statistics import NormalDist

_TINY = 1e-300
_EPSILON = 1e-15
_MAX_TERMS = 10_000


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function I_x(a, b)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # beyond, the fraction of the complement converges faster
        return 1 - incomplete_beta(b, a, 1 - x)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or _TINY)
    fraction = d
    for m in range(1, _MAX_TERMS):
        previous = fraction
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d or _TINY)
            c = 1 + term / c or _TINY
            fraction *= c * d
        if abs(fraction - previous) <= _EPSILON * abs(fraction):
            break
    return front * fraction


def student_tail(t: float, freedom: float) -> float:
    """P(T > t), t >= 0, for Student's t with `freedom` degrees of freedom, whole or not."""
    if t < 1:  # no cancellation here, and none in 1 - x
        return (1 - incomplete_beta(0.5, freedom / 2, t * t / (freedom + t * t))) / 2
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2


@lru_cache(maxsize=4096)
def student_quantile(tail: float, freedom: float) -> float:
    """The t with P(T > t) = `tail`, a probability below 0.5; NaN without degrees of freedom.

    Newton's method on log P as a function of log t, which is concave and decreasing: from any
    start it steps past the root at most once, then approaches it from above.
    """
    if not (freedom > 0 and isfinite(freedom)):
        return nan
    scale = exp(lgamma((freedom + 1) / 2) - lgamma(freedom / 2)) / sqrt(freedom * pi)
    t = -NormalDist().inv_cdf(tail)
    for _ in range(100):
        probability = student_tail(t, freedom)
        density = scale * exp(-(freedom + 1) / 2 * log1p(t * t / freedom))
        step = log(probability / tail) * probability / (t * density)
        t *= exp(step)
        if abs(step) < 1e-14:
            break
    return t


def binomial_upper_limit(successes: int, trials: int, confidence: float) -> float:
    """The Clopper-Pearson upper limit of a success rate: with a higher rate, at most `successes`
    would occur with a probability below 1 - `confidence`."""
    if successes >= trials:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        rate = (low + high) / 2
        if incomplete_beta(successes + 1, trials - successes, rate) < confidence:
            low = rate
        else:
            high = rate
    return (low + high) / 2
