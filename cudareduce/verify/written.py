"""Sizes and rows that the numbers in a kernel's text may be about: the most of them that it takes,
or a rest that it gets wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

#: Up to here there are enough other sizes.
_TRIED = 1025
#: The most that a number may be for twice as many elements to be a moment's work.
_MOST = 2**22
#: Rests of more than so many pairs of numbers nobody writes.
_MOST_RESTS = 64
#: Whatever is divided by less has every rest among the other sizes.
_LEAST_DIVISOR = 8


def written_sizes(numbers: Sequence[int], tile: int) -> tuple[int, ...]:
    """Sizes around the larger of these numbers, and some of more than two tiles that leave one of
    them over another, or over the power of two behind a mask."""
    large = (k for k in numbers if _TRIED < k <= _MOST)
    caps = (n for k in large for n in (k, k + 1, 2 * k + 1))
    return (*caps, *islice(_rests(numbers, tile), _MOST_RESTS))


def written_rows(numbers: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Rows of three elements, one row more than each of the larger of these numbers."""
    return tuple((3, k + 1) for k in numbers if _TRIED < k <= _MOST)


def _rests(numbers: Sequence[int], tile: int) -> Iterator[int]:
    divisors = sorted({d for k in numbers for d in (k, k + 1) if _LEAST_DIVISOR <= d <= 8 * tile})
    for divisor in divisors:
        for rest in numbers:
            if 1 < rest < divisor - 1:
                yield (2 * tile // divisor + 1) * divisor + rest
