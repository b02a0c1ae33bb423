"""Summation orders as trees: their depth, hash and result, and the tree of a launch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cudareduce.library.header import UNASSIGNED, UNORDERED
from cudareduce.library.kernel import Kernel
from cudareduce.reduction.inputs import Array

#: Hexadecimal digits of a hash: 48 bits, enough for a million trees.
_HASH_DIGITS = 12
_WARP = 32


@dataclass(frozen=True, slots=True)
class Join:
    """The sum of `parts`, with `size` elements. More than two parts are added at once or in an
    unknown order."""

    size: int
    parts: tuple[int, ...]


@dataclass(frozen=True)
class Tree:
    """The order in which `n` elements are added.

    `leaves` are the indices of all elements or of a sample, ascending. Part k of a join is leaf k
    or, from the number of leaves on, an earlier join; the last join is the whole sum. `Forest.tree`
    sorts both, so that equal orders are equal trees.
    """

    n: int
    leaves: tuple[int, ...]
    joins: tuple[Join, ...]

    @property
    def exact(self) -> bool:
        """True if every element is a leaf."""
        return len(self.leaves) == self.n

    @cached_property
    def depth(self) -> int:
        """The most additions that an element passes through; for a sample, a lower bound."""
        depths = [0] * len(self.leaves)
        for join in self.joins:
            depths.append(max(depths[part] for part in join.parts) + len(join.parts) - 1)
        return depths[-1] if depths else 0

    @cached_property
    def binary(self) -> bool:
        """True if every join has two parts."""
        return all(len(join.parts) == 2 for join in self.joins)

    @cached_property
    def lowest(self) -> tuple[int, ...]:
        """For each leaf and join, the smallest index of an element below it."""
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
        """True if every sum is of contiguous elements, so that the operands are never permuted."""
        return all(bits + (bits & -bits) & bits == 0 for bits in self.sets)

    @property
    def hash(self) -> str:
        """A short hash of the order."""
        text = repr((self.n, self.leaves, [(join.size, join.parts) for join in self.joins]))
        return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]

    def refines(self, other: Tree) -> bool:
        """True if every subtree sum of `other` is also a subtree sum of this tree."""
        return self.leaves == other.leaves and set(other.sets) <= set(self.sets)

    def meets(self, first: int, second: int) -> int:
        """The size of the smallest sum that contains two leaves, by their numbers."""
        both = 1 << first | 1 << second
        below = self.sets[len(self.leaves) :]
        return next(
            join.size for join, bits in zip(self.joins, below, strict=True) if bits & both == both
        )

    def value(self, numbers: Array, dtype: str) -> float:
        """The sum of one number per leaf in a float type, bit by bit; for a binary tree."""
        values = list(numbers.astype(dtype))
        with np.errstate(over="ignore", invalid="ignore"):
            for join in self.joins:
                first, second = join.parts
                values.append(values[first] + values[second])
        return float(values[-1])


class Forest:
    """Builds trees. A tree is known by a number; the first numbers are the leaves."""

    def __init__(self, leaves: Sequence[int]) -> None:
        self._leaves = tuple(leaves)
        self._joins: list[Join] = []

    def size(self, tree: int) -> int:
        """The number of elements of a tree."""
        return 1 if tree < len(self._leaves) else self._join(tree).size

    def parts(self, tree: int) -> tuple[int, ...]:
        """The parts of a tree's last sum; of a leaf the leaf itself."""
        return (tree,) if tree < len(self._leaves) else self._join(tree).parts

    def _join(self, tree: int) -> Join:
        return self._joins[tree - len(self._leaves)]

    def join(self, parts: Sequence[int], size: int | None = None) -> int:
        """The sum of parts, of `size` elements, by default those of the parts."""
        if len(parts) == 1:
            return parts[0]
        whole = sum(map(self.size, parts)) if size is None else size
        self._joins.append(Join(whole, tuple(parts)))
        return len(self._leaves) + len(self._joins) - 1

    def tree(self, n: int, root: int | None) -> Tree:
        """The tree below a root, of `n` elements in all; None is the root of no elements. Parts and
        joins are sorted by their lowest element, and joins come after their parts."""
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


def depth_of(kernel: Kernel, block: int, items: int, blocks: int, n: int) -> int:
    """The most additions that an element passes through in one launch of `blocks` blocks a row: in
    its thread, its block and, if one launch finishes the sum, of the partials. This is the n of
    Higham's gamma_n, 4.2. An addition to the identity does not round, so k values cost k - 1."""
    match kernel.walk:
        case "element":
            return n - 1
        case "lane":
            return _steps(32)
        case "warp_stride":
            return items * parts(n, 32 * items) - 1 + (kernel.vector > 1) + _steps(32)
        case "warp_stream":  # the elements and lanes of a tile, then the tiles
            own = items + _steps(32) + parts(n, block * items * blocks)
        case "tickets":  # one block may get all tiles; each is a sum of its own
            own = items + parts(n, max(32, block - 32) * items)
        case "tile":
            own = items
        case "grid_stride":
            own = items * parts(n, block * items * blocks)
        case _:
            own = parts(parts(n, blocks), block)
    serial = kernel.fold == "warps_then_serial"
    folded = _steps(32) + block // 32 - 1 if serial else _steps(block)
    depth = own - 1 + folded + (kernel.vector > 1)  # wide loads leave elements at the ends
    if kernel.finish in (*UNORDERED, "cluster"):
        depth += blocks - 1
    if kernel.finish in ("last_block", "mailbox"):
        depth += parts(blocks, block) - 1 + folded
    return depth


