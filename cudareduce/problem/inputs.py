"""Input data: named patterns, made from a seed, whose answers are hard to get right by luck.

Random data within an error bound does not notice one lost element among a million; each operator
therefore has patterns whose answer is exact, and for the extrema one that puts the answer at every
place where a kernel might look away. `nets` says which of them verify what.
"""

from __future__ import annotations

import numpy as np

from cudareduce.problem.dtypes import DType
from cudareduce.problem.exact import digits, exact_mapped, exact_sum, factors
from cudareduce.problem.operators import Reduction
from cudareduce.problem.patterns import PATTERNS
from cudareduce.problem.special import PLANTED, SPECIAL, number_kind, plant
from cudareduce.problem.within import fitted

Array = np.ndarray

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
