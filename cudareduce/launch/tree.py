"""Summation trees: depth, hash and value of a tree, and the tree of a launch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cudareduce.catalog.front_matter import UNASSIGNED, UNORDERED
from cudareduce.catalog.kernel import Kernel
from cudareduce.reduction.inputs import Array

#: Hexadecimal digits of a hash: 48 bits, enough for a million trees.
_HASH_DIGITS = 12
_WARP = 32


@dataclass(frozen=True, slots=True)
class Join:
    """The sum of `parts`, which contains `size` elements. More than two parts are added at once or
    in an unknown order."""

    size: int
    parts: tuple[int, ...]


@dataclass(frozen=True)
class Tree:
    """The order in which `n` elements are added.

    `leaves` are the indices of all elements or of a sample, ascending. Leaves and joins have
    consecutive numbers, leaves first; the parts of a join are such numbers. The last join is the
    whole sum. `Forest.tree` sorts both, so that equal orders are equal trees.
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
        """The number of additions on the longest path; for a sample, a lower bound."""
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
        """For each leaf and join, the smallest index of an element in it."""
        indices = list(self.leaves)
        for join in self.joins:
            indices.append(min(indices[part] for part in join.parts))
        return tuple(indices)

    @cached_property
    def sets(self) -> tuple[int, ...]:
        """The leaves in each leaf and join as bit masks: bit k is leaf k."""
        masks = [1 << k for k in range(len(self.leaves))]
        for join in self.joins:
            union = 0
            for part in join.parts:
                union |= masks[part]
            masks.append(union)
        return tuple(masks)

    @property
    def keeps_order(self) -> bool:
        """True if every sum is of contiguous elements, so that operands are never permuted."""
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
        """The size of the smallest sum that contains both leaves."""
        both = 1 << first | 1 << second
        below = self.sets[len(self.leaves) :]
        return next(
            join.size for join, bits in zip(self.joins, below, strict=True) if bits & both == both
        )

    def value(self, numbers: Array, dtype: str) -> float:
        """The sum of one number per leaf in this order and float type. The tree must be binary."""
        values = list(numbers.astype(dtype))
        with np.errstate(over="ignore", invalid="ignore"):
            for join in self.joins:
                first, second = join.parts
                values.append(values[first] + values[second])
        return float(values[-1])


class Forest:
    """Builds trees. Each tree has a number; the first numbers are the leaves."""

    def __init__(self, leaves: Sequence[int]) -> None:
        self._leaves = tuple(leaves)
        self._joins: list[Join] = []

    def size(self, tree: int) -> int:
        """The number of elements of a tree."""
        return 1 if tree < len(self._leaves) else self._join(tree).size

    def parts(self, tree: int) -> tuple[int, ...]:
        """The operands of a tree's last sum; for a leaf, the leaf."""
        return (tree,) if tree < len(self._leaves) else self._join(tree).parts

    def _join(self, tree: int) -> Join:
        return self._joins[tree - len(self._leaves)]

    def join(self, parts: Sequence[int], size: int | None = None) -> int:
        """Add a sum of `parts` and return its number. `size` defaults to the elements of the
        parts."""
        if len(parts) == 1:
            return parts[0]
        whole = sum(map(self.size, parts)) if size is None else size
        self._joins.append(Join(whole, tuple(parts)))
        return len(self._leaves) + len(self._joins) - 1

    def tree(self, n: int, root: int | None) -> Tree:
        """The tree with this root, of `n` elements; without a root it is empty. Parts and joins are
        sorted by their lowest element, and joins follow their parts."""
        if root is None:
            return Tree(n, (), ())
        count, lowest = len(self._leaves), [*self._leaves]
        for join in self._joins:
            lowest.append(min(lowest[part] for part in join.parts))
        positions = {leaf: leaf for leaf in range(count)}
        joins: list[Join] = []
        stack = [root]
        while stack:
            at = stack[-1]
            missing = [part for part in self.parts(at) if part not in positions]
            if at in positions or not missing:
                stack.pop()
            if at in positions:
                continue
            if missing:
                stack += sorted(missing, key=lambda part: -lowest[part])
                continue
            parts = sorted(self.parts(at), key=lambda part: lowest[part])
            positions[at] = count + len(joins)
            joins.append(Join(self.size(at), tuple(positions[part] for part in parts)))
        return Tree(n, self._leaves, tuple(joins))


def depth_of(kernel: Kernel, block: int, items: int, blocks: int, n: int) -> int:
    """The number of additions on the longest path in a launch of `blocks` blocks per row: in a
    thread, in a block and, if the launch finishes the sum, of the partials. This is the n of
    Higham's gamma_n, 4.2. Adding to the identity does not round, so k values cost k - 1."""
    match kernel.walk:
        case "element":
            return n - 1
        case "lane":
            return _halvings(32)
        case "warp_stride":
            return items * ceil_div(n, 32 * items) - 1 + (kernel.vector > 1) + _halvings(32)
        case "warp_stream":  # elements and lanes of a tile, then the tiles
            in_thread = items + _halvings(32) + ceil_div(n, block * items * blocks)
        case "tickets":  # one block may draw all tiles, each of which is a separate sum
            in_thread = items + ceil_div(n, max(32, block - 32) * items)
        case "tile":
            in_thread = items
        case "grid_stride":
            in_thread = items * ceil_div(n, block * items * blocks)
        case _:
            in_thread = ceil_div(ceil_div(n, blocks), block)
    serial = kernel.fold == "warps_then_serial"
    folded = _halvings(32) + block // 32 - 1 if serial else _halvings(block)
    # With vector loads, the ragged ends are added, too.
    depth = in_thread - 1 + folded + (kernel.vector > 1)
    if kernel.finish in (*UNORDERED, "cluster"):
        depth += blocks - 1
    if kernel.finish in ("last_block", "mailbox"):
        depth += ceil_div(blocks, block) - 1 + folded
    return depth


