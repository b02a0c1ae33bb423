"""Elements of which no sum leaves a narrower type than the accumulator, or is rounded in it: those
of a kernel that adds in such a type between its input and its answer."""

from __future__ import annotations

import math

import numpy as np

from cudareduce.problem.dtypes import DType
from cudareduce.problem.exact import digits

Array = np.ndarray

#: An odd number by which words are multiplied, and how far they are shifted, so that which small
#: number becomes of an element depends on all its bits (Knuth, The Art of Computer Programming 3,
#: 6.4: multiplicative hashing).
_MIXED, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
#: A map may multiply two elements, or the differences of two pairs.
_OF_MAP = 4


def fitted(values: Array, n: int, within: DType, *, mapped: bool) -> Array:
    """Numbers, rows of `n`, as small whole ones: magnitudes of a row, or of what a map makes of
    them where it is `mapped`, add up to a number of the type `within`, as far as 0 and +-1 can have
    it so. What is small and whole stays, and so do infinities and NaN."""
    bits = digits(within) if within.kind == "float" else 8 * within.size - 1
    most = 2**bits // max(n, 1)
    most = max(1, math.isqrt(most // _OF_MAP) if mapped else most)
    least = 0 if values.dtype.kind == "u" else -most
    words = values.view(f"u{values.dtype.itemsize}").astype(np.uint64)
    small = (words * _MIXED >> _SHIFT) % np.uint64(most - least + 1)
    with np.errstate(invalid="ignore"):
        kept = (values >= least) & (values <= most) & (values == np.trunc(values))
    kept |= ~np.isfinite(values)
    return np.where(kept, values, (small.astype(np.int64) + least).astype(values.dtype))
