"""Whether what a map makes of elements tells any from others: one that makes the same of all
that is tried shows nothing of a kernel."""

from __future__ import annotations

from functools import cache

import numpy as np

from cudareduce.problem.inputs import as_numbers, make_all
from cudareduce.problem.mapped import fold_mapped
from cudareduce.problem.operators import Reduction

#: Elements of each pattern that are looked at: of as many those that have to fit a type are small.
_LOOKED_AT, _PATTERNS = 4096, ("named", "random")


@cache
def varies(reduction: Reduction, *, positive: str = "") -> bool:
    """Whether a map makes more than one value of elements, of those above 0 if they are to be
    `positive`. Raises what `fold_mapped` raises."""
    return any(len(_values(reduction, name, positive)) > 1 for name in _PATTERNS)


def _values(reduction: Reduction, pattern: str, positive: str) -> set[float]:
    """What a map makes of elements of a pattern, but for what is not finite."""
    data = make_all(pattern, reduction, _LOOKED_AT, positive=positive)
    each = tuple(as_numbers(one, reduction.dtype).reshape(-1, 1) for one in data)
    answers = np.asarray(fold_mapped(reduction, each).answer, dtype=float)
    return {float(value) for value in answers if np.isfinite(value)}
