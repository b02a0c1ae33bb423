"""The right answers, from NumPy in a wider type, and how far a right kernel may be from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cudareduce.reduction.inputs import Array, as_numbers, stored
from cudareduce.reduction.operators import Reduction
from cudareduce.reduction.transforms import compiled, fold_mapped


def identity(reduction: Reduction) -> bytes:
    """The operator's identity, as the bytes of one accumulator; `compiled` may raise where it is a
    user's own."""
    if reduction.op.expression:
        return compiled(reduction.op, reduction.dtype, reduction.acc).identity()
    acc = np.dtype(reduction.acc.storage)
    limits = np.iinfo(acc) if acc.kind in "iu" else None
    values: dict[str, list[float]] = {
        "prod": [1],
        "min": [limits.max if limits else np.inf],
        "max": [limits.min if limits else -np.inf],
        "matmul": [1, 0, 0, 1],
        "affine": [1, 0],
    }
    return np.array(values.get(reduction.op.name, [0]), dtype=acc).tobytes()


def of_nothing(reduction: Reduction) -> bytes:
    """The answer for no elements, as the bytes of one answer: the identity, but NaN for a mean and
    -1, no position, for an index."""
    if reduction.op.indexed:
        return np.int64(-1).tobytes()
    if reduction.op.needs_count:
        return np.array(np.nan, reduction.acc.storage).tobytes()
    return identity(reduction)


def preset(reduction: Reduction, *, empty: bool) -> bytes:
    """What an answer is set to before a launch, in the type that it is stored in: the identity, or
    the answer for no elements."""
    bits = of_nothing(reduction) if empty else identity(reduction)
    if reduction.stored is None:
        return bits
    return stored(np.frombuffer(bits, reduction.acc.storage), reduction.stored).tobytes()


#: Above this product of depth and unit roundoff a bound says nothing: only exact answers decide.
_BOUND_LIMIT = 0.01
#: Elements that one extended-precision partial sum takes; their chain of roundings stays short.
_CHUNK = 4096
#: Elements whose temporaries exist at one time.
_BATCH = 2**22


@dataclass(frozen=True, slots=True)
class Reference:
    """The answer of each row, one value or one row of components; the sum of magnitudes of each row
    that a rounding error is relative to, of a product its own; or, where no bound is known, how far
    the answer of each row may be off by the tolerance the user gave. Of a map's values `slack` is
    how far the map's own roundings may move the answer, and `exact` whether no sum is rounded. Of
    answers that may be the place of any of equals `numbers` are the elements, row by row."""

    expected: Array
    magnitude: Array | None = None
    tolerance: Array | None = None
    slack: Array | None = None
    exact: bool | None = None
    numbers: Array | None = None


def with_elements(ref: Reference, reduction: Reduction, data: Array, rows: int) -> Reference:
    """A reference of places that knows the elements."""
    return replace(ref, numbers=_in_rows(reduction, data, rows))


def reference(
    reduction: Reduction, data: Array, rows: int, other: Array | None = None
) -> Reference:
    """What a reduction of `data` must give: stored elements as they lie in memory, `rows` rows of
    equal length, and as many of the `other` input where there are two. A user's own operator or map
    raises what `program_of` and `Program.run` raise."""
    numbers = _in_rows(reduction, data, rows)
    if reduction.map and numbers.size:
        second = () if other is None else (_beside(reduction, other, numbers),)
        return _mapped(reduction, (numbers, *second))
    if reduction.op.expression:
        folded = compiled(reduction.op, reduction.dtype, reduction.acc).fold(
            numbers.astype(np.float32, copy=False) if reduction.dtype.name == "float16" else numbers
        )
        if reduction.acc.kind != "float":
            return Reference(folded)
        return Reference(folded, tolerance=reduction.op.rtol * np.abs(folded).astype(float))
    if numbers.shape[1] == 0:
        return Reference(_of_nothing(reduction, rows))
    with np.errstate(invalid="ignore", over="ignore"):  # of infinities NaN is the right answer
        return _folded(reduction, numbers)


def _in_rows(reduction: Reduction, data: Array, rows: int) -> Array:
    """Elements as numbers, row by row."""
    n, numbers = len(data) // rows if rows else 0, as_numbers(data, reduction.dtype)
    if reduction.columns:
        return np.ascontiguousarray(numbers.reshape(n, rows).T)
    return numbers.reshape(rows, n)


