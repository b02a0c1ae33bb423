"""Input data: named patterns, made from a seed, whose answers are hard to get right by luck.

Random data within an error bound does not notice one lost element among a million; each operator
therefore has patterns whose answer is exact, and for the extrema one that puts the answer at every
place where a kernel might look away.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cudareduce.problem.dtypes import DType
from cudareduce.problem.operators import Reduction
from cudareduce.problem.patterns import PATTERNS

Array = np.ndarray

_SUMS = ("sum", "mean")
#: What finds faults of the extrema, besides what a record may name.
_ONLY_TO_VERIFY = ("one-sided", "extremum", "factors")
_EXTREMA = ("min", "max", "argmin", "argmax")
#: Above this many elements +-1..8 could reach 2^24, where float32 no longer counts by ones.
_EXACT_WIDE = 2**21
#: 2 and 1/2 in a product of +-1, few enough for the product to stay finite in 16-bit inputs too.
_PRODUCT_FACTORS = 24
#: What is left of a sum that cancels: this many small elements, below 2^-10.
_REMAINDER = 3


def patterns_for(reduction: Reduction, n: int, tile: int) -> list[str]:
    """The names of the patterns that verify a reduction of `n` elements in tiles of `tile`, the
    decisive one first; `extremum:K` has its answer at position K."""
    if reduction.op.name in _SUMS:
        floats = reduction.dtype.kind == "float"
        return ["exact", "random", "positive"] if floats else ["random", "positive"]
    if reduction.op.name in _EXTREMA:
        places = [f"extremum:{place}" for place in _places(n, tile)]
        nans = ["nan"] if reduction.dtype.kind == "float" else []
        return ["rising", "falling", "one-sided", *places, *nans]
    if reduction.op.expression and reduction.dtype.kind == "float":
        return ["random", "factors"]
    return ["random"]


def _places(n: int, tile: int) -> Iterable[int]:
    """The first and last element, and both sides of the first, a middle and the last tile edge."""
    edges = {tile, n // 2 // tile * tile, (n - 1) // tile * tile} if n else set()
    places = {0, n - 1} | edges | {edge - 1 for edge in edges}
    return sorted(place for place in places if 0 <= place < n)


def make(pattern: str, reduction: Reduction, n: int, rows: int = 1, seed: int = 0) -> Array:
    """`rows * n` elements of a pattern as one flat array, row behind row, each row by the
    pattern, in the storage type of `reduction.dtype`.

    The same seed, at least 0, with the same `n` and `rows` gives the same elements. A ValueError if
    there is no such pattern.
    """
    rng = np.random.default_rng([seed, n, rows])
    name, _, place = pattern.partition(":")
    if name not in (*PATTERNS, *_ONLY_TO_VERIFY) or bool(place) != (name == "extremum"):
        raise ValueError(f"there is no pattern {pattern!r}")
    values = _values(name, reduction, n, rows, rng)
    low = reduction.op.name.endswith("min")
    if name == "extremum" and n:
        values.reshape(rows, n)[:, int(place)] = _edge(reduction.dtype, low)
    if name == "nan" and n:
        values.reshape(rows, n)[:, [n // 2, n - 1]] = np.nan
    return _store(values, reduction.dtype)


def as_numbers(data: Array, dtype: DType) -> Array:
    """Stored elements as numbers NumPy can reckon with: bfloat16 as float32, others as they are."""
    if dtype.name != "bfloat16":
        return data
    return np.asarray((data.astype(np.uint32) << 16).view(np.float32))


def _store(values: Array, dtype: DType) -> Array:
    if dtype.name != "bfloat16":
        return values.astype(dtype.storage, copy=False)
    bits = values.astype(np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.asarray(np.where(np.isnan(values), 0x7FC0, rounded), np.uint16)


def _values(name: str, reduction: Reduction, n: int, rows: int, rng: np.random.Generator) -> Array:
    size, dtype, op = n * rows, reduction.dtype, reduction.op.name
    if name == "one-sided":  # all values beyond 0, so that padding with 0 shows
        return _one_sided(reduction, size, rng)
    kind = np.dtype("float32") if dtype.kind == "float" and dtype.size < 8 else dtype.storage
    if name in ("ones", "twos"):
        return np.full(size, 1 if name == "ones" else 2, kind)
    if name in ("rising", "falling"):
        return np.tile(_ramp(dtype, n)[:: 1 if name == "rising" else -1], rows)
    # Of random values a product of many is smaller than its type can tell, be it our operator's or
    # a user's own.
    if name == "factors" or (op == "prod" and name in ("random", "exact", "positive")):
        return _factors(dtype, n, rows, rng)
    if dtype.kind != "float":
        info = np.iinfo(dtype.storage)
        low, high = (0 if name == "positive" else info.min), info.max
        if name == "extremum":  # room below and above for the planted value
            low, high = info.min // 2 + 1, info.max // 2
        whole: Array = rng.integers(low, high, size, dtype.storage, endpoint=True)
        return whole
    if name == "exact":
        signs: Array = rng.integers(0, 2, size, np.int8) * 2 - 1
        if size <= _EXACT_WIDE:
            signs *= rng.integers(1, 9, size, np.int8)
        return signs.astype(kind)
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


def why_no_pattern(pattern: str, reduction: Reduction) -> str | None:
    """Why a reduction cannot be given a pattern, as the message of a UsageError; None if it can."""
    if pattern == "cancel" and not (reduction.op.name in _SUMS and reduction.acc.kind == "float"):
        return (
            f"--pattern cancel is for sum and mean of floats, not {reduction.op.name} of "
            f"{reduction.dtype.name}: only there do errors depend on what cancels"
        )
    return None


def _one_sided(reduction: Reduction, size: int, rng: np.random.Generator) -> Array:
    """All above 0 for a minimum, all below (for want of a sign, all) for a maximum."""
    low = reduction.op.name.endswith("min")
    if reduction.dtype.kind == "float":
        values: Array = rng.random(size, "float64" if reduction.dtype.size == 8 else "float32")
        return values + 1 if low else -1 - values
    info = np.iinfo(reduction.dtype.storage)
    first, last = (1, info.max) if low or not info.min else (info.min, -1)
    whole: Array = rng.integers(first, last, size, reduction.dtype.storage, endpoint=True)
    return whole


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


def _factors(dtype: DType, n: int, rows: int, rng: np.random.Generator) -> Array:
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


def _edge(dtype: DType, low: bool) -> float:
    if dtype.kind == "float":
        return -2.0 if low else 2.0
    info = np.iinfo(dtype.storage)
    return info.min if low else info.max
