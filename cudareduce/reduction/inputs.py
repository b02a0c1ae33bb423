"""Input data: named patterns, generated from a seed, whose results are hard to get right by luck.

Within an error bound, random data hides one lost element among a million. So each operator has
patterns with an exact result, and extrema have one with the result at every index that a kernel
might miss. `patterns` selects the patterns that verify a reduction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from cudareduce.cuda_source import literals, parse_cuda
from cudareduce.reduction.dtypes import DType
from cudareduce.reduction.operators import Reduction
from cudareduce.reduction.patterns import PATTERNS
from cudareduce.reduction.transforms import fold_mapped

Array = np.ndarray

#: Patterns that `patterns_for` may select and --pattern does not accept.
_SPECIAL = ("neutral", "finite", "one-sided", "close", "close-below", "zeros", "large", "uneven",
            "lowest", "highest", "spread", "named", "factors")  # fmt: skip
#: Patterns that put a value at given indices of each row.
_PLANTED = ("extremum", "tie", "nan", "-nan", "inf", "-inf", "zero", "clash")
_SUMS = ("sum", "mean")
#: Patterns whose products round; of the others every partial product is exact.
_ROUNDED_PRODUCTS = ("spread", "rising", "falling", "cancel")
#: Patterns whose bound holds for any summation order, so even for a sum from first to last.
_IN_ANY_ORDER = ("uneven",)


def make_all(
    pattern: str, reduction: Reduction, n: int, rows: int = 1, seed: int = 0, positive: str = ""
) -> tuple[Array, ...]:
    """The elements of each input in memory order; values are planted in the first. With `positive`
    they are shifted above 0, with "normal" also above subnormal numbers."""
    inputs = (
        make(pattern, reduction, n, rows, seed, second=k > 0) for k in range(reduction.inputs)
    )
    arrays = tuple(x.reshape(rows, n).T.ravel() if reduction.columns else x for x in inputs)
    if not positive:
        return arrays
    return tuple(make_positive(x, reduction, normal=positive == "normal") for x in arrays)


def make(
    pattern: str, reduction: Reduction, n: int, rows: int = 1, seed: int = 0, *,
    second: bool = False,
) -> Array:  # fmt: skip
    """`rows * n` elements in the storage type of `reduction.dtype`, row after row; NAME:A,B plants
    a value at the indices A and B of each row.

    The same seed, n and rows give the same elements, and different ones for the `second` input of a
    transform. Raises ValueError for an unknown pattern.
    """
    rng = np.random.default_rng([seed, n, rows, *([1] if second else [])])
    name, _, text = pattern.partition(":")
    indices = [int(index) for index in text.split(",")] if text else []
    if name not in (*PATTERNS, *_SPECIAL, *_PLANTED):
        raise ValueError(f"there is no pattern {pattern!r}")
    if name != "nan" and bool(indices) != (name in _PLANTED):
        raise ValueError(f"the pattern {pattern!r} must say where, or must not")
    if name == "nan" and n and not indices:
        indices = [n // 2, n - 1]
    if name == "exact" and reduction.map and reduction.acc.kind == "float":
        shared = np.random.default_rng([seed, n, rows, 2])
        values = _exact_mapped(reduction, n, rows, rng, shared)
    else:
        values = _values(name, reduction, n, rows, rng)
    if name == "exact" and reduction.stored and not reduction.map:
        _balance(values.reshape(rows, n), rng)
    values = _fit_within(values, n, reduction, second=second)
    if name in _PLANTED and n and not second:
        _plant(values.reshape(rows, n), name, indices, reduction)
    return stored(values, reduction.dtype)


def rounds_nothing(pattern: str, reduction: Reduction) -> bool:
    """True if no partial sum or product of a pattern's elements rounds in the accumulator's type;
    for a transform its reference knows."""
    if reduction.map:
        return False
    if reduction.op.name == "prod":
        return pattern not in _ROUNDED_PRODUCTS
    return reduction.within is not None or pattern in ("exact", "large")


def roundings(pattern: str, reduction: Reduction, n: int, depth: int) -> int:
    """The number of roundings that the bound of a result assumes, for additions of this depth: in a
    product the errors of all multiplications meet."""
    return n if reduction.op.name == "prod" or pattern in _IN_ANY_ORDER else depth


def why_no_pattern(pattern: str, reduction: Reduction) -> str | None:
    """Why a reduction does not support a pattern, as the message of a UsageError; None if it
    does."""
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


def digits(dtype: DType) -> int:
    """Binary digits of a float type's significand, or of an integer without its sign."""
    if dtype.kind != "float":
        return 8 * dtype.size - (dtype.kind == "int")
    return 1 - round(math.log2(dtype.epsilon))


