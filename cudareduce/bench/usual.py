"""Files of others that do not take the usual number of elements, where nobody has said another: the
next that they take."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from cudareduce.launch.case import Case


def at_its_size(case: Case, usual: Collection[int]) -> Case:
    """A case that is measured at the usual sizes, as far as it takes them; of a file of others that
    takes none of them, at the largest number of elements below them that it does."""
    program = case.kernel.program
    if program is not None:
        sizes = [n for n, rows in program.shapes if rows == 1]
        if not sizes or set(sizes) & set(usual):
            return case
        return replace(case, only=frozenset([max(sizes)]))
    if case.kernel.guessed is None or any(_takes(case, n) for n in usual):
        return case
    largest = _largest(case, max(usual))
    return replace(case, only=frozenset([largest])) if _takes(case, largest) else case


def _takes(case: Case, n: int) -> bool:
    return n > 0 and not (case.asks.why_not(n) or case.kernel.why_not_shape(n, 1))


def _largest(case: Case, usual: int) -> int:
    asks = case.asks
    if asks.sizes:
        return max(asks.sizes)
    limits = (limit for limit in (asks.most, case.kernel.most, usual) if limit)
    return asks.near(min(limits))[0]
