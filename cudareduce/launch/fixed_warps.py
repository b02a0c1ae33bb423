"""Sums whose order follows from the index of each element alone, whatever is launched.

A fixed number of warps strides over tiles. Of each tile a warp adds rows of as many elements as its
lanes load at once, every element to the slot that is its place in the row, then folds the slots in
halves. 1024 threads stride over the warps' partials; their warps fold in halves, and so do these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cudareduce.launch.tree import Forest, Tree
from cudareduce.library.kernel import Kernel

_WARP = 32
#: Threads that fold the partials.
_FOLDING = 1024


@dataclass(frozen=True, slots=True)
class FixedWarps:
    """How at most `most` warps share `n` elements, in tiles of `rows` rows of `width` elements."""

    n: int
    most: int
    rows: int
    width: int

    @property
    def partials(self) -> int:
        """How many of the warps have anything to add."""
        return min(self.most, -(-self.n // (self.rows * self.width)))

    @property
    def depth(self) -> int:
        """Additions that an element passes through at most."""
        tiles = -(-self.n // (self.rows * self.width * self.most))
        slots, lanes = (self.width - 1).bit_length(), (_WARP - 1).bit_length()
        in_turn = tiles * self.rows - 1 + -(-self.partials // _FOLDING) - 1
        return in_turn + slots + 2 * lanes

    def tree(self) -> Tree:
        """The order itself."""
        forest = Forest(range(self.n))
        partials = [self._partial(forest, warp) for warp in range(self.partials)]
        threads = [_in_turn(forest, partials[t::_FOLDING]) for t in range(_FOLDING)]
        warps = [_in_halves(forest, threads[k : k + _WARP]) for k in range(0, _FOLDING, _WARP)]
        return forest.tree(self.n, _in_halves(forest, warps))

    def _partial(self, forest: Forest, warp: int) -> int | None:
        tile = self.rows * self.width
        rows = [
            range(row, min(row + self.width, self.n))
            for begin in range(warp * tile, self.n, self.most * tile)
            for row in range(begin, min(begin + tile, self.n), self.width)
        ]
        slots = [[row[k] for row in rows if k < len(row)] for k in range(self.width)]
        return _in_halves(forest, [_in_turn(forest, slot) for slot in slots])


def fixed_warps(kernel: Kernel, n: int, size: int) -> FixedWarps | None:
    """Those of a kernel on `n` elements of so many bytes; None if it has none."""
    if kernel.fixed_warps is None:
        return None
    load = kernel.vector_of(size)
    return FixedWarps(n, kernel.fixed_warps, kernel.items_of(size) // load, _WARP * load)


def _in_turn(forest: Forest, parts: Sequence[int | None]) -> int | None:
    """Parts added one after the other, where there are any."""
    whole: int | None = None
    for part in parts:
        whole = _sum(forest, whole, part)
    return whole


def _in_halves(forest: Forest, parts: Sequence[int | None]) -> int | None:
    """Parts of which each of the first half is added to that of the second in its place, until one
    is left."""
    while len(parts) > 1:
        half = len(parts) // 2
        pairs = zip(parts[:half], parts[half:], strict=True)
        parts = [_sum(forest, first, second) for first, second in pairs]
    return parts[0]


def _sum(forest: Forest, first: int | None, second: int | None) -> int | None:
    there = [part for part in (first, second) if part is not None]
    return forest.join(there) if there else None
