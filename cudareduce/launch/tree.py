"""In which order elements are added: a tree, what follows from it, and its short name."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cudareduce.problem.inputs import Array

#: Hexadecimal digits of a hash: 48 bits tell a million trees apart.
_HASH_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Join:
    """Parts that are added into one sum of `size` elements. Two parts are one addition; more are
    added at once, or in an order that is not known."""

    size: int
    parts: tuple[int, ...]


@dataclass(frozen=True)
class Tree:
    """In which order `n` elements are added.

    `leaves` are elements by their index, ascending: all of them, or a sample. `joins` stand behind
    their parts, the last is the whole; part k is leaf k or, from the number of leaves on, a join.
    Made by `Forest.tree`, which orders both, so that equal orders are equal trees.
    """

    n: int
    leaves: tuple[int, ...]
    joins: tuple[Join, ...]

    @property
    def exact(self) -> bool:
        """Whether every element is a leaf."""
        return len(self.leaves) == self.n

    @cached_property
    def depth(self) -> int:
        """Additions that an element passes through at most; of a sample, at least."""
        depths = [0] * len(self.leaves)
        for join in self.joins:
            depths.append(max(depths[part] for part in join.parts) + len(join.parts) - 1)
        return depths[-1] if depths else 0

    @cached_property
    def binary(self) -> bool:
        """Whether it is made of additions of two values alone."""
        return all(len(join.parts) == 2 for join in self.joins)

    @cached_property
    def lowest(self) -> tuple[int, ...]:
        """The lowest element of each leaf and join."""
        found = list(self.leaves)
        for join in self.joins:
            found.append(min(found[part] for part in join.parts))
        return tuple(found)

    @cached_property
    def sets(self) -> tuple[int, ...]:
        """The leaves below each leaf and join: bit k is leaf k."""
        found = [1 << k for k in range(len(self.leaves))]
        for join in self.joins:
            together = 0
            for part in join.parts:
                together |= found[part]
            found.append(together)
        return tuple(found)

    @property
    def keeps_order(self) -> bool:
        """Whether only neighbours are added, so that only brackets move."""
        return all(bits + (bits & -bits) & bits == 0 for bits in self.sets)

    @property
    def hash(self) -> str:
        """A short name for this order."""
        text = repr((self.n, self.leaves, [(join.size, join.parts) for join in self.joins]))
        return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]

    def refines(self, other: Tree) -> bool:
        """Whether whatever the other tree adds up before the rest comes in is added up here too."""
        return self.leaves == other.leaves and set(other.sets) <= set(self.sets)

    def meets(self, first: int, second: int) -> int:
        """The size of the sum in which two leaves, by their places, come together."""
        both = 1 << first | 1 << second
        below = self.sets[len(self.leaves) :]
        return next(
            join.size for join, bits in zip(self.joins, below, strict=True) if bits & both == both
        )

    def value(self, numbers: Array, dtype: str) -> float:
        """What these additions give in a floating-point type, bit by bit, of one number a leaf and
        of a binary tree."""
        values = list(numbers.astype(dtype))
        with np.errstate(over="ignore", invalid="ignore"):
            for join in self.joins:
                first, second = join.parts
                values.append(values[first] + values[second])
        return float(values[-1])


class Forest:
    """Trees while they are being made, each known by a number; the first are the leaves."""

    def __init__(self, leaves: Sequence[int]) -> None:
        self._leaves = tuple(leaves)
        self._joins: list[Join] = []

    def size(self, tree: int) -> int:
        """Elements below one."""
        return 1 if tree < len(self._leaves) else self._join(tree).size

    def parts(self, tree: int) -> tuple[int, ...]:
        """What is added last in one, itself if it is a leaf."""
        return (tree,) if tree < len(self._leaves) else self._join(tree).parts

    def _join(self, tree: int) -> Join:
        return self._joins[tree - len(self._leaves)]

    def join(self, parts: Sequence[int], size: int | None = None) -> int:
        """Parts added into a sum of `size` elements, by default those below them; one part is
        itself."""
        if len(parts) == 1:
            return parts[0]
        whole = sum(map(self.size, parts)) if size is None else size
        self._joins.append(Join(whole, tuple(parts)))
        return len(self._leaves) + len(self._joins) - 1

    def tree(self, n: int, root: int | None) -> Tree:
        """The tree below a root, of `n` elements in all: parts by their lowest element, joins from
        the lowest element on, each behind its parts. No elements have no root."""
        if root is None:
            return Tree(n, (), ())
        count, lowest = len(self._leaves), [*self._leaves]
        for join in self._joins:
            lowest.append(min(lowest[part] for part in join.parts))
        places = {leaf: leaf for leaf in range(count)}
        joins: list[Join] = []
        waiting = [root]
        while waiting:
            at = waiting[-1]
            missing = [part for part in self.parts(at) if part not in places]
            if at in places or not missing:
                waiting.pop()
            if at in places:
                continue
            if missing:
                waiting += sorted(missing, key=lambda part: -lowest[part])
                continue
            parts = sorted(self.parts(at), key=lambda part: lowest[part])
            places[at] = count + len(joins)
            joins.append(Join(self.size(at), tuple(places[part] for part in parts)))
        return Tree(n, self._leaves, tuple(joins))
