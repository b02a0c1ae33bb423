"""The values that probes are made of: ones that can be counted, and a mask that absorbs all of
them.

Of ones and a pair M and -M all that is added to M before it meets -M is lost, since M + k == M;
what is left counts the ones that come in later (FPRev, arXiv 2411.00442).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cudareduce.problem.inputs import Array, digits, stored
from cudareduce.problem.operators import Reduction

#: Exponents of the mask 1.5 * 2^M and of a one, 2^k, by the type of the elements. The mask lies in
#: the middle between two powers of two, so its last place is the same on both sides. It has room
#: for two more and absorbs ones in an accumulator of twice the digits, too; float16 has no room.
_EXPONENTS = {"float16": (15, -24), "bfloat16": (100, 0), "float32": (100, 0), "float64": (600, 0)}
#: By how many powers of two random elements lie off 1, so that every sum of them is rounded.
_SPREAD = {"float16": 10, "bfloat16": 16, "float32": 8, "float64": 8}


@dataclass(frozen=True, slots=True)
class Masks:
    """Elements of a type as they are stored: a one, its negative mask and its mask; `one` is the
    number that a one stands for."""

    reduction: Reduction
    one: float
    mask: float

    def elements(self, *numbers: float) -> Array:
        """Numbers as elements."""
        return stored(np.array(numbers, "float64"), self.reduction.dtype)

    def least(self, n: int) -> float:
        """The smallest mask that absorbs `n` ones in the accumulator, and in no wider one."""
        exponent = digits(self.reduction.acc) + n.bit_length() + 1
        return min(1.5 * self.one * 2.0**exponent, self.mask)

    def ones(self, count: int) -> Array:
        """So many ones as elements."""
        return np.repeat(self.elements(self.one), count)


def masks_of(reduction: Reduction) -> Masks:
    """The values for a sum of floats."""
    mask, one = _EXPONENTS[reduction.dtype.name]
    return Masks(reduction, 2.0**one, 1.5 * 2.0**mask)


def why_not(reduction: Reduction, n: int) -> str | None:
    """Why the order of a reduction cannot be revealed, in words that follow a kernel's name, or
    None if it can."""
    if reduction.op.name != "sum":
        return f"is looked at as a sum alone, not as {reduction.op.name}: take --op sum"
    if reduction.dtype.kind != "float":
        return (
            f"has no order that shows: sums of {reduction.dtype.name} are exact in any; take a "
            "--dtype of floats"
        )
    if n == 0:
        return "has nothing to add: take --n 1 or more"
    mask, one = _EXPONENTS[reduction.dtype.name]
    places = digits(reduction.acc)
    absorbed = 2 ** max(0, mask - places - one) - 1  # fewer than half of the mask's last place
    most = min(absorbed, 2**places)
    if n > most:
        return (
            f"cannot be probed with {n} elements: of {reduction.dtype.name}, added up in "
            f"{reduction.acc.name}, ones can be counted and absorbed up to {most}"
        )
    return None


def random(reduction: Reduction, n: int, seed: int, *, cancels: bool = False) -> Array:
    """Elements of many magnitudes as they are stored: their sum's last bits tell orders apart. Of
    elements that cancel nothing but errors is left, which tells more."""
    rng = np.random.default_rng([seed, n])
    spread = _SPREAD[reduction.dtype.name]
    numbers = rng.standard_normal(n) * 2.0 ** rng.integers(-spread, spread, n)
    if cancels:
        half = n // 2
        numbers[half : 2 * half] = -rng.permutation(numbers[:half])
    return stored(numbers.astype("float32" if reduction.dtype.size < 8 else "float64"),
                  reduction.dtype)  # fmt: skip