def as_numbers(data: Array, dtype: DType) -> Array:
    """Stored elements as numbers for NumPy: bfloat16 as float32, others unchanged."""
    if dtype.name != "bfloat16":
        return data
    return np.asarray((data.astype(np.uint32) << 16).view(np.float32))


def stored(values: Array, dtype: DType) -> Array:
    """Numbers as stored elements of a type: bfloat16 as its bits."""
    if dtype.name != "bfloat16":
        return values.astype(dtype.storage, copy=False)
    bits = values.astype(np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    nan = np.isnan(values)
    rounded[nan] = (bits[nan] >> 16) & 0x8000 | 0x7FC0
    return rounded


def as_results(values: Array, reduction: Reduction) -> Array:
    """Numbers rounded to the type that results are stored in, in the type they are judged in."""
    if reduction.stored is None:
        return values.astype(reduction.result_dtype)
    with np.errstate(over="ignore"):
        kept = stored(values, reduction.stored)
    return as_numbers(kept, reduction.stored).astype(reduction.acc.storage)


#: A positive number in all float types.
_SMALL = 2.0**-14


def make_positive(data: Array, reduction: Reduction, *, normal: bool = False) -> Array:
    """Stored elements shifted above 0 in the same order; -infinity becomes the smallest number, or
    the smallest `normal` one, and NaN loses its sign. Elements that fit a narrower type keep their
    magnitudes."""
    dtype = reduction.dtype
    if reduction.within and dtype.kind == "int":
        return np.asarray(np.abs(data))
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
    """Stored elements with each NaN replaced by an infinity that is never the extremum."""
    if reduction.dtype.kind != "float":
        return data
    numbers = as_numbers(data, reduction.dtype)
    neutral = np.inf if reduction.op.name.endswith("min") else -np.inf
    return stored(
        np.where(np.isnan(numbers), numbers.dtype.type(neutral), numbers), reduction.dtype
    )


#: Elements that `varies` transforms, and their patterns.
_VARIES_ELEMENTS, _VARIES_PATTERNS = 4096, ("named", "random")


@cache
def varies(reduction: Reduction, *, positive: str = "") -> bool:
    """True if a transform has more than one finite value on the test inputs, which are above 0 if
    `positive`. Raises what `fold_mapped` raises."""
    for pattern in _VARIES_PATTERNS:
        data = make_all(pattern, reduction, _VARIES_ELEMENTS, positive=positive)
        columns = tuple(as_numbers(one, reduction.dtype).reshape(-1, 1) for one in data)
        values = np.asarray(fold_mapped(reduction, columns).result, dtype=float)
        if len(np.unique(values[np.isfinite(values)])) > 1:
            return True
    return False


#: Exponents of the largest powers of two.
_EXPONENT = {"float16": 15, "bfloat16": 127, "float32": 127, "float64": 1023}
#: `close`: elements are among this many neighbours in the last digits.
_NEIGHBOURS = 1000
#: `spread`: log2 of the product's deviation, in standard deviations of one factor.
_SPREAD = 8
#: `large`: exponent of the elements, except for float16, where they are at the end of the range.
_LARGE = 100
#: `cancel`: elements that remain, each below 2^-10.
_REMAINDER = 3


def number_kind(dtype: DType) -> str:
    """The NumPy dtype in which elements are generated: 16-bit floats as float32."""
    return "float32" if dtype.kind == "float" and dtype.size < 8 else dtype.storage


def _range(dtype: DType) -> tuple[Any, Any]:
    """The lowest and highest value of a type: infinities for floats."""
    if dtype.kind == "float":
        return -math.inf, math.inf
    info = np.iinfo(dtype.storage)
    return int(info.min), int(info.max)


def _values(name: str, reduction: Reduction, n: int, rows: int, rng: np.random.Generator) -> Array:
    """`rows * n` numbers of a pattern, before values are planted."""
    size, dtype, op = n * rows, reduction.dtype, reduction.op.name
    kind: Any = number_kind(dtype)
    floats, is_min = dtype.kind == "float", op.endswith("min")
    least, most = _range(dtype)
    values: Array
    match name:
        case "neutral":  # the identity of an extremum
            return np.full(size, most if is_min else least, kind)
        case "finite":  # the finite value next to the identity
            top = (2 - dtype.epsilon) * 2.0 ** _EXPONENT[dtype.name]
            return np.full(size, top if is_min else -top, kind)
        case "one-sided":  # above 0 for a minimum, below for a maximum: padding with 0 shows
            if floats:
                values = rng.random(size, kind)
                return np.asarray(values + 1 if is_min else -1 - values)
            first, last = (1, most) if is_min or not least else (least, -1)
            values = rng.integers(first, last, size, kind, endpoint=True)
            return values
        case "close" | "close-below" if floats:
            # Neighbours, equal in a narrower type; below 0 the order of their bits is reversed.
            steps = rng.integers(0, min(_NEIGHBOURS, int(1 / dtype.epsilon)), size)
            sign = 1 if name == "close" else -1
            return np.asarray(sign * (1 + steps * dtype.epsilon).astype(kind))
        case "close":
            below = rng.integers(0, min(_NEIGHBOURS, most), size, kind)
            return np.asarray(np.array(most, kind) - below)
        case "zeros":  # +0 and -0 are equal: either is the extremum, and the first has the index
            return np.array([0.0, -0.0], kind)[rng.integers(0, 2, size)]
        case "large":  # sums leave the range of float16, and none is rounded
            bits = min(digits(dtype), max(1, digits(reduction.acc) - (n - 1).bit_length()))
            whole = rng.integers(2 ** (bits - 1), 2**bits, size)
            top = _EXPONENT[dtype.name] + 1 if dtype.name == "float16" else _LARGE
            return np.asarray(whole * 2.0 ** (top - bits), kind)
        case "uneven":
            # One 1, and log-uniform values around its last digit: fixed point scaled by the largest
            # loses them all, floats in the worst order a third.
            last_digit = 24 if dtype.name == "float16" else digits(reduction.acc)
            values = np.exp2(rng.random((rows, n)) * 3 - last_digit)
            values[np.arange(rows), rng.integers(0, n, rows)] = 1
            return values.astype(kind).reshape(-1)
        case "lowest" | "highest":
            return np.full(size, least if name == "lowest" else most, kind)
        case "spread":  # factors near +-1 with all their digits, whose product stays in range
            exponents = rng.uniform(-1, 1, size) * min(1.0, _SPREAD / max(n, 1) ** 0.5)
            signs = rng.integers(0, 2, size, np.int8) * 2 - 1
            return np.asarray(np.exp2(exponents) * signs, kind)
        case "named":
            return _named(reduction, size, rng)
        case "ones" | "twos":
            return np.full(size, 1 if name == "ones" else 2, kind)
        case "rising" | "falling":
            return np.tile(_ramp(dtype, n)[:: 1 if name == "rising" else -1], rows)
    if name == "factors" or (op == "prod" and name not in _ROUNDED_PRODUCTS):
        return _factors(dtype, n, rows, rng)  # products of many random values underflow
    if not floats:
        low, high = (0 if name == "positive" else least), most
        if name in ("extremum", "tie"):  # leave room for the planted value
            low, high = least // 2 + 1, most // 2
        values = rng.integers(low, high, size, kind, endpoint=True)
        return values
    if name == "exact":
        return _exact_sum(reduction, n, rows, rng).astype(kind, copy=False)
    values = rng.random(size, kind)
    if name != "positive":
        values *= 2
        values -= 1
    if name == "cancel":
        _cancel(values.reshape(rows, n), rng)
    return values


def _ramp(dtype: DType, n: int) -> Array:
    """From the lowest to the highest value in equal steps, as far as the type has them."""
    if dtype.kind == "float":
        return np.linspace(-1, 1, n, dtype=number_kind(dtype))
    info = np.iinfo(dtype.storage)
    low, high = max(info.min, -(2**61)), min(info.max, 2**61)
    step = max((high - low) // max(n, 1), 0)
    steps = np.arange(n, dtype=np.int64)
    return ((steps * step if step else steps * (high - low) // n) + low).astype(dtype.storage)


#: 2 and 1/2 in a product of +-1: few enough for a finite product of 16-bit inputs.
_PRODUCT_FACTORS = 24


def _factors(dtype: DType, n: int, rows: int, rng: np.random.Generator) -> Array:
    """Factors with an exact product that is never 0: +-1 with a few 2 and 1/2, or odd integers."""
    if dtype.kind != "float":
        info = np.iinfo(dtype.storage)
        odd = rng.integers(info.min, info.max, n * rows, dtype.storage, endpoint=True) | 1
        return np.where(odd == 1, 3, odd).astype(dtype.storage)
    signs = (rng.integers(0, 2, (rows, n), np.int8) * 2 - 1).astype(np.float64)
    count = min(_PRODUCT_FACTORS, n // 4)
    for row in signs if count else ():
        row[rng.choice(n, 2 * count, replace=False)] *= np.array([2.0, 0.5] * count)
    return signs.reshape(-1)


def exact_factors(n: int, rng: np.random.Generator) -> Array:
    """Factors +-1, with an exact product at any length."""
    return rng.integers(0, 2, n, np.int8) * np.int8(2) - np.int8(1)


def _cancel(values: Array, rng: np.random.Generator) -> None:
    """Make every row cancel up to a small remainder: each element has its negative somewhere."""
    n = values.shape[1]
    half = max(0, n - _REMAINDER) // 2
    values[:, half : 2 * half] = -values[:, :half]
    values[:, 2 * half :] /= 1024
    values[:] = values[:, rng.permutation(n)]


def _balance(values: Array, rng: np.random.Generator) -> None:
    """Make every row cancel up to one or two of its smallest units: any type holds that result, and
    every lost element changes it."""
    n = values.shape[1]
    half = max(0, n - 1) // 2
    values[:, half : 2 * half] = -values[:, :half]
    rest = values[:, 2 * half :]
    rest[:] = np.copysign(np.abs(values).min(initial=np.inf, where=values != 0), rest)
    values[:] = values[:, rng.permutation(n)]


def _plant(values: Array, name: str, indices: Sequence[int], reduction: Reduction) -> None:
    """Put a pattern's value at indices of each row; `clash` has +infinity at the first index, and
    at the others a value that makes the result NaN."""
    if name in ("extremum", "tie"):
        edges = (-2.0, 2.0) if reduction.dtype.kind == "float" else _range(reduction.dtype)
        values[:, indices] = edges[not reduction.op.name.endswith("min")]
    elif name == "zero":
        values[:, indices] = 0
    elif name == "clash":
        values[:, indices[1:]] = 0 if reduction.op.name == "prod" else -np.inf
        values[:, indices[0]] = np.inf
    else:
        sign = -1.0 if name.startswith("-") else 1.0
        values[:, indices] = np.copysign(np.nan if name.endswith("nan") else np.inf, sign)


#: `named`: a transform with at most this many values gets each of them equally often.
_KINDS = 4
#: `named`: runs of one number, which fill a block, alternate with mixed runs of this length.
_RUN = 1024


def _named(reduction: Reduction, size: int, rng: np.random.Generator) -> Array:
    numbers, shares = _named_numbers(reduction)
    values = rng.choice(numbers, size, p=shares)
    for start in range(_RUN, size, 2 * _RUN):
        values[start : start + _RUN] = rng.choice(numbers, p=shares)
    return values


@cache
def _named_numbers(reduction: Reduction) -> tuple[Array, Array | None]:
    """The literals of a transform, which may compare elements with them, with both signs and their
    neighbours, and the frequency of each: such that all values of the transform are as frequent.
    None is any frequency, for two inputs or a transform with many values."""
    code = f"auto x = {reduction.map.expression};" if reduction.map else ""
    kind, few = number_kind(reduction.dtype), {0.0, 1.0}
    for number in literals(parse_cuda(code)):
        few |= {sign * number + step for sign in (-1, 1) for step in (-1, 0, 1)}
        few |= {sign * number * share for sign in (-1, 1) for share in (0.75, 1.5)}
    least, most = _range(reduction.dtype)
    if reduction.dtype.kind == "float":
        largest = np.finfo("float16" if reduction.dtype.name == "float16" else kind).max
        least, most = -float(largest) / 2, float(largest) / 2
    else:
        few = {float(int(number)) for number in few}
    numbers = np.array(sorted(number for number in few if least <= number <= most)).astype(kind)
    # Larger values would round when they are added.
    exact = 2.0 ** digits(reduction.dtype)
    sizes = np.abs(numbers.astype(float))
    if reduction.map is None or reduction.inputs > 1:
        return numbers[sizes <= exact], None
    values = np.asarray(fold_mapped(reduction, (numbers.reshape(-1, 1),)).result, dtype=float)
    fits = np.fmin(sizes, np.abs(values)) <= exact
    kinds, which, count = np.unique(values[fits], return_inverse=True, return_counts=True)
    shares = None if len(kinds) > _KINDS else np.asarray(1 / count[which] / len(kinds))
    return numbers[fits], shares


#: Binary digits that show an addition in a 16-bit type, or in the 11 digits of tensor cores.
_ENOUGH = 13
#: Up to this size the sum of all magnitudes fits the accumulator with a digit left for some larger
#: elements; beyond it not even +-1 fits, and only sums of random signs do.
_FITS = 2**21
#: Standard deviations that a partial sum of random signs may reach: of 2^26 partial sums one does
#: with a probability of 3e-10.
_DEVIATIONS = 9
#: Elements are multiples of this: sums in fixed point with fewer binary places lose them. For
#: float16 it is the smallest number, which kernels lose that flush subnormals.
_UNIT = {"float16": 2.0**-24}
_SMALL_UNIT = 2.0**-60


def _exact_sum(reduction: Reduction, n: int, rows: int, rng: np.random.Generator) -> Array:
    """Odd multiples of a small unit with as many digits as fit: up to 2^21 elements no sum of any
    of them rounds, beyond that none in an order that is independent of the values."""
    own, room = digits(reduction.dtype), digits(reduction.acc)
    bits, wide = room - max(n - 1, 0).bit_length(), min(own, _ENOUGH)
    if bits >= wide or n > _FITS:
        return exact_part(reduction, n, n * rows, rng)
    whole = _odd(bits - 1, n * rows, rng).astype(np.int16)
    some = rng.integers(0, n, (rows, 2 ** (room - 1 - wide)))
    few = rng.choice(np.array([-1, 1], np.int16), some.shape)
    few *= 2**wide - 1 - 2 * rng.integers(0, 4, some.shape, np.int16)
    np.put_along_axis(whole.reshape(rows, n), some, few, axis=1)
    return _in_units(whole, reduction)


def exact_part(reduction: Reduction, n: int, count: int, rng: np.random.Generator) -> Array:
    """`count` elements of an array of `n` that is generated in parts: as in `_exact_sum`, but
    without its few wider elements."""
    own, room = digits(reduction.dtype), digits(reduction.acc)
    bits, wide = room - max(n - 1, 0).bit_length(), min(own, _ENOUGH)
    if n > _FITS and bits < wide:
        # The uniform elements' standard deviation is at most n / 3 of their range.
        bits = min(wide, math.floor(room - math.log2(_DEVIATIONS * (n / 3) ** 0.5)))
    return _in_units(_odd(max(1, min(bits, own)), count, rng), reduction)


def _in_units(whole: Array, reduction: Reduction) -> Array:
    """Whole numbers as multiples of the unit, where they are summed."""
    unit = _UNIT.get(reduction.dtype.name, _SMALL_UNIT) if reduction.op.name in _SUMS else 1
    kind = "float64" if reduction.dtype.size == 8 else "float32"
    return np.asarray(np.multiply(whole, unit, dtype=kind))


def _odd(bits: int, size: int, rng: np.random.Generator) -> Array:
    """Odd whole numbers between -2^bits and 2^bits."""
    kind = next(k for k in (np.int8, np.int16, np.int32, np.int64) if bits < 8 * k().itemsize)
    info = np.iinfo(kind)
    whole: Array = rng.integers(info.min, info.max, size, kind, endpoint=True)
    whole >>= kind(info.bits - 1 - bits)
    whole |= kind(1)
    return whole


#: Sample elements of a transform, a safety factor for the sum of its values, and the exponent of
#: the sparsest input, in which one element of 4^11 is not 0.
_SAMPLE, _STRAYS, _SPARSEST = 4096, 1.25, 12


@dataclass(frozen=True, slots=True)
class _Grain:
    """Odd multiples of a unit with this many binary digits; one of `one_in` elements is not 0."""

    bits: int
    unit: float
    one_in: int = 1

    def elements(self, size: int, rng: np.random.Generator, places: np.random.Generator) -> Array:
        """`size` elements; `places` draws which are not 0."""
        values = _odd(self.bits, size, rng) * self.unit
        if self.one_in > 1:
            values *= places.integers(0, self.one_in, size) == 0
        return np.asarray(values)


def _exact_mapped(
    reduction: Reduction, n: int, rows: int, rng: np.random.Generator, places: np.random.Generator
) -> Array:
    """Elements of one input whose transformed values add up without rounding, with as many digits
    as fit; small whole numbers if none are known. Both inputs are 0 at the same `places`, so that a
    transform of their difference is 0 there, too."""
    room = 2.0 ** digits(reduction.stored or reduction.acc) / _STRAYS
    fits = (grain for grain, units in _grains(reduction).items() if n * units <= room)
    return next(fits, _Grain(1, 1.0)).elements(n * rows, rng, places)


@cache
def _grains(reduction: Reduction) -> dict[_Grain, float]:
    """Kinds of elements, the widest first, and the average of a transformed value in units of its
    last digit."""
    units = (_UNIT.get(reduction.dtype.name, _SMALL_UNIT), 1.0)
    widest = min(digits(reduction.dtype), _ENOUGH)
    grains = [_Grain(bits, unit) for bits in range(widest, 0, -1) for unit in units]
    grains += [_Grain(1, unit, 4**k) for k in range(1, _SPARSEST) for unit in units]
    kind = "float64" if reduction.dtype.size == 8 else "float32"
    samples = []
    for k in range(reduction.inputs):
        rng, places = np.random.default_rng([0, k]), np.random.default_rng([0, 2])
        rows = [grain.elements(_SAMPLE, rng, places) for grain in grains]
        samples.append(np.array(rows, kind))
    in_units = fold_mapped(reduction, tuple(samples)).units
    assert in_units is not None
    return dict(zip(grains, (in_units / _SAMPLE).tolist(), strict=True))


#: Multiplicative hashing: a factor and a shift after which a small number depends on all bits of an
#: element (Knuth, The Art of Computer Programming 3, 6.4).
_MIXED, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
#: A transform may multiply two elements, or the differences of two pairs.
_OF_MAP = 4
#: Exponents of the largest power of two that may stand alone in 16-bit types.
_TOP = {"float16": 14, "bfloat16": 120}


def _fit_within(values: Array, n: int, reduction: Reduction, *, second: bool) -> Array:
    """Numbers in rows of `n`, made small and whole if the reduction is `within` a type: the
    magnitudes of a row, transformed, add up to a number of that type that is nearly its largest,
    since the middle element gets all that the others leave. If the type has no room for all, the
    first, the last and some others are not 0. Infinities, NaN and non-negative inputs stay so. At
    some sizes all elements but a power of two beyond all digits are 0. The `second` input of a
    transform has 1 where the first has its large number, or the other way round."""
    within = reduction.within
    if not n or within is None:
        return values
    rows, total = values.reshape(-1, n), 2 ** digits(within) - (within.kind != "float")
    signed = bool((rows < 0).any())
    room = total // 2 // (_OF_MAP if reduction.map else 1)  # for all but the large one
    places = _some_indices(n, 2 * -(-n // room)) if n > room else slice(None)
    most = max(1, room // n)
    most = math.isqrt(most) if reduction.map else most
    fit = np.zeros_like(rows)
    fit[:, places] = _small_numbers(rows[:, places], most, signed=signed)
    large, in_second = total - room * (n > 1), n % 2 == 1
    if reduction.map:
        large = _largest_power(reduction, total // 2, second=in_second)
    top = _lone_power(reduction, second=in_second)
    if top and n * int(_MIXED) >> 62 & 3 == 0:  # at one in four sizes
        fit[:], large = 0, top
    if reduction.inputs > 1 and second != in_second:
        large = 1
    if rows.dtype.kind != "f":
        large = min(large, int(np.iinfo(rows.dtype).max))
    fit[:, n // 2] = -large if signed and n % 2 == 0 else large
    np.copyto(fit, rows, where=~np.isfinite(rows))
    return fit.reshape(-1)


def _some_indices(n: int, one_in: int) -> Array:
    """The first, the last, and one of every `one_in` of `n` indices."""
    starts = np.arange(0, n, one_in, dtype=np.uint64)
    indices = starts + (starts * _MIXED >> _SHIFT) % np.uint64(one_in)
    return np.concatenate([[0], np.minimum(indices, n - 1).astype(np.int64), [n - 1]])


def _small_numbers(values: Array, most: int, *, signed: bool) -> Array:
    """Whole numbers up to `most`: the given ones, and hashes of the others."""
    least = -most if signed else 0
    words = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").astype(np.uint64)
    hashes = (words * _MIXED >> _SHIFT) % np.uint64(most - least + 1)
    with np.errstate(invalid="ignore"):
        kept = (values >= least) & (values <= most) & (values == np.trunc(values))
    return np.where(kept, values, (hashes.astype(np.int64) + least).astype(values.dtype))


def _lone_power(reduction: Reduction, *, second: bool) -> int:
    """The largest power of two that may stand alone among zeros, if a transform keeps it one; 0 if
    the `within` type has none beyond its digits."""
    assert reduction.within is not None
    if reduction.within.kind != "float":
        return 0
    top = 1 << _TOP.get(reduction.dtype.name, 8 * reduction.dtype.size - 2)
    if reduction.map is None:
        return top
    power = _largest_power(reduction, top, second=second)
    value = _transformed(reduction, power, second=second)
    return power if math.frexp(value)[0] == 0.5 else 0


@cache
def _largest_power(reduction: Reduction, most: int, *, second: bool) -> int:
    """The largest power of two that a transform maps to at most `most`; with 1 as its other
    input."""
    powers = (1 << k for k in range(most.bit_length() - 1, 0, -1))
    return next((p for p in powers if _transformed(reduction, p, second=second) <= most), 1)


def _transformed(reduction: Reduction, value: int, *, second: bool) -> float:
    """The magnitude of a transformed value."""
    kind = number_kind(reduction.dtype)
    if reduction.dtype.kind != "float" and value > np.iinfo(kind).max:
        return math.inf
    pair = (1, value) if second and reduction.inputs > 1 else (value, 1)
    rows = tuple(np.array([[one]], kind) for one in pair[: reduction.inputs])
    with np.errstate(all="ignore"):
        return abs(float(fold_mapped(reduction, rows).result[0]))