def ceil_div(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def _halvings(count: int) -> int:
    """The number of halvings from `count` to 1: ceil(log2(count))."""
    return (count - 1).bit_length()


#: Threads that add the partial results of fixed warps.
_FOLD_THREADS = 1024


@dataclass(frozen=True, slots=True)
class FixedWarps:
    """A summation order that is independent of the grid: at most `most` warps stride over `n`
    elements in tiles of `rows` rows of `width` elements."""

    n: int
    most: int
    rows: int
    width: int

    @property
    def partials(self) -> int:
        """The number of warps that add at least one element."""
        return min(self.most, ceil_div(self.n, self.rows * self.width))

    @property
    def depth(self) -> int:
        """The number of additions on the longest path."""
        tiles = ceil_div(self.n, self.rows * self.width * self.most)
        in_turn = tiles * self.rows - 1 + ceil_div(self.partials, _FOLD_THREADS) - 1
        return in_turn + _halvings(self.width) + 2 * _halvings(_WARP)

    def tree(self) -> Tree:
        """The order of all additions."""
        forest = Forest(range(self.n))
        partials = [self._partial(forest, warp) for warp in range(self.partials)]
        threads = [_serial_sum(forest, partials[t::_FOLD_THREADS]) for t in range(_FOLD_THREADS)]
        warps = [_tree_sum(forest, threads[k : k + _WARP]) for k in range(0, _FOLD_THREADS, _WARP)]
        return forest.tree(self.n, _tree_sum(forest, warps))

    def _partial(self, forest: Forest, warp: int) -> int | None:
        tile = self.rows * self.width
        rows = [
            range(row, min(row + self.width, self.n))
            for begin in range(warp * tile, self.n, self.most * tile)
            for row in range(begin, min(begin + tile, self.n), self.width)
        ]
        slots = [[row[k] for row in rows if k < len(row)] for k in range(self.width)]
        return _tree_sum(forest, [_serial_sum(forest, slot) for slot in slots])


def fixed_warps(kernel: Kernel, n: int, size: int) -> FixedWarps | None:
    """The warps of a kernel with key `fixed_warps` on `n` elements of `size` bytes; else None."""
    if kernel.fixed_warps is None:
        return None
    load = kernel.vector_of(size)
    return FixedWarps(n, kernel.fixed_warps, kernel.items_of(size) // load, _WARP * load)


def _existing(trees: Sequence[int | None]) -> list[int]:
    return [tree for tree in trees if tree is not None]


def _serial_sum(forest: Forest, trees: Sequence[int | None]) -> int | None:
    """The sum of trees, one after the other; None if there are none."""
    whole: int | None = None
    for tree in _existing(trees):
        whole = tree if whole is None else forest.join([whole, tree])
    return whole


def _tree_sum(forest: Forest, trees: Sequence[int | None]) -> int | None:
    """The sum of trees by a binary tree: the first half is added to the second, until one is
    left."""
    while len(trees) > 1:
        half = len(trees) // 2
        pairs = zip(trees[:half], trees[half:], strict=True)
        trees = [_serial_sum(forest, pair) for pair in pairs]
    return trees[0]


def declared_tree(
    kernel: Kernel, shapes: Sequence[tuple[int, int]], block: int, items: int
) -> Tree:
    """The tree of one row as far as the kernel's front matter determines it. `shapes` are blocks
    and elements per row of each launch."""
    n = shapes[0][1] if shapes else 0
    forest = Forest(range(n))
    values = list(range(n))
    # with vector loads the elements of a thread depend on the input's address
    is_open = kernel.vector_bytes or kernel.walk in UNASSIGNED
    for blocks, _ in () if is_open else shapes:
        by_block = _thread_indices(kernel, len(values), blocks, block, items)
        values = [
            _block_result(forest, kernel, values, threads) for threads in by_block if any(threads)
        ]
    return forest.tree(n, forest.join(values) if values else None)


def _thread_indices(
    kernel: Kernel, n: int, blocks: int, block: int, items: int
) -> Iterator[list[Sequence[int]]]:
    """For each block, the indices of `n` values that each of its threads adds. A value whose thread
    the front matter does not determine counts as a separate thread."""
    tile, share = block * items, -(-n // blocks)
    plain = kernel.vector == 1
    for index in range(blocks):
        part = range(min(index * share, n), min(index * share + share, n))
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
                yield [part[t::block] for t in range(block)]
            case _:
                yield [[k] for k in part]


def _block_result(
    forest: Forest, kernel: Kernel, values: Sequence[int], threads: Sequence[Sequence[int]]
) -> int:
    """The sum of one block."""
    partials = [_serial_sum(forest, [values[k] for k in thread]) for thread in threads]
    if kernel.fold == "warps_then_serial":
        warps = [_existing(partials[k : k + _WARP]) for k in range(0, len(partials), _WARP)]
        partials = [_serial_sum(forest, [forest.join(warp) for warp in warps if warp])]
    return forest.join(_existing(partials))