def parts(whole: int, part: int) -> int:
    """The number of parts of this size, the last one perhaps shorter."""
    return -(-whole // part)


def _steps(count: int) -> int:
    """The number of halvings of `count` down to one."""
    return (count - 1).bit_length()


#: Threads that fold the partials of fixed warps.
_FOLDING = 1024


@dataclass(frozen=True, slots=True)
class FixedWarps:
    """`n` elements shared by at most `most` warps, in tiles of `rows` rows of `width` elements."""

    n: int
    most: int
    rows: int
    width: int

    @property
    def partials(self) -> int:
        """The number of warps that add at least one element."""
        return min(self.most, parts(self.n, self.rows * self.width))

    @property
    def depth(self) -> int:
        """The most additions that an element passes through."""
        tiles = parts(self.n, self.rows * self.width * self.most)
        in_turn = tiles * self.rows - 1 + parts(self.partials, _FOLDING) - 1
        return in_turn + _steps(self.width) + 2 * _steps(_WARP)

    def tree(self) -> Tree:
        """The order of all additions."""
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
    """The fixed warps of a kernel on `n` elements of `size` bytes; None if it has none."""
    if kernel.fixed_warps is None:
        return None
    load = kernel.vector_of(size)
    return FixedWarps(n, kernel.fixed_warps, kernel.items_of(size) // load, _WARP * load)


def _present(trees: Sequence[int | None]) -> list[int]:
    return [tree for tree in trees if tree is not None]


def _in_turn(forest: Forest, trees: Sequence[int | None]) -> int | None:
    """The sum of trees one after the other; None of none."""
    whole: int | None = None
    for tree in _present(trees):
        whole = tree if whole is None else forest.join([whole, tree])
    return whole


def _in_halves(forest: Forest, trees: Sequence[int | None]) -> int | None:
    """The sum of trees, each of the first half added to its partner in the second, until one is
    left."""
    while len(trees) > 1:
        half = len(trees) // 2
        pairs = zip(trees[:half], trees[half:], strict=True)
        trees = [_in_turn(forest, pair) for pair in pairs]
    return trees[0]


def claimed(kernel: Kernel, shapes: Sequence[tuple[int, int]], block: int, items: int) -> Tree:
    """The tree of one row that is reduced in launches of (blocks, elements) a row, as far as the
    kernel's front matter determines it."""
    n = shapes[0][1] if shapes else 0
    forest = Forest(range(n))
    values = list(range(n))
    # With wide loads the elements of a thread depend on the input's address.
    is_open = kernel.vector_bytes or kernel.walk in UNASSIGNED
    for blocks, _ in () if is_open else shapes:
        shares = _shares(kernel, len(values), blocks, block, items)
        values = [_folded(forest, kernel, values, share) for share in shares if any(share)]
    return forest.tree(n, forest.join(values) if values else None)


def _shares(
    kernel: Kernel, n: int, blocks: int, block: int, items: int
) -> Iterator[list[Sequence[int]]]:
    """The indices that each thread of each block adds, of `n` values. If the front matter does not
    determine the thread of a value, it counts as one of its own."""
    tile, share = block * items, -(-n // blocks)
    plain = kernel.vector == 1
    for index in range(blocks):
        own = range(min(index * share, n), min(index * share + share, n))
        match kernel.walk:
            case "element" | "lane":
                yield [[k] for k in range(n)]
                return
            case "tile":
                yield [[k] for k in range(min(index * tile, n), min(index * tile + tile, n))]
            case "grid_stride" if plain and items == 1:
                yield [range(index * block + t, n, block * blocks) for t in range(block)]
            case "grid_stride":
                yield [[k] for k in range(n) if k // tile % blocks == index]
            case "contiguous" if plain:
                yield [own[t::block] for t in range(block)]
            case _:
                yield [[k] for k in own]


def _folded(
    forest: Forest, kernel: Kernel, values: Sequence[int], threads: Sequence[Sequence[int]]
) -> int:
    """The partial result of one block."""
    partials = [_in_turn(forest, [values[k] for k in thread]) for thread in threads]
    if kernel.fold == "warps_then_serial":
        warps = [_present(partials[k : k + _WARP]) for k in range(0, len(partials), _WARP)]
        partials = [_in_turn(forest, [forest.join(warp) for warp in warps if warp])]
    return forest.join(_present(partials))