def _beside(reduction: Reduction, other: Array, numbers: Array) -> Array:
    """What of a second input goes with each element of the first: of one row the first elements."""
    rows, n = numbers.shape
    if reduction.map and reduction.map.one_row:
        return np.tile(as_numbers(other[:n], reduction.dtype), (rows, 1))
    return _in_rows(reduction, other, rows)


def _folded(reduction: Reduction, numbers: Array) -> Reference:
    """The answers of rows that have elements, by an operator of the tool."""
    name, n = reduction.op.name, numbers.shape[1]
    if name in ("sum", "mean"):
        if reduction.acc.kind != "float":
            return Reference(numbers.sum(axis=1, dtype=reduction.acc.storage))
        total, size = _by_rows(_sums, numbers), _by_rows(_magnitudes, numbers)
        return Reference(total, size) if name == "sum" else Reference(total / n, size / n)
    if name == "prod" and reduction.acc.kind == "float":
        wide = np.float64 if reduction.acc.size < 8 else np.longdouble
        product = numbers.prod(axis=1, dtype=wide)
        return Reference(product, np.abs(product).astype(float))
    if name == "prod":
        return Reference(numbers.prod(axis=1, dtype=reduction.acc.storage))
    if name in ("min", "max"):
        return Reference(getattr(numbers, name)(axis=1).astype(reduction.acc.storage))
    if name in ("argmin", "argmax"):
        return Reference(getattr(numbers, name)(axis=1))
    return Reference(_by_rows(partial(_fold_words, reduction), numbers))


def _mapped(reduction: Reduction, numbers: tuple[Array, ...]) -> Reference:
    """The answers of rows of what a map makes of numbers."""
    found = fold_mapped(reduction, numbers)
    if found.slack is None or found.units is None:
        return Reference(found.answer)
    if reduction.op.name in ("min", "max"):
        return Reference(found.answer, tolerance=found.slack, slack=found.slack, exact=True)
    exact = bool((found.units <= 2 / reduction.acc.epsilon).all())
    return Reference(found.answer, found.magnitude, slack=found.slack, exact=exact)


def _of_nothing(reduction: Reduction, rows: int) -> Array:
    kind = replace(reduction, stored=None).result_dtype
    values = np.frombuffer(of_nothing(reduction) * rows, kind)
    return values.reshape(rows, -1) if reduction.op.words > 1 else values


def bound(reduction: Reduction, depth: int, ref: Reference, exact: bool) -> Array | None:
    """How far the right answer of each row may lie off: gamma_depth * sum|x| for float sums
    (Higham, Accuracy and Stability of Numerical Algorithms, 4.2), 0 for what is exact and for what
    is infinite or NaN. Where a map rounds, its errors add to that (3.1: those of a product are one
    rounding more).

    `depth` is that of the plan, and of a product one less than its factors, since the errors of all
    multiplications meet in it. `exact` says that no sum of these elements is rounded. None where
    the bound is too wide to mean anything, and where the answer of a user's own operator has left
    the range of the accumulator, or a map's value has. A mean adds two roundings: who divides by
    the count makes one, who multiplies by its reciprocal two.
    """
    if ref.tolerance is None and ref.magnitude is None:
        return np.zeros(len(ref.expected))
    roundoff = reduction.acc.epsilon / 2
    depth = 0 if exact or ref.exact else depth
    if depth * roundoff > _BOUND_LIMIT:
        return None
    gamma = depth * roundoff / (1 - depth * roundoff)
    if ref.slack is not None and np.isinf(ref.slack).any():
        return None
    if ref.tolerance is not None:
        size = np.abs(np.where(np.isfinite(ref.expected), ref.expected, 0)).astype(float)
        return None if _out_of_range(reduction, size) else ref.tolerance + gamma * size
    assert ref.magnitude is not None
    limit = gamma * ref.magnitude if depth else np.zeros(len(ref.expected))
    if ref.slack is not None:
        limit = limit + (1 + gamma) * ref.slack
    if reduction.op.name == "mean":
        limit = limit + 2 * roundoff * np.abs(ref.expected)
    return np.where(np.isfinite(limit), limit, 0).astype(float)


