"""The identity of an operator, and the answer for no elements, as bits of the device."""

from __future__ import annotations

import numpy as np

from cudareduce.problem.expression import compiled
from cudareduce.problem.inputs import stored
from cudareduce.problem.operators import Reduction


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
