"""Kernels that did not change tell what the machine did: how far their times moved together.

Pure. What identical machine code, launched the same way, shows between two runs is the clock, the
driver, a neighbour or the card, and is taken out of what changed kernels show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import expm1

import numpy as np

#: Fewer kernels that did not change say nothing of a machine.
FEWEST = 3


@dataclass(frozen=True, slots=True)
class Controls:
    """How `count` kernels moved: their middle, as a logarithm of new over old, and how far 95 in
    100 of them lie from it at most. `what` they are, where they are no kernels."""

    count: int
    moved: float
    scatter: float
    what: str = ""

    @property
    def text(self) -> str:
        """What they show, in words."""
        how = "slower" if self.moved > 0 else "faster"
        share = 100 * abs(expm1(self.moved))
        what = self.what or f"{self.count} kernels whose machine code is as it was"
        return f"{what} became {share:.1f} % {how}"

    @property
    def doubt(self) -> float:
        """How far their middle itself may lie off, as a logarithm."""
        return float(self.scatter / np.sqrt(self.count))


def controls(moves: Iterable[tuple[int, float]]) -> Mapping[int | None, Controls]:
    """What unchanged kernels say, for sizes with enough of them, and under None for all others:
    `moves` are elements a row, and logarithms of new over old."""
    by_size: dict[int, list[float]] = {}
    for n, move in moves:
        by_size.setdefault(n, []).append(move)
    found: dict[int | None, Controls] = {
        n: together(some) for n, some in by_size.items() if len(some) >= FEWEST
    }
    every = [move for some in by_size.values() for move in some]
    if len(every) >= FEWEST:
        found[None] = together(every)
    return found


def together(moves: Sequence[float], what: str = "") -> Controls:
    """What some show that are alike, by logarithms of new over old."""
    middle = float(np.median(moves))
    scatter = float(np.quantile(np.abs(np.array(moves) - middle), 0.95))
    return Controls(len(moves), middle, scatter, what)


def beyond(found: Iterable[Controls], limit: float) -> Controls | None:
    """What moved further than a limit, a logarithm, beyond its own doubt, and the furthest of it;
    None if nothing did."""
    far = [one for one in found if abs(one.moved) - one.doubt > limit]
    return max(far, key=lambda one: abs(one.moved), default=None)
