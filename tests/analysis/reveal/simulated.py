"""Calls that are functions of NumPy, in an order that is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from cudareduce.analysis.reveal.probing import Call, Examination, ProbeResult
from cudareduce.launch.plan import Problem
from cudareduce.reduction.inputs import Array, as_numbers
from cudareduce.reduction.operators import reduction_of

Sum = Callable[[Array], float]


def call_of(adds: Sum, problem: Problem) -> Call:
    """A call that adds numbers of the accumulator's type."""
    reduction = problem.reduction
    held = np.zeros(problem.elements, reduction.dtype.storage)

    def write(place: int, elements: Array) -> None:
        held[place : place + len(elements)] = elements

    def answer() -> float:
        numbers = as_numbers(held[: problem.n], reduction.dtype).astype(reduction.acc.storage)
        return float(adds(numbers))

    def ways(repeats: int) -> Iterator[object]:
        yield from range(repeats)

    return Call(write, lambda: held[: problem.n], answer, ways)


def reveal_names(adds: Sum, n: int, dtype: str = "float32", limit_s: float = 60.0) -> ProbeResult:
    """The revealed order of a function that adds `n` elements."""
    problem = Problem(reduction_of("sum", dtype), n)
    return Examination(call_of(adds, problem), problem, limit_s).run()


def in_turn(numbers: Array) -> float:
    """One after the other."""
    return float(np.add.accumulate(numbers)[-1])


def backwards(numbers: Array) -> float:
    """One after the other, the last first."""
    return in_turn(numbers[::-1])


def in_halves(numbers: Array) -> float:
    """The lower half takes in the upper half; of an odd number the middle one waits."""
    while len(numbers) > 1:
        half = (len(numbers) + 1) // 2
        folded = numbers[:half].copy()
        folded[: len(numbers) - half] += numbers[half:]
        numbers = folded
    return float(numbers[0])


def wide(numbers: Array) -> float:
    """One after the other in float64."""
    return float(np.float32(in_turn(numbers.astype("float64"))))


def compensated(numbers: Array) -> float:
    """Kahan's sum."""
    total = lost = np.float32(0)
    for number in numbers:
        y = number - lost
        t = total + y
        lost, total = (t - total) - y, t
    return float(total)


def fours(numbers: Array) -> float:
    """Four at once as tensor cores add them: cut off at one place below the largest; then those in
    turn."""
    return in_turn(np.array([_at_once(numbers[k : k + 4]) for k in range(0, len(numbers), 4)]))


def _at_once(part: Array) -> np.float32:
    largest = float(np.abs(part).max())
    place = 2.0 ** (np.floor(np.log2(largest)) - 25)
    return np.float32(np.trunc(part.astype("float64") / place).sum() * place)


def cut_short(numbers: Array) -> float:
    """Added in turn with 11 digits of each, as TF32 has them."""
    bits = (numbers.astype("float32").view("uint32") + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return in_turn(bits.view("float32"))
