"""A tree grown from where pairs of elements meet, with few probes (FPRev, arXiv 2411.00442)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cudareduce.launch.tree import Forest, Tree
from cudareduce.reveal.probe import Contradiction

#: Up to this size every element is a leaf; above it, those of a sample.
EXACT_UP_TO = 4096
#: How many evenly spaced elements a full sample holds.
_EVENLY = 32

#: The size of the sum in which two elements come together.
Meets = Callable[[int, int], int]


def samples(n: int) -> tuple[tuple[int, ...], ...]:
    """Which elements are leaves: all, or few and then more, where blocks, tiles and strides are
    likely to begin and end."""
    if n <= EXACT_UP_TO:
        return (tuple(range(n)),)
    powers = [2**k for k in range(n.bit_length()) if 2**k < n]
    few = {0, *powers, n - 1}
    more = {*(odd * power for power in powers for odd in (3, 5, 7)),
            *(power - 1 for power in powers), *(n - power for power in powers),
            *(n * k // _EVENLY for k in range(_EVENLY))}  # fmt: skip
    return tuple(sorted(few)), tuple(sorted(k for k in few | more if k < n))


def grown(leaves: Sequence[int], n: int, meets: Meets) -> Tree:
    """The tree over these leaves of `n` elements. Raises Contradiction where no tree gives those
    sizes, and what `meets` raises.

    One leaf is compared with all others: those that meet it in sums of one size are one part of
    that sum, a tree of their own, or where they meet each other there too, several.
    """
    forest, exact = Forest(leaves), n == len(leaves)
    below = dict.fromkeys(range(len(leaves)), 1)

    def fits(leaf: int, size: int, held: int, *, all_of_it: bool) -> None:
        if held > size or (all_of_it and held != size):
            raise Contradiction(f"element {leaf} is in a sum of {size} elements that holds {held}")

    def checked(tree: int, leaf: int) -> int:
        fits(leaf, forest.size(tree), below[tree], all_of_it=exact)
        return tree

    def whole(group: Sequence[int]) -> int:
        pivot = group[len(group) // 2]  # in the middle: a chain is short from neither end
        levels: dict[int, list[int]] = {}
        for leaf in group:
            if leaf != pivot:
                levels.setdefault(meets(leaves[pivot], leaves[leaf]), []).append(leaf)
        tree = pivot
        for size in sorted(levels):  # too many are seen before all of them are compared
            fits(leaves[pivot], size, below[tree] + len(levels[size]), all_of_it=False)
            beside = whole(levels[size])
            several = forest.size(beside) == size  # they meet each other there, too
            others = forest.parts(beside) if several else (checked(beside, leaves[pivot]),)
            parts = (checked(tree, leaves[pivot]), *others)
            tree = forest.join(parts, size)
            below[tree] = sum(below[part] for part in parts)
        return tree

    return forest.tree(n, checked(whole(range(len(leaves))), leaves[0]))
