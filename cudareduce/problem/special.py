"""Special values: infinities and NaN at edges, what an identity is mistaken for, ties, and numbers
that only the accumulator's own type tells apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np

from cudareduce.problem.dtypes import DType
from cudareduce.problem.exact import digits
from cudareduce.problem.mapped import fold_mapped
from cudareduce.problem.operators import Reduction
from cudareduce.problem.parsing import literals, parsed

Array = np.ndarray

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
