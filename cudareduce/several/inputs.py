"""Inputs of ranks, and the expected results.

Exact inputs are whole numbers that depend on rank, index and call, so that a rank that is left out
or counted twice, a shifted share, and the input of the previous call all change the result, while
every summation order gives the same. Integers use all digits of their type, since sums wrap. Random
inputs show whether all ranks have the same bits.
"""

from __future__ import annotations

import numpy as np

from cudareduce.problem.dtypes import DType
from cudareduce.problem.operators import Reduction
from cudareduce.several.collectives import Collective
from cudareduce.several.kernels import vector_of

Array = np.ndarray

#: NumPy's functions for the operators.
UFUNCS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
#: Values of floats are below this: sums of 8 ranks are exact in bfloat16, which has 8 bits.
_MOST = 16
_FACTORS = np.array([1, 2, 1, -1])


def exact_values(reduction: Reduction, rank: int, call: int, n: int) -> Array:
    """The exact input of a rank at a call: integers in their type, floats as int64."""
    place = np.arange(n, dtype=np.uint64)
    mixed = place * np.uint64(0x9E3779B97F4A7C15) + np.uint64(
        (rank + 1) * 0xBF58476D1CE4E5B9 + call * 0x94D049BB133111EB & 2**64 - 1
    )
    mixed ^= mixed >> np.uint64(31)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    product = reduction.op.name == "prod"
    if reduction.dtype.kind != "float":
        unsigned = mixed >> np.uint64(64 - 8 * reduction.dtype.size)
        unsigned |= np.uint64(product)  # odd: products of even factors lose bits
        wrapped: Array = unsigned.astype(f"u{reduction.dtype.size}")
        return wrapped.view(reduction.dtype.storage)
    bits = (mixed >> np.uint64(40)).astype(np.int64)
    small: Array = bits % (2 * _MOST - 1) - _MOST + 1
    factors: Array = _FACTORS[bits % len(_FACTORS)]
    return factors if product else small


def random_values(rank: int, n: int, *, factors: bool = False) -> Array:
    """Random float64 of both signs, whose sums are rounded; with `factors` their products are, and
    stay in range."""
    random = np.random.default_rng([7, rank, n])
    signs: Array = random.choice([-1.0, 1.0], n)
    return signs * (random.uniform(0.75, 1.25, n) if factors else random.exponential(1.0, n))


def to_storage(values: Array, dtype: DType) -> Array:
    """Convert values to the dtype's storage; bfloat16 is stored as its bits."""
    if dtype.name != "bfloat16":
        return values.astype(dtype.storage)
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_storage(array: Array, dtype: DType) -> Array:
    """The values of such an array, which NumPy can compare."""
    if dtype.name != "bfloat16":
        return array
    return (array.astype(np.uint32) << 16).view(np.float32)


def expected(reduction: Reduction, inputs: list[Array]) -> Array:
    """The result for the values of all ranks, in a wider type."""
    answer: Array = UFUNCS[reduction.op.name].reduce(inputs)
    return answer


def output_slice(
    collective: Collective, reduction: Reduction, rank: int, size: int, n: int
) -> slice:
    """The elements of the result that a rank must have."""
    if collective == "all-reduce":
        return slice(0, n)
    if collective == "reduce":
        return slice(0, n if rank == 0 else 0)
    vector = vector_of(reduction)
    packs = -(-n // vector)
    begin, end = packs * rank // size, packs * (rank + 1) // size
    return slice(min(n, begin * vector), min(n, end * vector))


def why_not_divisible(
    collective: Collective, reduction: Reduction, size: int, n: int
) -> str | None:
    """Why `n` elements do not divide into equal shares, or None."""
    each = vector_of(reduction) * size
    if collective != "reduce-scatter" or n % each == 0:
        return None
    return f"it gives all ranks as many elements: give --n a multiple of {each}"
