"""Elements of which no sum leaves a narrower type than the accumulator, or is rounded in it: those
of a kernel that adds in such a type between its input and its answer."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from cudareduce.problem.exact import digits
from cudareduce.problem.mapped import fold_mapped
from cudareduce.problem.operators import Reduction
from cudareduce.problem.special import number_kind

Array = np.ndarray

#: An odd number by which words are multiplied, and how far they are shifted, so that which small
#: number becomes of an element depends on all its bits (Knuth, The Art of Computer Programming 3,
#: 6.4: multiplicative hashing).
_MIXED, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
#: A map may multiply two elements, or the differences of two pairs.
_OF_MAP = 4
#: The largest power of two that stands alone in types of 16 bits, by its exponent.
_TOP = {"float16": 14, "bfloat16": 120}


def fitted(values: Array, n: int, reduction: Reduction, *, second: bool) -> Array:
    """Numbers, rows of `n`, as they are or, of a reduction that is `within` a type, as small whole
    ones: magnitudes of a row, or of what a map makes of them, add up to a number of that type, and
    nearly to all that it has, since one in the middle is as large as the others leave room for.
    What is small and whole stays, unless there is more than fits: then the first, the last and some
    others are not 0. Infinities and NaN stay, and what has no sign gets none. Of some sizes all but
    one are 0, and that is a power of two beyond all digits. The `second` input of a map has 1 where
    the first has its large number, or the other way round."""
    within = reduction.within
    if not n or within is None:
        return values
    rows, all_of_it = values.reshape(-1, n), 2 ** digits(within) - (within.kind != "float")
    signed = bool((rows < 0).any())
    room = all_of_it // 2 // (_OF_MAP if reduction.map else 1)  # for all but the large one
    places = _some(n, 2 * -(-n // room)) if n > room else slice(None)
    most = max(1, room // n)
    most = math.isqrt(most) if reduction.map else most
    fit = np.zeros_like(rows)
    fit[:, places] = _small(rows[:, places], most, signed=signed)
    large, in_second = all_of_it - room * (n > 1), n % 2 == 1
    if reduction.map:
        large = _largest(reduction, all_of_it // 2, second=in_second)
    top = _alone(reduction, second=in_second)
    if top and n * int(_MIXED) >> 62 & 3 == 0:  # of one in four sizes
        fit[:], large = 0, top
    if reduction.inputs > 1 and second != in_second:
        large = 1
    if rows.dtype.kind != "f":
        large = min(large, int(np.iinfo(rows.dtype).max))
    fit[:, n // 2] = -large if signed and n % 2 == 0 else large
    np.copyto(fit, rows, where=~np.isfinite(rows))
    return fit.reshape(-1)


def _some(n: int, one_in: int) -> Array:
    """The first, the last, and one in so many of `n` places."""
    starts = np.arange(0, n, one_in, dtype=np.uint64)
    places = starts + (starts * _MIXED >> _SHIFT) % np.uint64(one_in)
    return np.concatenate([[0], np.minimum(places, n - 1).astype(np.int64), [n - 1]])


def _small(values: Array, most: int, *, signed: bool) -> Array:
    """Whole numbers up to `most`: those that are so already, and what the bits of others make."""
    least = -most if signed else 0
    words = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").astype(np.uint64)
    made = (words * _MIXED >> _SHIFT) % np.uint64(most - least + 1)
    with np.errstate(invalid="ignore"):
        kept = (values >= least) & (values <= most) & (values == np.trunc(values))
    return np.where(kept, values, (made.astype(np.int64) + least).astype(values.dtype))


def _alone(reduction: Reduction, *, second: bool) -> int:
    """The largest power of two that may stand alone among zeros, if a map makes one of it; 0 where
    there are none beyond the digits of what it is within."""
    assert reduction.within is not None
    if reduction.within.kind != "float":
        return 0
    top = 1 << _TOP.get(reduction.dtype.name, 8 * reduction.dtype.size - 2)
    if reduction.map is None:
        return top
    found = _largest(reduction, top, second=second)
    made = _made(reduction, found, second=second)
    return found if math.frexp(made)[0] == 0.5 else 0


@cache
def _largest(reduction: Reduction, most: int, *, second: bool) -> int:
    """The largest power of two of which a map makes no more than this; of one of two inputs, beside
    1 in the other."""
    powers = (1 << k for k in range(most.bit_length() - 1, 0, -1))
    return next((one for one in powers if _made(reduction, one, second=second) <= most), 1)


def _made(reduction: Reduction, value: int, *, second: bool) -> float:
    """The magnitude of what a map makes of a value."""
    kind = number_kind(reduction.dtype)
    if reduction.dtype.kind != "float" and value > np.iinfo(kind).max:
        return math.inf
    pair = (1, value) if second and reduction.inputs > 1 else (value, 1)
    rows = tuple(np.array([[one]], kind) for one in pair[: reduction.inputs])
    with np.errstate(all="ignore"):
        return abs(float(fold_mapped(reduction, rows).answer[0]))
