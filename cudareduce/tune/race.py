"""A race: all are measured in the same rounds, the slower half leaves, the others go on.

Rounds double from heat to heat, so that most of the time goes to those that are close. All shapes
can be tried, since there are a few hundred at most: nothing is guessed from others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from cudareduce.intervals import interval, known, paired

#: The most rounds of a heat.
_MOST_ROUNDS = 4
#: How much a context may favour a kernel: 2.1 % between contexts on an H200.
_FAVOUR = 1.02
#: The median of each round of some entrants, measured in so many rounds; None: lost to the host. An
#: entrant that is missing could not be measured, and without any there is no time left.
Heat = Callable[[Sequence[str], int], Mapping[str, Sequence[float | None]]]


def race(names: Sequence[str], heat: Heat, finalists: int) -> list[str]:
    """The fastest so many of some entrants, fastest first, or fewer where the others are clearly
    slower or could not be measured: none where there was no time to measure any."""
    alive, rounds, cut = list(names), 1, False
    taken: dict[str, list[float | None]] = {name: [] for name in names}
    while len(alive) > finalists:
        found = heat(alive, rounds)
        if not found:
            cut = True
            break
        for name, by_round in found.items():
            taken[name] += by_round
        alive = _survivors([name for name in alive if name in found], taken, finalists)
        rounds = min(2 * rounds, _MOST_ROUNDS)
    return [name for name in alive if known(taken[name])][:finalists] if cut else alive[:finalists]


def _survivors(
    alive: Sequence[str], taken: Mapping[str, Sequence[float | None]], finalists: int
) -> list[str]:
    """The faster half, but for those that are clearly slower than the fastest; fastest first."""
    medians = {name: median(known(taken[name])) for name in alive if known(taken[name])}
    ranked = sorted(medians, key=lambda name: medians[name])
    half = ranked[: max(finalists, -(-len(alive) // 2))]
    return [name for name in half if not _clearly_slower(taken[name], taken[ranked[0]])]


def _clearly_slower(one: Sequence[float | None], other: Sequence[float | None]) -> bool:
    """Whether an interval of the ratio, round by round, lies above what a context may favour."""
    ratios = interval(paired(one, other))
    return ratios is not None and ratios[0] > _FAVOUR
