"""The right answers, from NumPy in a wider type, and how far a right kernel may be from them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cudareduce.inputs import Array, as_numbers
from cudareduce.operators import Reduction

#: Above this product of depth and unit roundoff a bound says nothing: only exact answers decide.
_BOUND_LIMIT = 0.01
#: Elements that one extended-precision partial sum takes; their chain of roundings stays short.
_CHUNK = 4096


@dataclass(frozen=True, slots=True)
class Reference:
    """The answers of each row; the sum of magnitudes that a rounding error is relative to; or,
    where no bound is known, the tolerance the user gave."""

    expected: Array
    magnitude: Array | None = None
    tolerance: Array | None = None


def reference(what: Reduction, data: Array, rows: int) -> Reference:
    """What a reduction of `data`, `rows` rows of equal length, must give."""
    numbers = as_numbers(data, what.dtype).reshape(rows, len(data) // rows if rows else 0)
    name = what.op.name
    if what.op.expression:
        from cudareduce.expression import compiled

        folded = compiled(what.op, what.dtype, what.acc).fold(
            numbers.astype(np.float32, copy=False) if what.dtype.name == "float16" else numbers
        )
        if what.acc.kind != "float":
            return Reference(folded)
        return Reference(folded, tolerance=what.op.rtol * np.abs(folded).astype(float))
    n = numbers.shape[1]
    if n == 0:
        return Reference(_of_nothing(what, rows))
    if name in ("sum", "mean"):
        if what.acc.kind != "float":
            return Reference(numbers.sum(axis=1, dtype=what.acc.storage))
        total = np.array([_sum(row) for row in numbers], np.longdouble)
        size = np.array([_magnitude(row) for row in numbers])
        return Reference(total, size) if name == "sum" else Reference(total / n, size / n)
    if name == "prod":
        return Reference(numbers.prod(axis=1, dtype=what.acc.storage))
    if name in ("min", "max"):
        return Reference(getattr(numbers, name)(axis=1).astype(what.acc.storage))
    if name in ("argmin", "argmax"):
        return Reference(getattr(numbers, name)(axis=1))
    return Reference(np.array([_fold_words(what, row) for row in numbers], np.uint32))


def _of_nothing(what: Reduction, rows: int) -> Array:
    values = np.frombuffer(what.of_nothing() * rows, what.result_dtype)
    return values.reshape(rows, -1) if what.op.words > 1 else values


def bound(what: Reduction, depth: int, ref: Reference, exact: bool) -> Array | None:
    """How far right answers may lie off: gamma_depth * sum|x| for float sums, 0 for what is exact.

    `exact` says that no sum of these elements is rounded. None where the bound is too wide to mean
    anything. A mean adds the rounding of its division.
    """
    if ref.tolerance is not None:
        return ref.tolerance
    if ref.magnitude is None:
        return np.zeros(len(ref.expected))
    roundoff = what.acc.epsilon / 2
    depth = 0 if exact else depth
    if depth * roundoff > _BOUND_LIMIT:
        return None
    gamma = depth * roundoff / (1 - depth * roundoff)
    limit = gamma * ref.magnitude
    if what.op.name == "mean":
        limit = limit + roundoff * np.abs(ref.expected)
    return np.asarray(limit, float)


def _sum(row: Array) -> np.longdouble | float:
    """A sum as accurate as math.fsum to well below the last place of float64."""
    if row.dtype.itemsize < 8:
        return np.longdouble(row.sum(dtype=np.float64))
    if np.finfo(np.longdouble).nmant <= 52:
        return math.fsum(row)
    chunks = (
        np.add.reduceat(row.astype(np.longdouble), range(0, len(row), _CHUNK)) if len(row) else row
    )
    high = chunks.astype(np.float64)
    return np.longdouble(math.fsum([*high, *(chunks - high).astype(np.float64)]))


def _magnitude(row: Array) -> float:
    step = 2**22  # bounds the temporary of absolute values to some tens of megabytes
    return math.fsum(
        float(np.abs(row[k : k + step]).sum(dtype=np.float64)) for k in range(0, len(row), step)
    )


def _fold_words(what: Reduction, row: Array) -> Array:
    """An order-keeping fold by halves in uint32, which wraps as the device's arithmetic does."""
    x = row.astype(np.uint32)
    one, zero = np.ones_like(x), np.zeros_like(x)
    if what.op.name == "matmul":
        parts = np.stack([x, one, one, zero], 1)
    else:
        parts = np.stack([2 * x + one, x + one], 1)
    identity = np.frombuffer(what.identity(), np.uint32)
    while len(parts) > 1:
        if len(parts) % 2:
            parts = np.concatenate([parts, identity[np.newaxis]])
        parts = _combine_words(parts[0::2], parts[1::2])
    return parts[0] if len(parts) else identity


def _combine_words(left: Array, right: Array) -> Array:
    if left.shape[1] == 2:
        return np.stack([left[:, 0] * right[:, 0], right[:, 0] * left[:, 1] + right[:, 1]], 1)
    a, b, c, d = left.T
    e, f, g, h = right.T
    return np.stack([a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h], 1)
