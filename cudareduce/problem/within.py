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
    them where it is `mapped`, add up to a number of the type `within`, and nearly to all that it
    has: one in the middle is as large as the others leave room for. What is small and whole stays,
    unless there is more than fits: then the first, the last and some others are not 0. Infinities
    and NaN stay."""
    if not n:
        return values
    bits = digits(within) if within.kind == "float" else 8 * within.size - 1
    room = (2**bits - 1) // 2 // (_OF_MAP if mapped else 1)  # for all but the large one
    most = max(1, room // n)
    most = math.isqrt(most) if mapped else most
    least = 0 if values.dtype.kind == "u" else -most
    words = values.view(f"u{values.dtype.itemsize}").astype(np.uint64)
    small = (words * _MIXED >> _SHIFT) % np.uint64(most - least + 1)
    with np.errstate(invalid="ignore"):
        kept = (values >= least) & (values <= most) & (values == np.trunc(values))
    stays = ~np.isfinite(values)
    fit = np.where(kept | stays, values, (small.astype(np.int64) + least).astype(values.dtype))
    place = np.arange(values.size, dtype=np.uint64) % np.uint64(n)
    if n > room:
        some = (place * _MIXED >> _SHIFT) % np.uint64(2 * -(-n // room)) == 0
        some |= (place == 0) | (place == n - 1)
        fit = np.where(some | stays, fit, fit.dtype.type(0))
    large = math.isqrt(room) if mapped else room
    if values.dtype.kind != "f":
        large = min(large, int(np.iinfo(values.dtype).max))
    large *= 1 if least == 0 or n % 2 else -1
    return np.where((place == n // 2) & ~stays, fit.dtype.type(large), fit)
