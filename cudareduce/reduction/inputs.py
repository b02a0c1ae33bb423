"""Input data in named patterns, generated from a seed, for which wrong kernels give wrong results.

With random data, an error bound hides one lost element in a million. So each operator has patterns
with an exact result. Minima and maxima have patterns that put the result at each index that a
kernel might miss. `patterns.py` selects the patterns for a reduction.
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
from cudareduce.reduction.transforms import reduce_transformed

Array = np.ndarray

#: Patterns that `patterns_for` may select and --pattern does not accept.
_SPECIAL = ("neutral", "finite", "one-sided", "close", "close-below", "zeros", "large", "uneven",
            "lowest", "highest", "spread", "named", "factors")  # fmt: skip
#: Patterns that put a value at given indices of each row.
_PLANTED = ("extremum", "tie", "nan", "-nan", "inf", "-inf", "zero", "clash")
_SUMS = ("sum", "mean")
#: Patterns whose products round; in all others every partial product is exact.
_ROUNDED_PRODUCTS = ("spread", "rising", "falling", "cancel")
#: Patterns whose error bound assumes a sequential sum, so that it holds for any summation order.
_IN_ANY_ORDER = ("uneven",)


def make_all(
    pattern: str, reduction: Reduction, n: int, rows: int = 1, seed: int = 0, positive: str = ""
) -> tuple[Array, ...]:
    """The elements of each input of a reduction, in memory order. The pattern's special values are
    in the first input only. If `positive` is not empty, all elements are shifted above 0; if it is
    "normal", also above the subnormal numbers."""
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
    """`rows * n` elements of a pattern in the storage type of `reduction.dtype`, row by row. A
    pattern NAME:A,B puts its special value at the indices A and B of each row.

    Elements depend on seed, n and rows only; the `second` input of a transform has different ones.
    Raises ValueError for an unknown pattern.
    """
    rng = np.random.default_rng([seed, n, rows, *([1] if second else [])])
    name, _, text = pattern.partition(":")
    indices = [int(index) for index in text.split(",")] if text else []
    if name not in (*PATTERNS, *_SPECIAL, *_PLANTED):
        raise ValueError(f"there is no pattern {pattern!r}")
    if name != "nan" and bool(indices) != (name in _PLANTED):
        rule = f"needs indices, such as {name}:0,5" if name in _PLANTED else "takes no indices"
        raise ValueError(f"the pattern {pattern!r} is invalid: {name} {rule}")
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


def is_exact(pattern: str, reduction: Reduction) -> bool:
    """True if all partial sums or products of the pattern's elements are exact in the accumulator.
    False for a transform, whose `Reference.exact` gives this instead."""
    if reduction.map:
        return False
    if reduction.op.name == "prod":
        return pattern not in _ROUNDED_PRODUCTS
    return reduction.within is not None or pattern in ("exact", "large")


def roundings(pattern: str, reduction: Reduction, n: int, depth: int) -> int:
    """The number of roundings that the error bound of a result assumes: `depth`, the depth of the
    summation tree. It is `n` for products, whose relative errors add up over all factors, and for
    patterns whose bound must hold for any summation order."""
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
        return "--pattern cancel does not work with --map: transformed elements would not cancel"
    return None


def digits(dtype: DType) -> int:
    """The number of binary digits of a float type's significand, or of an integer without sign."""
    if dtype.kind != "float":
        return 8 * dtype.size - (dtype.kind == "int")
    return 1 - round(math.log2(dtype.epsilon))


def as_numbers(data: Array, dtype: DType) -> Array:
    """Converts elements from storage to numbers: bfloat16 to float32, others unchanged."""
    if dtype.name != "bfloat16":
        return data
    return np.asarray((data.astype(np.uint32) << 16).view(np.float32))