def most_bounded(reduction: Reduction) -> int:
    """The most elements, a power of two, each rounded once itself, of which a bound means something
    in whatever order they are combined: it is less than half of what one of them makes of a sum. Of
    shares of a mean powers of two tell that, which are not rounded."""
    if reduction.acc.kind != "float":
        return 1 << 62
    shares = reduction.op.name == "mean"
    most = _BOUND_LIMIT / reduction.acc.epsilon if shares else reduction.acc.epsilon**-0.5
    if reduction.stored is not None:
        most = min(most, 1 / reduction.stored.epsilon)
    return 1 << int(most).bit_length() - 1


def _out_of_range(reduction: Reduction, size: Array) -> bool:
    """Whether an answer of this size, which the wider type holds, is too small or too large for the
    accumulator: what a kernel makes of it depends on its order."""
    info = np.finfo(reduction.acc.storage)
    return bool(((size > 0) & (size < info.tiny) | np.isfinite(size) & (size > info.max)).any())


def _by_rows(function: Callable[[Array], Array], numbers: Array) -> Array:
    """Apply a function of rows to some rows at a time, which bounds its temporaries."""
    rows, n = numbers.shape
    step = max(1, _BATCH // n)
    parts = [function(numbers[k : k + step]) for k in range(0, rows, step)]
    return np.concatenate(parts) if parts else function(numbers)


def _sums(rows: Array) -> Array:
    """Sums of rows, as accurate as math.fsum to well below the last place of float64."""
    if rows.dtype.itemsize < 8:
        return np.asarray(rows.sum(axis=1, dtype=np.float64), np.longdouble)
    if np.finfo(np.longdouble).nmant <= 52:
        return np.array([math.fsum(row) for row in rows], np.longdouble)
    plain = rows.sum(axis=1)
    odd = ~np.isfinite(plain)
    if odd.any():  # what follows would make NaN of infinities
        finite = _sums(np.where(odd[:, np.newaxis], 0, rows))
        return np.where(odd, plain, finite)
    n = rows.shape[1]
    parts = [rows[:, k : k + _CHUNK].astype(np.longdouble).sum(axis=1) for k in range(0, n, _CHUNK)]
    high = [part.astype(np.float64) for part in parts]
    low = [(part - top).astype(np.float64) for part, top in zip(parts, high, strict=True)]
    return np.array([math.fsum(terms) for terms in zip(*high, *low, strict=True)], np.longdouble)


def _magnitudes(rows: Array) -> Array:
    n = rows.shape[1]
    # The lowest integer has no magnitude in its own type.
    kind = np.float64 if rows.dtype.kind == "i" else rows.dtype
    parts = [
        np.abs(rows[:, k : k + _BATCH].astype(kind, copy=False)).sum(axis=1, dtype=np.float64)
        for k in range(0, n, _BATCH)
    ]
    return np.asarray(np.sum(parts, axis=0))


def _fold_words(reduction: Reduction, rows: Array) -> Array:
    """An order-keeping fold of rows by halves in uint32, which wraps as the device's does."""
    x = rows.astype(np.uint32)
    one, zero = np.ones_like(x), np.zeros_like(x)
    if reduction.op.name == "affine16":
        parts = x[:, :, np.newaxis]
    elif reduction.op.name == "matmul":
        parts = np.stack([x, one, one, zero], 2)
    else:
        parts = np.stack([2 * x + one, x + one], 2)
    neutral = np.frombuffer(identity(reduction), np.uint32)
    while parts.shape[1] > 1:
        if parts.shape[1] % 2:
            padding = np.broadcast_to(neutral, (len(parts), 1, len(neutral)))
            parts = np.concatenate([parts, padding], axis=1)
        parts = _combine_words(parts[:, 0::2], parts[:, 1::2])
    packed = reduction.op.words == 1
    return parts[:, 0, 0].view(reduction.result_dtype) if packed else parts[:, 0]


def _combine_words(left: Array, right: Array) -> Array:
    if left.shape[-1] == 1:
        half = np.uint32(0xFFFF)
        a, b, e, f = left & half, left >> 16, right & half, right >> 16
        return np.asarray(((2 * e + 1) * b + f) << 16 | (2 * a * e + a + e) & half)
    if left.shape[-1] == 2:
        scale = left[..., 0] * right[..., 0]
        return np.stack([scale, right[..., 0] * left[..., 1] + right[..., 1]], -1)
    a, b, c, d = np.moveaxis(left, -1, 0)
    e, f, g, h = np.moveaxis(right, -1, 0)
    return np.stack([a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h], -1)
