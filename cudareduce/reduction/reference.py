"""Reference results, from NumPy in a wider type, and the bound of a correct kernel's error."""

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
    """The operator's identity, as the bytes of one accumulator. A custom operator raises what
    `compiled` raises."""
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
    """The result without elements, as the bytes of one result: the identity, but NaN for a mean and
    -1 for an index."""
    if reduction.op.indexed:
        return np.int64(-1).tobytes()
    if reduction.op.needs_count:
        return np.array(np.nan, reduction.acc.storage).tobytes()
    return identity(reduction)


def preset(reduction: Reduction, *, empty: bool) -> bytes:
    """The bytes to which a result is set before a launch: the identity, or the result without
    elements."""
    bits = of_nothing(reduction) if empty else identity(reduction)
    if reduction.stored is None:
        return bits
    return stored(np.frombuffer(bits, reduction.acc.storage), reduction.stored).tobytes()


#: Above this product of depth and unit roundoff a bound means nothing: only exact results decide.
_BOUND_LIMIT = 0.01
#: Elements of one extended-precision partial sum, few enough for its roundings not to count.
_CHUNK = 4096
#: Elements whose temporaries exist at one time.
_BATCH = 2**22


@dataclass(frozen=True, slots=True)
class Reference:
    """The expected result of each row, a value or a row of components, and the basis of its bound:
    the sum of `magnitude`s to which rounding errors are relative, or the absolute `tolerance` of a
    custom operator. For a transform, `slack` bounds the error of its own roundings, and `exact` is
    True if no sum rounds. `numbers` are the elements, row by row, where any index of equal elements
    is right."""

    expected: Array
    magnitude: Array | None = None
    tolerance: Array | None = None
    slack: Array | None = None
    exact: bool | None = None
    numbers: Array | None = None


def with_elements(ref: Reference, reduction: Reduction, data: Array, rows: int) -> Reference:
    """The reference with the elements, for results that are indices."""
    return replace(ref, numbers=_in_rows(reduction, data, rows))


def reference(
    reduction: Reduction, data: Array, rows: int, other: Array | None = None
) -> Reference:
    """The reference of `rows` rows of stored elements in memory order, with the `other` input of a
    transform. Custom operators and transforms raise UsageError and EnvironmentProblem."""
    numbers = _in_rows(reduction, data, rows)
    if reduction.map and numbers.size:
        if other is None:
            return _mapped(reduction, (numbers,))
        if reduction.map.one_row:
            n = numbers.shape[1]
            return _mapped(
                reduction, (numbers, np.tile(as_numbers(other[:n], reduction.dtype), (rows, 1)))
            )
        return _mapped(reduction, (numbers, _in_rows(reduction, other, rows)))
    if reduction.op.expression:
        folded = compiled(reduction.op, reduction.dtype, reduction.acc).fold(
            numbers.astype(np.float32, copy=False) if reduction.dtype.name == "float16" else numbers
        )
        if reduction.acc.kind != "float":
            return Reference(folded)
        return Reference(folded, tolerance=reduction.op.rtol * np.abs(folded).astype(float))
    if numbers.shape[1] == 0:
        kind = replace(reduction, stored=None).result_dtype
        values = np.frombuffer(of_nothing(reduction) * rows, kind)
        return Reference(values.reshape(rows, -1) if reduction.op.words > 1 else values)
    with np.errstate(invalid="ignore", over="ignore"):  # of infinities NaN is the right result
        return _folded(reduction, numbers)


def _in_rows(reduction: Reduction, data: Array, rows: int) -> Array:
    """Elements as numbers, row by row."""
    n, numbers = len(data) // rows if rows else 0, as_numbers(data, reduction.dtype)
    if reduction.columns:
        return np.ascontiguousarray(numbers.reshape(n, rows).T)
    return numbers.reshape(rows, n)


def _folded(reduction: Reduction, numbers: Array) -> Reference:
    """The reference of rows with elements, for a built-in operator."""
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
    """The reference of transformed rows."""
    found = fold_mapped(reduction, numbers)
    if found.slack is None or found.units is None:
        return Reference(found.result)
    if reduction.op.name in ("min", "max"):
        return Reference(found.result, tolerance=found.slack, slack=found.slack, exact=True)
    exact = bool((found.units <= 2 / reduction.acc.epsilon).all())
    return Reference(found.result, found.magnitude, slack=found.slack, exact=exact)


def bound(reduction: Reduction, depth: int, ref: Reference, exact: bool) -> Array | None:
    """The largest error of a correct result, for each row: gamma_depth * sum|x| for float sums
    (Higham, Accuracy and Stability of Numerical Algorithms, 4.2), and 0 for results that are exact,
    infinite or NaN. The rounding errors of a transform are added (3.1).

    `depth` is the number of roundings on the way to the result. `exact` promises that no partial
    sum rounds. A mean adds two roundings, as a product with the reciprocal of the count has. None
    if the bound is too wide to mean anything, or a custom operator or a transform has left the
    accumulator's range.
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
    """The largest power of two of elements, each rounded once, whose bound is below half of one
    element in any summation order. The shares of a mean are exact at powers of two, which allows
    more."""
    if reduction.acc.kind != "float":
        return 1 << 62
    shares = reduction.op.name == "mean"
    most = _BOUND_LIMIT / reduction.acc.epsilon if shares else reduction.acc.epsilon**-0.5
    if reduction.stored is not None:
        most = min(most, 1 / reduction.stored.epsilon)
    return 1 << int(most).bit_length() - 1


def _out_of_range(reduction: Reduction, size: Array) -> bool:
    """True if a result that the wider type holds is too small or too large for the accumulator: the
    kernel's result then depends on its order."""
    info = np.finfo(reduction.acc.storage)
    return bool(((size > 0) & (size < info.tiny) | np.isfinite(size) & (size > info.max)).any())


def _by_rows(function: Callable[[Array], Array], numbers: Array) -> Array:
    """Apply a function to some rows at a time, to limit its temporaries."""
    rows, n = numbers.shape
    step = max(1, _BATCH // n)
    parts = [function(numbers[k : k + step]) for k in range(0, rows, step)]
    return np.concatenate(parts) if parts else function(numbers)


def _sums(rows: Array) -> Array:
    """Sums of rows, as accurate as math.fsum well beyond the last digit of float64."""
    if rows.dtype.itemsize < 8:
        return np.asarray(rows.sum(axis=1, dtype=np.float64), np.longdouble)
    if np.finfo(np.longdouble).nmant <= 52:
        return np.array([math.fsum(row) for row in rows], np.longdouble)
    plain = rows.sum(axis=1)
    odd = ~np.isfinite(plain)
    if odd.any():  # the differences below turn infinities into NaN
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
    """Fold rows pairwise in order in uint32, which wraps as on the device."""
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