def stored(values: Array, dtype: DType) -> Array:
    """Converts numbers to the storage of a type, with rounding; bfloat16 becomes its bits."""
    if dtype.name != "bfloat16":
        return values.astype(dtype.storage, copy=False)
    bits = values.astype(np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    nan = np.isnan(values)
    rounded[nan] = (bits[nan] >> 16) & 0x8000 | 0x7FC0
    return rounded


def as_results(values: Array, reduction: Reduction) -> Array:
    """Rounds numbers to the type in which a kernel stores results. Narrowed results are returned in
    the accumulator's type, in which they are compared."""
    if reduction.stored is None:
        return values.astype(reduction.result_dtype)
    with np.errstate(over="ignore"):
        kept = stored(values, reduction.stored)
    return as_numbers(kept, reduction.stored).astype(reduction.acc.storage)


#: A positive normal number in every float type.
_SMALL = 2.0**-14


def make_positive(data: Array, reduction: Reduction, *, normal: bool = False) -> Array:
    """Shifts stored elements above 0 without changing their order. -infinity becomes the smallest
    positive number, or the smallest normal one if `normal`; NaN loses its sign. Integers of a
    reduction `within` a type become their magnitudes."""
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
    """Replaces each NaN by the infinity that is the identity of the minimum or maximum."""
    if reduction.dtype.kind != "float":
        return data
    numbers = as_numbers(data, reduction.dtype)
    neutral = np.inf if reduction.op.name.endswith("min") else -np.inf
    return stored(
        np.where(np.isnan(numbers), numbers.dtype.type(neutral), numbers), reduction.dtype
    )


#: The number of elements that `varies` transforms, and their patterns.
_VARIES_ELEMENTS, _VARIES_PATTERNS = 4096, ("named", "random")


@cache
def varies(reduction: Reduction, *, positive: str = "") -> bool:
    """True if a transform is not constant: it has several finite values on the test inputs, which
    are above 0 if `positive`. Raises what `reduce_transformed` raises."""
    for pattern in _VARIES_PATTERNS:
        data = make_all(pattern, reduction, _VARIES_ELEMENTS, positive=positive)
        columns = tuple(as_numbers(array, reduction.dtype).reshape(-1, 1) for array in data)
        values = np.asarray(reduce_transformed(reduction, columns).result, dtype=float)
        if len(np.unique(values[np.isfinite(values)])) > 1:
            return True
    return False


#: Exponents of the largest power of two of each float type.
_EXPONENT = {"float16": 15, "bfloat16": 127, "float32": 127, "float64": 1023}
#: Pattern `close`: elements are at most this many representable values apart.
_NEIGHBOURS = 1000
#: Pattern `spread`: exponents of factors are below _SPREAD / sqrt(n), so that the product stays in
#: range.
_SPREAD = 8
#: Pattern `large`: exponent of the elements. Those of float16 are at the end of its range.
_LARGE = 100
#: Pattern `cancel`: this many elements, each below 2^-10, have no negative counterpart.
_REMAINDER = 3


def number_dtype(dtype: DType) -> str:
    """The NumPy dtype in which elements are generated: float32 for 16-bit floats."""
    return "float32" if dtype.kind == "float" and dtype.size < 8 else dtype.storage


def _range(dtype: DType) -> tuple[Any, Any]:
    """The lowest and highest value of a type: infinities for floats."""
    if dtype.kind == "float":
        return -math.inf, math.inf
    info = np.iinfo(dtype.storage)
    return int(info.min), int(info.max)


def _values(name: str, reduction: Reduction, n: int, rows: int, rng: np.random.Generator) -> Array:
    """`rows * n` numbers of a pattern without the special values of `_plant`."""
    size, dtype, op = n * rows, reduction.dtype, reduction.op.name
    kind: Any = number_dtype(dtype)
    floats, is_min = dtype.kind == "float", op.endswith("min")
    least, most = _range(dtype)
    values: Array
    match name:
        case "neutral":  # the identity of a minimum or maximum
            return np.full(size, most if is_min else least, kind)
        case "finite":  # the finite value next to the identity
            top = (2 - dtype.epsilon) * 2.0 ** _EXPONENT[dtype.name]
            return np.full(size, top if is_min else -top, kind)
        case "one-sided":  # above 0 for a minimum, below 0 for a maximum: exposes padding with 0
            if floats:
                values = rng.random(size, kind)
                return np.asarray(values + 1 if is_min else -1 - values)
            first, last = (1, most) if is_min or not least else (least, -1)
            values = rng.integers(first, last, size, kind, endpoint=True)
            return values
        case "close" | "close-below" if floats:
            # Adjacent values, equal in a narrower type. Below 0, their bit patterns as integers are
            # in reverse order.
            steps = rng.integers(0, min(_NEIGHBOURS, int(1 / dtype.epsilon)), size)
            sign = 1 if name == "close" else -1
            return np.asarray(sign * (1 + steps * dtype.epsilon).astype(kind))
        case "close":
            below = rng.integers(0, min(_NEIGHBOURS, most), size, kind)
            return np.asarray(np.array(most, kind) - below)
        case "zeros":  # +0 and -0 are equal: either is a right minimum, the first a right index
            return np.array([0.0, -0.0], kind)[rng.integers(0, 2, size)]
        case "large":  # sums overflow float16 and are exact in the accumulator
            bits = min(digits(dtype), max(1, digits(reduction.acc) - (n - 1).bit_length()))
            whole = rng.integers(2 ** (bits - 1), 2**bits, size)
            top = _EXPONENT[dtype.name] + 1 if dtype.name == "float16" else _LARGE
            return np.asarray(whole * 2.0 ** (top - bits), kind)
        case "uneven":
            # A single 1, and log-uniform values near its last digit. Fixed point scaled by the
            # largest element loses all of them; floats in the worst order lose a third.
            last_digit = 24 if dtype.name == "float16" else digits(reduction.acc)
            values = np.exp2(rng.random((rows, n)) * 3 - last_digit)
            values[np.arange(rows), rng.integers(0, n, rows)] = 1
            return values.astype(kind).reshape(-1)
        case "lowest" | "highest":
            return np.full(size, least if name == "lowest" else most, kind)
        case "spread":  # factors near +-1 with full significands, whose product stays in range
            exponents = rng.uniform(-1, 1, size) * min(1.0, _SPREAD / max(n, 1) ** 0.5)
            signs = rng.integers(0, 2, size, np.int8) * 2 - 1
            return np.asarray(np.exp2(exponents) * signs, kind)
        case "named":
            return _literal_values(reduction, size, rng)
        case "ones" | "twos":
            return np.full(size, 1 if name == "ones" else 2, kind)
        case "rising" | "falling":
            return np.tile(_ramp(dtype, n)[:: 1 if name == "rising" else -1], rows)
    if name == "factors" or (op == "prod" and name not in _ROUNDED_PRODUCTS):
        return _factors(dtype, n, rows, rng)  # products of many random values underflow
    if not floats:
        low, high = (0 if name == "positive" else least), most
        if name in ("extremum", "tie"):  # smaller than the value that `_plant` adds
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
    """`n` values in equal steps, from -1 to 1 or over the range of an integer type. Steps below 1
    are rounded."""
    if dtype.kind == "float":
        return np.linspace(-1, 1, n, dtype=number_dtype(dtype))
    info = np.iinfo(dtype.storage)
    low, high = max(info.min, -(2**61)), min(info.max, 2**61)
    step = max((high - low) // max(n, 1), 0)
    steps = np.arange(n, dtype=np.int64)
    return ((steps * step if step else steps * (high - low) // n) + low).astype(dtype.storage)


#: The number of factors 2, and of 1/2, in a product: few enough for 16-bit floats not to overflow.
_PRODUCT_FACTORS = 24


def _factors(dtype: DType, n: int, rows: int, rng: np.random.Generator) -> Array:
    """`rows * n` factors with an exact product other than 0: floats are +-1 with a few 2 and 1/2,
    integers are odd."""
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
    """`n` factors of +-1, whose product is exact for any `n`."""
    return rng.integers(0, 2, n, np.int8) * np.int8(2) - np.int8(1)


def _cancel(values: Array, rng: np.random.Generator) -> None:
    """Replace half of each row by the negatives of the other half, except for a small remainder,
    and shuffle, so that sums cancel."""
    n = values.shape[1]
    half = max(0, n - _REMAINDER) // 2
    values[:, half : 2 * half] = -values[:, :half]
    values[:, 2 * half :] /= 1024
    values[:] = values[:, rng.permutation(n)]


def _balance(values: Array, rng: np.random.Generator) -> None:
    """As `_cancel`, but the remainder is one or two of the row's smallest elements. Any type can
    hold this result, and every lost element changes it."""
    n = values.shape[1]
    half = max(0, n - 1) // 2
    values[:, half : 2 * half] = -values[:, :half]
    rest = values[:, 2 * half :]
    rest[:] = np.copysign(np.abs(values).min(initial=np.inf, where=values != 0), rest)
    values[:] = values[:, rng.permutation(n)]


def _plant(values: Array, name: str, indices: Sequence[int], reduction: Reduction) -> None:
    """Write the pattern's special value to these indices of each row. `clash` writes +infinity to
    the first index, and to the others a value with which the result is NaN."""
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


#: Pattern `named`: if a transform has at most this many values, all are equally frequent.
_KINDS = 4
#: Pattern `named`: runs of one number, which fill a block, alternate with mixed runs as long.
_RUN = 1024


def _literal_values(reduction: Reduction, size: int, rng: np.random.Generator) -> Array:
    numbers, probabilities = _literal_numbers(reduction)
    values = rng.choice(numbers, size, p=probabilities)
    for start in range(_RUN, size, 2 * _RUN):
        values[start : start + _RUN] = rng.choice(numbers, p=probabilities)
    return values


@cache
def _literal_numbers(reduction: Reduction) -> tuple[Array, Array | None]:
    """Numbers derived from the literals of a transform, which may compare elements with them: with
    both signs, and values nearby. The second array holds probabilities that make all values of the
    transform equally frequent. None means equal probabilities: for a transform of two inputs or
    with many values."""
    code = f"auto x = {reduction.map.expression};" if reduction.map else ""
    kind, few = number_dtype(reduction.dtype), {0.0, 1.0}
    for number in literals(parse_cuda(code)):
        few |= {sign * number + step for sign in (-1, 1) for step in (-1, 0, 1)}
        few |= {sign * number * factor for sign in (-1, 1) for factor in (0.75, 1.5)}
    least, most = _range(reduction.dtype)
    if reduction.dtype.kind == "float":
        largest = np.finfo("float16" if reduction.dtype.name == "float16" else kind).max
        least, most = -float(largest) / 2, float(largest) / 2
    else:
        few = {float(int(number)) for number in few}
    numbers = np.array(sorted(number for number in few if least <= number <= most)).astype(kind)
    # Sums of larger values would round.
    exact = 2.0 ** digits(reduction.dtype)
    sizes = np.abs(numbers.astype(float))
    if reduction.map is None or reduction.inputs > 1:
        return numbers[sizes <= exact], None
    values = np.asarray(
        reduce_transformed(reduction, (numbers.reshape(-1, 1),)).result, dtype=float
    )
    fits = np.fmin(sizes, np.abs(values)) <= exact
    kinds, which, count = np.unique(values[fits], return_inverse=True, return_counts=True)
    probabilities = None if len(kinds) > _KINDS else np.asarray(1 / count[which] / len(kinds))
    return numbers[fits], probabilities


#: Elements with this many binary digits expose additions in a 16-bit type, or in the 11 digits of
#: tensor cores.
_ENOUGH_DIGITS = 13
#: Up to this size the sum of all magnitudes fits the accumulator, with a digit left for some larger
#: elements. Beyond it only sums with random signs fit, not sums of magnitudes.
_MAX_MAGNITUDES = 2**21
#: Partial sums with random signs are assumed to stay below this many standard deviations. The
#: probability that one of 2^26 partial sums exceeds it is 3e-10.
_DEVIATIONS = 9
#: Exact elements are multiples of this unit, so that sums in fixed point with fewer binary places
#: lose them. For float16 it is the smallest subnormal number, so that flushing subnormals shows.
_UNIT = {"float16": 2.0**-24}
_SMALL_UNIT = 2.0**-60


def _exact_sum(reduction: Reduction, n: int, rows: int, rng: np.random.Generator) -> Array:
    """Odd multiples of a small unit, with as many digits as possible for exact sums. Up to 2^21
    elements per row no sum of any of them rounds. Beyond that, no sum rounds whose order does not
    depend on the values."""
    element_digits, acc_digits = digits(reduction.dtype), digits(reduction.acc)
    bits, wide = acc_digits - max(n - 1, 0).bit_length(), min(element_digits, _ENOUGH_DIGITS)
    if bits >= wide or n > _MAX_MAGNITUDES:
        return exact_elements(reduction, n, n * rows, rng)
    whole = _odd(bits - 1, n * rows, rng).astype(np.int16)
    some = rng.integers(0, n, (rows, 2 ** (acc_digits - 1 - wide)))
    few = rng.choice(np.array([-1, 1], np.int16), some.shape)
    few *= 2**wide - 1 - 2 * rng.integers(0, 4, some.shape, np.int16)
    np.put_along_axis(whole.reshape(rows, n), some, few, axis=1)
    return _in_units(whole, reduction)


def exact_elements(reduction: Reduction, n: int, count: int, rng: np.random.Generator) -> Array:
    """`count` elements of an array of `n` elements that is generated in parts. Their sums are exact
    as in `_exact_sum`, but there are no elements with more digits than the others."""
    element_digits, acc_digits = digits(reduction.dtype), digits(reduction.acc)
    bits, wide = acc_digits - max(n - 1, 0).bit_length(), min(element_digits, _ENOUGH_DIGITS)
    if n > _MAX_MAGNITUDES and bits < wide:
        # The variance of a sum of n uniform elements up to 2^bits is n / 3 * 4^bits.
        bits = min(wide, math.floor(acc_digits - math.log2(_DEVIATIONS * (n / 3) ** 0.5)))
    return _in_units(_odd(max(1, min(bits, element_digits)), count, rng), reduction)


def _in_units(whole: Array, reduction: Reduction) -> Array:
    """Multiplies whole numbers by the unit of the type, for sums and means only."""
    unit = _UNIT.get(reduction.dtype.name, _SMALL_UNIT) if reduction.op.name in _SUMS else 1
    kind = "float64" if reduction.dtype.size == 8 else "float32"
    return np.asarray(np.multiply(whole, unit, dtype=kind))


def _odd(bits: int, size: int, rng: np.random.Generator) -> Array:
    """`size` random odd integers between -2^bits and 2^bits."""
    kind = next(k for k in (np.int8, np.int16, np.int32, np.int64) if bits < 8 * k().itemsize)
    info = np.iinfo(kind)
    whole: Array = rng.integers(info.min, info.max, size, kind, endpoint=True)
    whole >>= kind(info.bits - 1 - bits)
    whole |= kind(1)
    return whole


#: Elements in a sample of transformed values, a safety factor for the sum of all of them, and the
#: limit of k for inputs in which one element in 4^k is not 0.
_SAMPLE, _SAFETY, _SPARSEST = 4096, 1.25, 12


@dataclass(frozen=True, slots=True)
class _OddMultiples:
    """Random elements: odd multiples of `unit` with `bits` binary digits, of which only one in
    `one_in` is not 0."""

    bits: int
    unit: float
    one_in: int = 1

    def elements(self, size: int, rng: np.random.Generator, places: np.random.Generator) -> Array:
        """`size` elements; `places` selects those that are not 0."""
        values = _odd(self.bits, size, rng) * self.unit
        if self.one_in > 1:
            values *= places.integers(0, self.one_in, size) == 0
        return np.asarray(values)


def _exact_mapped(
    reduction: Reduction, n: int, rows: int, rng: np.random.Generator, places: np.random.Generator
) -> Array:
    """One input whose transformed values are summed without rounding. Elements have as many digits
    as this allows; they are +-1 if no choice is known to be exact. `places` is the generator of the
    indices that are 0: with the same one, two inputs are 0 at the same indices."""
    limit = 2.0 ** digits(reduction.stored or reduction.acc) / _SAFETY
    sizes = _transformed_sizes(reduction).items()
    fits = (elements for elements, units in sizes if n * units <= limit)
    return next(fits, _OddMultiples(1, 1.0)).elements(n * rows, rng, places)


@cache
def _transformed_sizes(reduction: Reduction) -> dict[_OddMultiples, float]:
    """Choices of elements, those with most digits first. The value is the mean magnitude of a
    transformed element, in units of the last digit of all transformed elements."""
    units = (_UNIT.get(reduction.dtype.name, _SMALL_UNIT), 1.0)
    widest = min(digits(reduction.dtype), _ENOUGH_DIGITS)
    choices = [_OddMultiples(bits, unit) for bits in range(widest, 0, -1) for unit in units]
    choices += [_OddMultiples(1, unit, 4**k) for k in range(1, _SPARSEST) for unit in units]
    kind = "float64" if reduction.dtype.size == 8 else "float32"
    samples = []
    for k in range(reduction.inputs):
        rng, places = np.random.default_rng([0, k]), np.random.default_rng([0, 2])
        rows = [choice.elements(_SAMPLE, rng, places) for choice in choices]
        samples.append(np.array(rows, kind))
    in_units = reduce_transformed(reduction, tuple(samples)).units
    assert in_units is not None
    return dict(zip(choices, (in_units / _SAMPLE).tolist(), strict=True))


#: Factor and shift of multiplicative hashing, whose result depends on all bits of an element
#: (Knuth, The Art of Computer Programming 3, 6.4).
_HASH_FACTOR, _HASH_SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
#: A transform may multiply two differences of elements, which is up to 4 times their product.
_MAP_FACTOR = 4
#: Exponents of the only element other than 0 in a row of 16-bit floats (see `_lone_power`).
_LONE_EXPONENT = {"float16": 14, "bfloat16": 120}


def _fit_within(values: Array, n: int, reduction: Reduction, *, second: bool) -> Array:
    """Replaces the numbers, in rows of `n`, by small whole numbers such that partial sums are exact
    in the type `reduction.within`; without `within`, returns them unchanged.

    The transformed magnitudes of a row add up to nearly the largest exact integer of that type: the
    middle element takes what the others leave. If not all elements can be 1, only the first, the
    last and some others are not 0. At one in four sizes a power of two, larger than that integer,
    is the only element other than 0. Infinities and NaN stay, and non-negative inputs stay
    non-negative. Where one input of a transform has its large element, the other has 1."""
    within = reduction.within
    if not n or within is None:
        return values
    rows, total = values.reshape(-1, n), 2 ** digits(within) - (within.kind != "float")
    signed = bool((rows < 0).any())
    room = total // 2 // (_MAP_FACTOR if reduction.map else 1)  # sum of all but the large element
    places = _some_indices(n, 2 * -(-n // room)) if n > room else slice(None)
    most = max(1, room // n)
    most = math.isqrt(most) if reduction.map else most
    fit = np.zeros_like(rows)
    fit[:, places] = _small_numbers(rows[:, places], most, signed=signed)
    large, in_second = total - room * (n > 1), n % 2 == 1
    if reduction.map:
        large = _largest_power(reduction, total // 2, second=in_second)
    top = _lone_power(reduction, second=in_second)
    if top and n * int(_HASH_FACTOR) >> 62 & 3 == 0:  # at one in four sizes
        fit[:], large = 0, top
    if reduction.inputs > 1 and second != in_second:
        large = 1
    if rows.dtype.kind != "f":
        large = min(large, int(np.iinfo(rows.dtype).max))
    fit[:, n // 2] = -large if signed and n % 2 == 0 else large
    np.copyto(fit, rows, where=~np.isfinite(rows))
    return fit.reshape(-1)


def _some_indices(n: int, one_in: int) -> Array:
    """The first and the last of `n` indices, and one in each group of `one_in`."""
    starts = np.arange(0, n, one_in, dtype=np.uint64)
    indices = starts + (starts * _HASH_FACTOR >> _HASH_SHIFT) % np.uint64(one_in)
    return np.concatenate([[0], np.minimum(indices, n - 1).astype(np.int64), [n - 1]])


def _small_numbers(values: Array, most: int, *, signed: bool) -> Array:
    """Whole numbers of at most `most`: those in `values` stay, others are replaced by a hash."""
    least = -most if signed else 0
    words = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").astype(np.uint64)
    hashes = (words * _HASH_FACTOR >> _HASH_SHIFT) % np.uint64(most - least + 1)
    with np.errstate(invalid="ignore"):
        kept = (values >= least) & (values <= most) & (values == np.trunc(values))
    return np.where(kept, values, (hashes.astype(np.int64) + least).astype(values.dtype))


def _lone_power(reduction: Reduction, *, second: bool) -> int:
    """The largest power of two for a row in which it is the only element other than 0; its
    transformed value must be a power of two as well. 0 if there is none, as for integer types."""
    assert reduction.within is not None
    if reduction.within.kind != "float":
        return 0
    top = 1 << _LONE_EXPONENT.get(reduction.dtype.name, 8 * reduction.dtype.size - 2)
    if reduction.map is None:
        return top
    power = _largest_power(reduction, top, second=second)
    value = _transformed(reduction, power, second=second)
    return power if math.frexp(value)[0] == 0.5 else 0


@cache
def _largest_power(reduction: Reduction, most: int, *, second: bool) -> int:
    """The largest power of two whose transformed value is at most `most`; the other input is 1."""
    powers = (1 << k for k in range(most.bit_length() - 1, 0, -1))
    return next((p for p in powers if _transformed(reduction, p, second=second) <= most), 1)


def _transformed(reduction: Reduction, value: int, *, second: bool) -> float:
    """The magnitude of the transform of `value`, with 1 as the other input."""
    kind = number_dtype(reduction.dtype)
    if reduction.dtype.kind != "float" and value > np.iinfo(kind).max:
        return math.inf
    pair = (1, value) if second and reduction.inputs > 1 else (value, 1)
    rows = tuple(np.array([[element]], kind) for element in pair[: reduction.inputs])
    with np.errstate(all="ignore"):
        return abs(float(reduce_transformed(reduction, rows).result[0]))
