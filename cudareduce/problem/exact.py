"""Elements no sum or product of which is rounded, so that one that is lost, counted twice or cut
short shows in the answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from cudareduce.problem.dtypes import DType
from cudareduce.problem.mapped import fold_mapped
from cudareduce.problem.operators import Reduction

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
