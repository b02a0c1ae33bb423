"""Reference results, computed with NumPy in a wider type, and error bounds of correct kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cudareduce.reduction.inputs import Array, as_numbers, stored
from cudareduce.reduction.operators import Reduction
from cudareduce.reduction.transforms import compile_operator, reduce_transformed


def identity(reduction: Reduction) -> bytes:
    """The operator's identity, as the bytes of one accumulator. For a custom operator, raises what
    `compile_operator` raises."""
    if reduction.op.expression:
        return compile_operator(reduction.op, reduction.dtype, reduction.acc).identity()
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


def empty_result(reduction: Reduction) -> bytes:
    """The result of a reduction of no elements, as the bytes of one result: the identity, except
    NaN for a mean and -1 for an index."""
    if reduction.op.indexed:
        return np.int64(-1).tobytes()
    if reduction.op.needs_count:
        return np.array(np.nan, reduction.acc.storage).tobytes()
    return identity(reduction)


def preset(reduction: Reduction, *, empty: bool) -> bytes:
    """The bytes to which a result is set before a launch: the identity or, if the input is `empty`,
    the result of no elements."""
    bits = empty_result(reduction) if empty else identity(reduction)
    if reduction.stored is None:
        return bits
    return stored(np.frombuffer(bits, reduction.acc.storage), reduction.stored).tobytes()


#: If depth * unit roundoff exceeds this, the error bound is too wide to be useful.
_BOUND_LIMIT = 0.01
#: Elements per partial sum in extended precision: few enough that its rounding is negligible.
_CHUNK = 4096
#: Elements that are processed at a time, which limits the size of temporary arrays.
_BATCH = 2**22


@dataclass(frozen=True, slots=True)
class Reference:
    """The expected result of each row, and the data for its error bound.

    `expected` has one value per row, or one row of components. `magnitude` is the sum of the
    elements' magnitudes, to which rounding errors are relative. `tolerance` is an absolute error
    bound, used instead of `magnitude`. For a transform, `slack` bounds the rounding errors of the
    transform itself, and `exact` is True if no partial sum rounds. `numbers` holds the elements,
    row by row, for kernels that may return the index of any of several equal elements."""

    expected: Array
    magnitude: Array | None = None
    tolerance: Array | None = None
    slack: Array | None = None
    exact: bool | None = None
    numbers: Array | None = None


def with_elements(ref: Reference, reduction: Reduction, data: Array, rows: int) -> Reference:
    """Copy of the reference with `numbers` set to the elements, for results that are indices."""
    return replace(ref, numbers=_in_rows(reduction, data, rows))


def reference(
    reduction: Reduction, data: Array, rows: int, other: Array | None = None
) -> Reference:
    """The reference results of `rows` rows. `data` holds stored elements in memory order, `other`
    the second input of a transform. For custom operators and transforms, raises UsageError if the
    expression fails and EnvironmentProblem without a working g++."""
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
        folded = compile_operator(reduction.op, reduction.dtype, reduction.acc).fold(
            numbers.astype(np.float32, copy=False) if reduction.dtype.name == "float16" else numbers
        )
        if reduction.acc.kind != "float":
            return Reference(folded)
        return Reference(folded, tolerance=reduction.op.rtol * np.abs(folded).astype(float))
    if numbers.shape[1] == 0:
        kind = replace(reduction, stored=None).result_dtype
        values = np.frombuffer(empty_result(reduction) * rows, kind)
        return Reference(values.reshape(rows, -1) if reduction.op.words > 1 else values)
    # Infinities may give NaN, which is then the right result.
    with np.errstate(invalid="ignore", over="ignore"):
        return _folded(reduction, numbers)


def _in_rows(reduction: Reduction, data: Array, rows: int) -> Array:
    """Elements as a matrix of numbers with one row per result."""
    n, numbers = len(data) // rows if rows else 0, as_numbers(data, reduction.dtype)
    if reduction.columns:
        return np.ascontiguousarray(numbers.reshape(n, rows).T)
    return numbers.reshape(rows, n)


def _folded(reduction: Reduction, numbers: Array) -> Reference:
    """The reference for a built-in operator; rows must not be empty."""
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
    """The reference for a reduction with a transform; one matrix per input."""
    host = reduce_transformed(reduction, numbers)
    if host.slack is None or host.units is None:
        return Reference(host.result)
    if reduction.op.name in ("min", "max"):
        return Reference(host.result, tolerance=host.slack, slack=host.slack, exact=True)
    exact = bool((host.units <= 2 / reduction.acc.epsilon).all())
    return Reference(host.result, host.magnitude, slack=host.slack, exact=exact)


def bound(reduction: Reduction, depth: int, ref: Reference, exact: bool) -> Array | None:
    """The absolute error bound of a correct result, for each row: gamma_depth * sum|x| for float
    sums (Higham, Accuracy and Stability of Numerical Algorithms, 4.2), and 0 for results that are
    exact, infinite or NaN. The rounding errors of a transform are added (3.1).

    `depth` is the number of roundings from element to result. `exact` means that no partial sum
    rounds. A mean has two more roundings, for a product with the reciprocal of the count. The
    result is None if the bound is too wide to be useful, or if the result of a custom operator or a
    transform overflows or underflows the accumulator.
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


def max_bounded_size(reduction: Reduction) -> int:
    """The largest power of two n such that, for n equal elements, the error bound for any summation
    order is below half of one element: a lost element then exceeds the bound. Means allow a larger
    n, since division by a power of two is exact."""
    if reduction.acc.kind != "float":
        return 1 << 62
    is_mean = reduction.op.name == "mean"
    most = _BOUND_LIMIT / reduction.acc.epsilon if is_mean else reduction.acc.epsilon**-0.5
    if reduction.stored is not None:
        most = min(most, 1 / reduction.stored.epsilon)
    return 1 << int(most).bit_length() - 1


def _out_of_range(reduction: Reduction, size: Array) -> bool:
    """True if the reference result, held in a wider type, overflows or underflows the accumulator.
    The kernel's result then depends on its order of combination."""
    info = np.finfo(reduction.acc.storage)
    return bool(((size > 0) & (size < info.tiny) | np.isfinite(size) & (size > info.max)).any())


def _by_rows(function: Callable[[Array], Array], numbers: Array) -> Array:
    """Apply a function to a few rows at a time, to limit the size of temporary arrays."""
    rows, n = numbers.shape
    step = max(1, _BATCH // n)
    parts = [function(numbers[k : k + step]) for k in range(0, rows, step)]
    return np.concatenate(parts) if parts else function(numbers)


def _sums(rows: Array) -> Array:
    """Sums of rows in extended precision, with an error far below the last digit of float64."""
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
    # The magnitude of the lowest integer overflows its own type.
    kind = np.float64 if rows.dtype.kind == "i" else rows.dtype
    parts = [
        np.abs(rows[:, k : k + _BATCH].astype(kind, copy=False)).sum(axis=1, dtype=np.float64)
        for k in range(0, n, _BATCH)
    ]
    return np.asarray(np.sum(parts, axis=0))


def _fold_words(reduction: Reduction, rows: Array) -> Array:
    """Reduce rows with a non-commutative operator: pairwise, in order, in uint32, which wraps as on
    the device."""
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
