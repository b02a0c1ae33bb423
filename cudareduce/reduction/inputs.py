"""Input data: named patterns, made from a seed, whose answers are hard to get right by luck.

Random data within an error bound does not notice one lost element among a million; each operator
therefore has patterns whose answer is exact, and for the extrema one that puts the answer at every
place where a kernel might look away. `nets` says which of them verify what.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from cudareduce.cuda_source import literals, parsed
from cudareduce.reduction.dtypes import DType
from cudareduce.reduction.operators import Reduction
from cudareduce.reduction.patterns import PATTERNS
from cudareduce.reduction.transforms import fold_mapped

Array = np.ndarray

#: Binary digits that show what was added in a 16-bit type, or in the tensor cores' 11 digits.
_ENOUGH = 13
#: Up to this size a sum of all magnitudes fits the accumulator with a digit left for some that are
#: larger; beyond it, where not even +-1 fits, only sums of random signs do.
_FITS = 2**21
#: Standard deviations that one of the partial sums of random signs may stray: of 2^26 partial sums
#: one does so with a probability of 3e-10.
_DEVIATIONS = 9
#: What elements are multiples of: what a sum in fixed point with fewer binary places loses. Of
#: float16 it is the least there is, which is lost where subnormals are.
_UNIT = {"float16": 2.0**-24}
_SMALL_UNIT = 2.0**-60
#: 2 and 1/2 in a product of +-1, few enough for the product to stay finite in 16-bit inputs too.
_PRODUCT_FACTORS = 24
#: Elements that show what a map makes of others of their kind, how much more those may add up to,
#: and how few may be other than 0: one of 4^11.
_SAMPLE, _STRAYS, _SPARSEST = 4096, 1.25, 12


def digits(dtype: DType) -> int:
    """Binary digits of a float type's significand, or of an integer's size."""
    if dtype.kind != "float":
        return 8 * dtype.size - (dtype.kind == "int")
    return 1 - round(math.log2(dtype.epsilon))


def exact_sum(reduction: Reduction, n: int, rows: int, rng: np.random.Generator) -> Array:
    """Odd multiples of a small unit, as wide as they may be: up to 2^21 elements, or as far as the
    accumulator has room, no sum of any of them is rounded in any order; beyond that none is in any
    order that does not depend on the values."""
    own, room = digits(reduction.dtype), digits(reduction.acc)
    bits = room - max(n - 1, 0).bit_length()
    if bits >= min(own, _ENOUGH):
        whole = _odd(min(bits, own), n * rows, rng)
    elif n <= _FITS:
        whole = _odd(bits - 1, n * rows, rng).astype(np.int16)
        wide = min(own, _ENOUGH)
        some = rng.integers(0, n, (rows, 2 ** (room - 1 - wide)))
        few = rng.choice(np.array([-1, 1], np.int16), some.shape)
        few *= 2**wide - 1 - 2 * rng.integers(0, 4, some.shape, np.int16)
        np.put_along_axis(whole.reshape(rows, n), some, few, axis=1)
    else:
        whole = _odd(_bits_of_a_walk(n, room, own), n * rows, rng)
    return _in_units(whole, reduction)


def exact_part(reduction: Reduction, n: int, count: int, rng: np.random.Generator) -> Array:
    """So many elements of an array of `n` that is made part by part: as those of `exact_sum`, but
    for the few that are wider than others."""
    own, room = digits(reduction.dtype), digits(reduction.acc)
    bits = room - max(n - 1, 0).bit_length()
    if n > _FITS and bits < min(own, _ENOUGH):
        bits = _bits_of_a_walk(n, room, own)
    return _in_units(_odd(max(1, min(bits, own)), count, rng), reduction)


def exact_factors(n: int, rng: np.random.Generator) -> Array:
    """Factors of floats that any number of others may follow: +-1."""
    return rng.integers(0, 2, n, np.int8) * np.int8(2) - np.int8(1)


def _in_units(whole: Array, reduction: Reduction) -> Array:
    """Whole numbers as multiples of what fixed point loses, where they are summed."""
    summed = reduction.op.name in ("sum", "mean")
    unit = _UNIT.get(reduction.dtype.name, _SMALL_UNIT) if summed else 1
    kind = "float64" if reduction.dtype.size == 8 else "float32"
    return np.asarray(np.multiply(whole, unit, dtype=kind))


def _bits_of_a_walk(n: int, room: int, own: int) -> int:
    """How wide numbers of random sign may be for any sum of up to n of them to fit: a uniform
    variable of standard deviation s strays as a normal one of s at most."""
    return max(1, min(own, _ENOUGH, math.floor(room - math.log2(_DEVIATIONS * (n / 3) ** 0.5))))


def _odd(bits: int, size: int, rng: np.random.Generator) -> Array:
    """Odd whole numbers between -2^bits and 2^bits."""
    kind = next(k for k in (np.int8, np.int16, np.int32, np.int64) if bits < 8 * k().itemsize)
    info = np.iinfo(kind)
    whole: Array = rng.integers(info.min, info.max, size, kind, endpoint=True)
    whole >>= kind(info.bits - 1 - bits)
    whole |= kind(1)
    return whole


@dataclass(frozen=True, slots=True)
class _Grain:
    """Odd multiples of a unit, of so many binary digits; one of `one_in` elements is not 0."""

    bits: int
    unit: float
    one_in: int = 1

    def elements(self, size: int, rng: np.random.Generator, places: np.random.Generator) -> Array:
        """So many; `places` tells where they are not 0."""
        values = _odd(self.bits, size, rng) * self.unit
        if self.one_in > 1:
            values *= places.integers(0, self.one_in, size) == 0
        return np.asarray(values)


def exact_mapped(
    reduction: Reduction, n: int, rows: int, rng: np.random.Generator, places: np.random.Generator
) -> Array:
    """Elements of one input from which a map makes values no sum of which is rounded, as wide as
    they may be; small whole numbers for a map of which none are known. Inputs are 0 at the same
    `places`: so the values of a map of their difference are 0 there, too."""
    room = 2.0 ** digits(reduction.stored or reduction.acc) / _STRAYS
    grains = _grains(reduction)
    fits = (grain for grain, units in grains.items() if n * units <= room)
    return next(fits, _Grain(1, 1.0)).elements(n * rows, rng, places)


@cache
def _grains(reduction: Reduction) -> dict[_Grain, float]:
    """What elements may be made of, the widest first, with the units of the map's values that an
    element gives on average."""
    units = (_UNIT.get(reduction.dtype.name, _SMALL_UNIT), 1.0)
    widest = min(digits(reduction.dtype), _ENOUGH)
    found = [_Grain(bits, unit) for bits in range(widest, 0, -1) for unit in units]
    found += [_Grain(1, unit, 4**k) for k in range(1, _SPARSEST) for unit in units]
    kind = "float64" if reduction.dtype.size == 8 else "float32"
    samples = []
    for k in range(reduction.inputs):
        rng, places = np.random.default_rng([0, k]), np.random.default_rng([0, 2])
        rows = [grain.elements(_SAMPLE, rng, places) for grain in found]
        samples.append(np.array(rows, kind))
    counted = fold_mapped(reduction, tuple(samples)).units
    assert counted is not None
    return dict(zip(found, (counted / _SAMPLE).tolist(), strict=True))


def factors(dtype: DType, n: int, rows: int, rng: np.random.Generator) -> Array:
    """Factors whose product is exact and never 0: +-1 with a few 2 and 1/2, or odd integers."""
    if dtype.kind != "float":
        info = np.iinfo(dtype.storage)
        odd = rng.integers(info.min, info.max, n * rows, dtype.storage, endpoint=True) | 1
        return np.where(odd == 1, 3, odd).astype(dtype.storage)
    signs = (rng.integers(0, 2, (rows, n), np.int8) * 2 - 1).astype(np.float64)
    for row in signs:
        count = min(_PRODUCT_FACTORS, n // 4)
        for place, factor in zip(
            rng.choice(n, 2 * count, replace=False) if count else (),
            [2.0, 0.5] * count,
            strict=True,
        ):
            row[place] *= factor
    return signs.reshape(-1)


#: Largest powers of two in the 16-bit types and the others.
_EXPONENT = {"float16": 15, "bfloat16": 127, "float32": 127, "float64": 1023}
#: Neighbours in the last digits that `close` takes its elements from.
_NEIGHBOURS = 1000
#: log2 of how far a product of n factors strays: this, times a standard deviation.
_SPREAD = 8
#: log2 of the elements of `large`, where they are not at the end of their type's range.
_LARGE = 100


def number_kind(dtype: DType) -> str:
    """The NumPy dtype in which elements are made: 16-bit floats as float32."""
    return "float32" if dtype.kind == "float" and dtype.size < 8 else dtype.storage


def _wants_low(reduction: Reduction) -> bool:
    return reduction.op.name.endswith("min")


def _neutral(reduction: Reduction, n: int, rows: int, _: np.random.Generator) -> Array:
    """The identity everywhere: a minimum of nothing but +infinity, a maximum of -infinity."""
    low, dtype = _wants_low(reduction), reduction.dtype
    if dtype.kind == "float":
        return np.full(n * rows, np.inf if low else -np.inf, number_kind(dtype))
    info = np.iinfo(dtype.storage)
    return np.full(n * rows, info.max if low else info.min, dtype.storage)


def _finite(reduction: Reduction, n: int, rows: int, _: np.random.Generator) -> Array:
    """The finite value next to the identity everywhere."""
    dtype = reduction.dtype
    top = (2 - dtype.epsilon) * 2.0 ** _EXPONENT[dtype.name]
    return np.full(n * rows, top if _wants_low(reduction) else -top, number_kind(dtype))


def _one_sided(reduction: Reduction, n: int, rows: int, rng: np.random.Generator) -> Array:
    """All above 0 for a minimum, all below (for want of a sign, all) for a maximum, so that padding
    with 0 shows."""
    size, low = n * rows, _wants_low(reduction)
    if reduction.dtype.kind == "float":
        values: Array = rng.random(size, "float64" if reduction.dtype.size == 8 else "float32")
        return values + 1 if low else -1 - values
    info = np.iinfo(reduction.dtype.storage)
    first, last = (1, info.max) if low or not info.min else (info.min, -1)
    whole: Array = rng.integers(first, last, size, reduction.dtype.storage, endpoint=True)
    return whole


def _close(reduction: Reduction, n: int, rows: int, rng: np.random.Generator) -> Array:
    """Neighbours, which a narrower type cannot tell apart: floats from 1 up, integers from the
    largest down."""
    dtype = reduction.dtype
    if dtype.kind == "float":
        steps = rng.integers(0, min(_NEIGHBOURS, int(1 / dtype.epsilon)), n * rows)
        return (1 + steps * dtype.epsilon).astype(number_kind(dtype))
    largest = int(np.iinfo(dtype.storage).max)
    below = rng.integers(0, min(_NEIGHBOURS, largest), n * rows, dtype.storage)
    return np.asarray(np.array(largest, dtype.storage) - below)


def _close_below(reduction: Reduction, n: int, rows: int, rng: np.random.Generator) -> Array:
    """Neighbours from -1 down, whose order is another one to whoever compares their bits."""
    return np.asarray(-_close(reduction, n, rows, rng))


def _zeros(reduction: Reduction, n: int, rows: int, rng: np.random.Generator) -> Array:
    """+0 and -0, which are equal: either is their extremum, and the first is the position."""
    both = np.array([0.0, -0.0], number_kind(reduction.dtype))
    return np.asarray(both[rng.integers(0, 2, n * rows)])


def _large(reduction: Reduction, n: int, rows: int, rng: np.random.Generator) -> Array:
    """Positive, at the end of the range of float16, whose sum leaves it; no sum is rounded."""
    dtype = reduction.dtype
    bits = min(digits(dtype), max(1, digits(reduction.acc) - (n - 1).bit_length()))
    whole = rng.integers(2 ** (bits - 1), 2**bits, n * rows)
    top = _EXPONENT[dtype.name] + 1 if dtype.name == "float16" else _LARGE
    return np.asarray(whole * 2.0 ** (top - bits), number_kind(dtype))


def _uneven(reduction: Reduction, n: int, rows: int, rng: np.random.Generator) -> Array:
    """One 1, and others, log-uniform and positive, three binary digits about its last place: fixed
    point scaled by the largest loses them all, floats in the worst of orders a third."""
    least = digits(reduction.acc) if reduction.dtype.name != "float16" else 24
    values = np.exp2(rng.random((rows, n)) * 3 - least)
    values[np.arange(rows), rng.integers(0, n, rows)] = 1
    return values.astype(number_kind(reduction.dtype))


def _lowest(reduction: Reduction, n: int, rows: int, _: np.random.Generator) -> Array:
    kind = reduction.dtype.storage
    return np.full(n * rows, np.iinfo(kind).min, kind)


def _highest(reduction: Reduction, n: int, rows: int, _: np.random.Generator) -> Array:
    kind = reduction.dtype.storage
    return np.full(n * rows, np.iinfo(kind).max, kind)


def _spread(reduction: Reduction, n: int, rows: int, rng: np.random.Generator) -> Array:
    """Factors near +-1 with all their digits, whose product stays in range."""
    exponents = rng.uniform(-1, 1, n * rows) * min(1.0, _SPREAD / max(n, 1) ** 0.5)
    signs = rng.integers(0, 2, n * rows, np.int8) * 2 - 1
    return np.asarray(np.exp2(exponents) * signs, number_kind(reduction.dtype))


#: A map that tells elements apart makes no more different values of them.
_KINDS = 4
#: So many elements are one number, after as many that are not: all that a block takes is alike.
_RUN = 1024


def _named(reduction: Reduction, n: int, rows: int, rng: np.random.Generator) -> Array:
    some, shares = _numbers_named(reduction)
    values = rng.choice(some, n * rows, p=shares)
    for start in range(_RUN, values.size, 2 * _RUN):
        values[start : start + _RUN] = rng.choice(some, p=shares)
    return values


@cache
def _numbers_named(reduction: Reduction) -> tuple[Array, Array | None]:
    """Few numbers: those that a map names, by which it may tell elements apart, with either sign,
    and those next to them; and how often each is there, as `_of_each_kind` says."""
    code = f"auto x = {reduction.map.expression};" if reduction.map else ""
    kind, few = number_kind(reduction.dtype), {0.0, 1.0}
    for number in literals(parsed(code)):
        few |= {sign * number + step for sign in (-1, 1) for step in (-1, 0, 1)}
        few |= {sign * number * share for sign in (-1, 1) for share in (0.75, 1.5)}
    if reduction.dtype.kind == "float":
        largest = np.finfo("float16" if reduction.dtype.name == "float16" else kind).max
        most = float(largest) / 2
        least = -most
    else:
        few = {float(int(number)) for number in few}
        least, most = np.iinfo(kind).min, np.iinfo(kind).max
    some = np.array(sorted(number for number in few if least <= number <= most))
    return _of_each_kind(reduction, some.astype(kind))


def _of_each_kind(reduction: Reduction, some: Array) -> tuple[Array, Array | None]:
    """Some numbers, and how often each is there, so that all that a map makes of them is as often:
    none that it leaves too large to be added exactly. As often as others where it takes two, or
    makes something else of each."""
    most = 2.0 ** digits(reduction.dtype)
    if reduction.map is None or reduction.inputs > 1:
        return some[np.abs(some.astype(float)) <= most], None
    made = np.asarray(fold_mapped(reduction, (some.reshape(-1, 1),)).answer, dtype=float)
    fits = np.fmin(np.abs(some.astype(float)), np.abs(made)) <= most
    kinds, which, count = np.unique(made[fits], return_inverse=True, return_counts=True)
    shares = None if len(kinds) > _KINDS else np.asarray(1 / count[which] / len(kinds))
    return some[fits], shares


#: By name, what makes `rows * n` elements.
SPECIAL: Mapping[str, Callable[[Reduction, int, int, np.random.Generator], Array]] = {
    "neutral": _neutral, "finite": _finite, "one-sided": _one_sided, "close": _close,
    "close-below": _close_below,
    "zeros": _zeros, "large": _large, "uneven": _uneven, "lowest": _lowest, "highest": _highest,
    "spread": _spread, "named": _named,
}  # fmt: skip

#: Patterns that put a value at places of each row.
PLANTED = ("extremum", "tie", "nan", "-nan", "inf", "-inf", "zero", "clash")


def plant(values: Array, name: str, places: Sequence[int], reduction: Reduction) -> None:
    """Put what a pattern plants at places of each row of `values`; `clash` has +infinity at the
    first, and at the others what makes a NaN of it."""
    if name in ("extremum", "tie"):
        values[:, places] = _edge(reduction)
    elif name == "zero":
        values[:, places] = 0
    elif name == "clash":
        values[:, places[1:]] = 0 if reduction.op.name == "prod" else -np.inf
        values[:, places[0]] = np.inf
    else:
        sign = -1.0 if name.startswith("-") else 1.0
        values[:, places] = np.copysign(np.nan if name.endswith("nan") else np.inf, sign)


def _edge(reduction: Reduction) -> float:
    low = _wants_low(reduction)
    if reduction.dtype.kind == "float":
        return -2.0 if low else 2.0
    info = np.iinfo(reduction.dtype.storage)
    return info.min if low else info.max


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


_SUMS = ("sum", "mean")
#: What is left of a sum that cancels: this many small elements, below 2^-10.
_REMAINDER = 3
#: A positive number that all types of floats have.
_SMALL = 2.0**-14
#: What even additions one after the other get right, and what a wrong kernel gets wrong by more:
#: its bound supposes nothing of the order.
_IN_ANY_ORDER = ("uneven",)
#: Patterns of products that are rounded; of the others every partial product is exact.
_ROUNDED_PRODUCTS = ("spread", "rising", "falling", "cancel")


def make_all(
    pattern: str, reduction: Reduction, n: int, rows: int = 1, seed: int = 0, positive: str = ""
) -> tuple[Array, ...]:
    """The elements of each input of a reduction, as `make` makes them, and as they lie in memory;
    values are planted in the first. They are moved to above 0 if they are to be `positive`, or
    above what is subnormal (`normal`)."""
    made = (make(pattern, reduction, n, rows, seed, second=k > 0) for k in range(reduction.inputs))
    lying = tuple(x.reshape(rows, n).T.ravel() if reduction.columns else x for x in made)
    if not positive:
        return lying
    return tuple(made_positive(x, reduction, normal=positive == "normal") for x in lying)


def make(
    pattern: str, reduction: Reduction, n: int, rows: int = 1, seed: int = 0, *,
    second: bool = False,
) -> Array:  # fmt: skip
    """`rows * n` elements of a pattern as one flat array, row behind row, each row by the
    pattern, in the storage type of `reduction.dtype`; NAME:A,B plants what it names at the places A
    and B of each row.

    The same seed, at least 0, with the same `n` and `rows` gives the same elements, and others for
    the `second` input of a map. A ValueError if there is no such pattern.
    """
    rng = np.random.default_rng([seed, n, rows, *([1] if second else [])])
    name, _, text = pattern.partition(":")
    places = [int(place) for place in text.split(",")] if text else []
    if name not in (*PATTERNS, *SPECIAL, *PLANTED, "factors"):
        raise ValueError(f"there is no pattern {pattern!r}")
    if name != "nan" and bool(places) != (name in PLANTED):
        raise ValueError(f"the pattern {pattern!r} must say where, or must not")
    if name == "nan" and n and not places:
        places = [n // 2, n - 1]
    if name == "exact" and reduction.map and reduction.acc.kind == "float":
        shared = np.random.default_rng([seed, n, rows, 2])
        values = exact_mapped(reduction, n, rows, rng, shared)
    else:
        values = _values(name, reduction, n, rows, rng)
    if name == "exact" and reduction.stored and not reduction.map:
        _balance(values.reshape(rows, n), rng)
    values = fitted(values, n, reduction, second=second)
    if name in PLANTED and n and not second:
        plant(values.reshape(rows, n), name, places, reduction)
    return stored(values, reduction.dtype)


def rounds_nothing(pattern: str, reduction: Reduction) -> bool:
    """Whether no sum or product of a pattern's elements is rounded in the accumulator's type; of a
    map's values their reference says so."""
    if reduction.map:
        return False
    if reduction.op.name == "prod":
        return pattern not in _ROUNDED_PRODUCTS
    return reduction.within is not None or pattern in ("exact", "large")


