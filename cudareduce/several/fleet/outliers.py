"""Which values lie apart from all others, where several may: few values, and no model of them.

The generalized test of Rosner (1983, "Percentage Points for a Generalized ESD Many-Outlier
Procedure"): what lies furthest from the median is set aside, one after the other, up to half of
all. Each is held against those that lie nearer, by Student's t; from the nearest one that is too
far off on, all are apart. Several odd values cannot hide each other, and unlike a multiple of the
median absolute deviation it is as rarely wrong with eight values as with a thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Spread:
    """How values lie: the standard deviation of those that are not apart, how far above the median
    of all a further one would be apart, and the places of those that are."""

    usual: float
    limit: float
    apart: frozenset[int]


def spread(offs: Sequence[float], wrong: float) -> Spread:
    """How values, at least three, lie about 0, their median; of normal ones without an odd one, a
    share of `wrong` at most of such sets has some above it that are called apart."""
    from scipy.special import stdtrit

    values = np.asarray(offs, float)
    count = len(values)
    nearest = np.argsort(np.abs(values), kind="stable")
    ordered = values[nearest]
    kept = np.arange(max(2, count // 2 + 1), count + 1)  # so many are the nearest ones, or all
    mean = np.cumsum(ordered)[kept - 1] / kept
    squares = np.cumsum(ordered**2)[kept - 1] - kept * mean**2
    usual = np.sqrt(np.maximum(squares, 0.0) / (kept - 1))
    reach = -stdtrit(kept - 1, wrong / 2 / count) * usual * np.sqrt(1 + 1 / kept)
    odd = np.flatnonzero(np.abs(ordered[kept[:-1]] - mean[:-1]) > reach[:-1])
    last = int(odd[0]) if len(odd) else len(kept) - 1
    return Spread(
        float(usual[last]), float(mean[last] + reach[last]),
        frozenset(int(k) for k in nearest[kept[last] :]),
    )  # fmt: skip
