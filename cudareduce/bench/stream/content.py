"""What an array holds, and what its parts must give: made and summed up a few elements at a time,
so that neither takes more than the array itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cudareduce.machine.host import cpu_count
from cudareduce.problem.exact import exact_factors, exact_part
from cudareduce.problem.inputs import Array, make, rounds_nothing, stored
from cudareduce.problem.operators import Reduction
from cudareduce.problem.reference import Reference, reference

#: Elements whose temporaries exist at one time, for each processor.
_STEP = 2**22
#: The operators whose answers for chunks give that for the whole; a mean, an index or a map of more
#: than one array take more than the answer.
FOLDED = ("sum", "prod", "min", "max")


@dataclass(frozen=True, slots=True)
class Content:
    """The right answers of an array's parts: `parts` are those between one of `cuts` and the
    next."""

    reduction: Reduction
    cuts: tuple[int, ...]
    parts: tuple[Reference, ...]

    def of(self, start: int, end: int) -> Reference:
        """The right answer of the elements between two cuts."""
        first, last = (int(np.searchsorted(self.cuts, at)) for at in (start, end))
        return joined(self.reduction, self.parts[first:last])


def joined(reduction: Reduction, parts: Sequence[Reference]) -> Reference:
    """The right answer of parts that lie one behind the other."""
    name, kind = reduction.op.name, reduction.acc.kind
    answers = np.concatenate([part.expected for part in parts])
    if name in ("min", "max"):
        return Reference(getattr(np, name)(answers, keepdims=True))
    if kind == "float":
        answers = answers.astype(np.longdouble)
    with np.errstate(invalid="ignore", over="ignore"):  # of infinities NaN is the right answer
        combine = np.sum if name == "sum" else np.prod
        answer: Array = combine(answers, keepdims=True, dtype=answers.dtype)
        if kind == "float" and name == "prod":
            return Reference(answer, np.abs(answer).astype(float))
    if kind != "float":
        return Reference(answer)
    magnitudes = [part.magnitude for part in parts if part.magnitude is not None]
    return Reference(answer, np.sum(np.concatenate(magnitudes), keepdims=True))


def made(
    array: Array, reduction: Reduction, pattern: str, seed: int, ends: Iterable[int],
    progress: Callable[[], None],
) -> Content:  # fmt: skip
    """Fill an array of stored elements with a pattern, anew in each part, and know what it holds,
    between the `ends` of pieces at least."""
    cuts = _cuts(len(array), ends)

    def fill(number: int) -> Reference:
        start, end = cuts[number], cuts[number + 1]
        array[start:end] = _values(pattern, reduction, (len(array), end - start), seed + number)
        return reference(reduction, array[start:end], 1)

    return Content(reduction, cuts, tuple(_each(fill, len(cuts) - 1, progress)))


def _values(pattern: str, reduction: Reduction, sizes: tuple[int, int], seed: int) -> Array:
    """Elements of a part, as many as the second of `sizes` says, of an array of the first."""
    n, count = sizes
    rng = np.random.default_rng([seed, n, count])
    if reduction.acc.kind == "float" and rounds_nothing(pattern, reduction):
        # What no sum of a part rounds, one of all may.
        if reduction.op.name == "sum":
            return stored(exact_part(reduction, n, count, rng), reduction.dtype)
        if reduction.op.name == "prod":
            return stored(exact_factors(count, rng), reduction.dtype)
    return make(pattern, reduction, count, 1, seed)


def found(
    array: Array, reduction: Reduction, ends: Iterable[int], progress: Callable[[], None]
) -> Content:
    """What an array of stored elements holds, between the `ends` of pieces at least."""
    cuts = _cuts(len(array), ends)
    spans = list(pairwise(cuts))

    def look(number: int) -> Reference:
        start, end = spans[number]
        return reference(reduction, np.asarray(array[start:end]), 1)

    return Content(reduction, cuts, tuple(_each(look, len(spans), progress)))


def parts(n: int, ends: Iterable[int]) -> int:
    """In how many parts such an array is looked at."""
    return len(_cuts(n, ends)) - 1


def _cuts(n: int, ends: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted({0, n, *range(0, n, _STEP), *ends}))


def _each(
    function: Callable[[int], Reference], count: int, progress: Callable[[], None]
) -> Iterator[Reference]:
    """What a function gives for each number, by all processors, in order."""
    with _pool() as pool:
        for answer in pool.map(function, range(count)):
            progress()
            yield answer


@contextmanager
def _pool() -> Iterator[ThreadPoolExecutor]:
    """Threads, of which none begins anything more once this is left, be it by Ctrl-C."""
    pool = ThreadPoolExecutor(cpu_count())
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