def roundings(pattern: str, reduction: Reduction, n: int, depth: int) -> int:
    """How many roundings the bound of an answer supposes, where those of a kernel's additions are
    `depth`: the errors of all multiplications meet in a product."""
    return n if reduction.op.name == "prod" or pattern in _IN_ANY_ORDER else depth


def as_numbers(data: Array, dtype: DType) -> Array:
    """Stored elements as numbers NumPy can reckon with: bfloat16 as float32, others as they are."""
    if dtype.name != "bfloat16":
        return data
    return np.asarray((data.astype(np.uint32) << 16).view(np.float32))


def stored(values: Array, dtype: DType) -> Array:
    """Numbers as elements of a type: bfloat16 as its bits."""
    if dtype.name != "bfloat16":
        return values.astype(dtype.storage, copy=False)
    bits = values.astype(np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    nan = np.isnan(values)
    rounded[nan] = (bits[nan] >> 16) & 0x8000 | 0x7FC0
    return rounded


def as_answers(values: Array, reduction: Reduction) -> Array:
    """Numbers as a kernel stores its answers, in the type that these are judged in."""
    if reduction.stored is None:
        return values.astype(reduction.result_dtype)
    with np.errstate(over="ignore"):
        kept = stored(values, reduction.stored)
    return as_numbers(kept, reduction.stored).astype(reduction.acc.storage)


def made_positive(data: Array, reduction: Reduction, *, normal: bool = False) -> Array:
    """Stored elements moved to above 0, in the order of size that they had; -infinity becomes the
    least number there is, or the least `normal` one, and a NaN loses its sign. Of those that have
    to fit a narrower type the magnitudes stay."""
    dtype = reduction.dtype
    if reduction.within and dtype.kind == "int":
        sizes: Array = np.abs(data)
        return sizes
    if dtype.kind != "float":
        unsigned = data.view(f"u{dtype.size}")
        if dtype.kind == "int":
            unsigned = (unsigned ^ (1 << (8 * dtype.size - 1))) >> 1
        return np.asarray(np.maximum(unsigned, 1).view(data.dtype))
    numbers = as_numbers(data, dtype)
    lowest = np.min(numbers, initial=0, where=np.isfinite(numbers))
    moved = stored(np.maximum(np.abs(numbers - lowest), _SMALL), dtype)
    least = 1 << digits(dtype) - 1 if normal else 1
    moved.view(f"u{dtype.size}")[np.isneginf(numbers)] = least
    return moved


def without_nan(data: Array, reduction: Reduction) -> Array:
    """Stored elements with what an extreme of others never is in the place of each NaN; integers
    have none."""
    if reduction.dtype.kind != "float":
        return data
    numbers = as_numbers(data, reduction.dtype)
    least = np.inf if reduction.op.name.endswith("min") else -np.inf
    return stored(np.where(np.isnan(numbers), numbers.dtype.type(least), numbers), reduction.dtype)


def _values(name: str, reduction: Reduction, n: int, rows: int, rng: np.random.Generator) -> Array:
    size, dtype, op = n * rows, reduction.dtype, reduction.op.name
    if name in SPECIAL:
        return SPECIAL[name](reduction, n, rows, rng).reshape(-1)
    kind = number_kind(dtype)
    if name in ("ones", "twos"):
        return np.full(size, 1 if name == "ones" else 2, kind)
    if name in ("rising", "falling"):
        return np.tile(_ramp(dtype, n)[:: 1 if name == "rising" else -1], rows)
    # Of random values a product of many is smaller than its type can tell, be it our operator's or
    # a user's own.
    if name == "factors" or (op == "prod" and name not in _ROUNDED_PRODUCTS):
        return factors(dtype, n, rows, rng)
    if dtype.kind != "float":
        info = np.iinfo(dtype.storage)
        low, high = (0 if name == "positive" else info.min), info.max
        if name in ("extremum", "tie"):  # room below and above for the planted value
            low, high = info.min // 2 + 1, info.max // 2
        whole: Array = rng.integers(low, high, size, dtype.storage, endpoint=True)
        return whole
    if name == "exact":
        return exact_sum(reduction, n, rows, rng).astype(kind, copy=False)
    values: Array = rng.random(size, "float64" if kind == "float64" else "float32")
    if name != "positive":
        values *= 2
        values -= 1
    if name == "cancel":
        _cancel(values.reshape(rows, n), rng)
    return values


def _cancel(values: Array, rng: np.random.Generator) -> None:
    """Make every row cancel but for a small remainder: each element has its negative somewhere."""
    n = values.shape[1]
    half = max(0, n - _REMAINDER) // 2
    values[:, half : 2 * half] = -values[:, :half]
    values[:, 2 * half :] /= 1024
    values[:] = values[:, rng.permutation(n)]


def _balance(values: Array, rng: np.random.Generator) -> None:
    """Make every row cancel but for one or two of the smallest units: so few digits every type has,
    and any element that is lost changes them."""
    n = values.shape[1]
    half = max(0, n - 1) // 2
    values[:, half : 2 * half] = -values[:, :half]
    rest = values[:, 2 * half :]
    rest[:] = np.copysign(np.abs(values).min(initial=np.inf, where=values != 0), rest)
    values[:] = values[:, rng.permutation(n)]


def why_no_pattern(pattern: str, reduction: Reduction) -> str | None:
    """Why a reduction cannot be given a pattern, as the message of a UsageError; None if it can."""
    if pattern == "cancel" and not (reduction.op.name in _SUMS and reduction.acc.kind == "float"):
        return (
            f"--pattern cancel is for sum and mean of floats, not {reduction.op.name} of "
            f"{reduction.dtype.name}: only there do errors depend on what cancels"
        )
    if pattern == "cancel" and reduction.map:
        return (
            "--pattern cancel goes without --map: what a map makes of its elements does not cancel"
        )
    return None


def _ramp(dtype: DType, n: int) -> Array:
    """From the lowest to the highest value in equal steps, as far as the type has them."""
    if dtype.kind == "float":
        return np.linspace(-1, 1, n, dtype="float64" if dtype.size == 8 else "float32")
    info = np.iinfo(dtype.storage)
    low, high = max(info.min, -(2**61)), min(info.max, 2**61)
    step = max((high - low) // max(n, 1), 0)
    if step:
        return (np.arange(n, dtype=np.int64) * step + low).astype(dtype.storage)
    return (np.arange(n, dtype=np.int64) * (high - low) // n + low).astype(dtype.storage)


#: Elements of each pattern that are looked at: of as many those that have to fit a type are small.
_LOOKED_AT, _PATTERNS = 4096, ("named", "random")


@cache
def varies(reduction: Reduction, *, positive: str = "") -> bool:
    """Whether a map makes more than one value of elements, of those above 0 if they are to be
    `positive`. Raises what `fold_mapped` raises."""
    return any(len(_mapped_values(reduction, name, positive)) > 1 for name in _PATTERNS)


def _mapped_values(reduction: Reduction, pattern: str, positive: str) -> set[float]:
    """What a map makes of elements of a pattern, but for what is not finite."""
    data = make_all(pattern, reduction, _LOOKED_AT, positive=positive)
    each = tuple(as_numbers(one, reduction.dtype).reshape(-1, 1) for one in data)
    answers = np.asarray(fold_mapped(reduction, each).answer, dtype=float)
    return {float(value) for value in answers if np.isfinite(value)}
