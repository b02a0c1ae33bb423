"""In which order elements are added: a tree, what follows from it, and its short name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cudareduce.library.header import UNASSIGNED, UNORDERED
from cudareduce.library.kernel import Kernel
from cudareduce.reduction.inputs import Array

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


def depth_of(kernel: Kernel, block: int, items: int, blocks: int, n: int) -> int:
    """Additions an element can pass through in one launch with so many blocks a row: its thread's
    own, the block's, and where blocks meet in one launch, those of the partials: the n of Higham's
    gamma_n, 4.2. An addition to the identity rounds nothing, so `k` values cost `k - 1`."""
    match kernel.walk:
        case "element":
            return n - 1
        case "lane":
            return _steps(32)
        case "warp_stride":
            return items * parts(n, 32 * items) - 1 + (kernel.vector > 1) + _steps(32)
        case "warp_stream":  # a tile's elements and lanes, then the tiles
            own = items + _steps(32) + parts(n, block * items * blocks)
        case "tickets":  # chance may leave all tiles to one block; each is a sum of its own
            own = items + parts(n, max(32, block - 32) * items)
        case "tile":
            own = items
        case "grid_stride":
            own = items * parts(n, block * items * blocks)
        case _:
            own = parts(parts(n, blocks), block)
    serial = kernel.fold == "warps_then_serial"
    folded = _steps(32) + block // 32 - 1 if serial else _steps(block)
    depth = own - 1 + folded + (kernel.vector > 1)  # the ends of which wide loads leave
    if kernel.finish in (*UNORDERED, "cluster"):
        depth += blocks - 1
    if kernel.finish in ("last_block", "mailbox"):
        depth += parts(blocks, block) - 1 + folded
    return depth


def parts(whole: int, part: int) -> int:
    """How many parts of this size make up the whole, the last one perhaps shorter."""
    return -(-whole // part)


def _steps(count: int) -> int:
    """How many times `count` must be halved until one is left."""
    return (count - 1).bit_length()


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
        """The number of warps that add at least one element."""
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
        threads = [_sum_in_turn(forest, partials[t::_FOLDING]) for t in range(_FOLDING)]
        warps = [_sum_in_halves(forest, threads[k : k + _WARP]) for k in range(0, _FOLDING, _WARP)]
        return forest.tree(self.n, _sum_in_halves(forest, warps))

    def _partial(self, forest: Forest, warp: int) -> int | None:
        tile = self.rows * self.width
        rows = [
            range(row, min(row + self.width, self.n))
            for begin in range(warp * tile, self.n, self.most * tile)
            for row in range(begin, min(begin + tile, self.n), self.width)
        ]
        slots = [[row[k] for row in rows if k < len(row)] for k in range(self.width)]
        return _sum_in_halves(forest, [_sum_in_turn(forest, slot) for slot in slots])


def fixed_warps(kernel: Kernel, n: int, size: int) -> FixedWarps | None:
    """Those of a kernel on `n` elements of so many bytes; None if it has none."""
    if kernel.fixed_warps is None:
        return None
    load = kernel.vector_of(size)
    return FixedWarps(n, kernel.fixed_warps, kernel.items_of(size) // load, _WARP * load)


def _sum_in_turn(forest: Forest, parts: Sequence[int | None]) -> int | None:
    """Parts added one after the other, where there are any."""
    whole: int | None = None
    for part in parts:
        whole = _sum(forest, whole, part)
    return whole


def _sum_in_halves(forest: Forest, parts: Sequence[int | None]) -> int | None:
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


def claimed(kernel: Kernel, shapes: Sequence[tuple[int, int]], block: int, items: int) -> Tree:
    """The tree of one row that is reduced in launches of so many blocks on so many elements a row
    each."""
    n = shapes[0][1] if shapes else 0
    forest = Forest(range(n))
    values = list(range(n))
    # With wide loads, which thread takes what depends on where the input starts: all is left open.
    left_open = kernel.vector_bytes or kernel.walk in UNASSIGNED
    for blocks, _ in () if left_open else shapes:
        shares = _shares(kernel, len(values), blocks, block, items)
        values = [_folded(forest, kernel, values, share) for share in shares if any(share)]
    return forest.tree(n, forest.join(values) if values else None)


def _shares(
    kernel: Kernel, n: int, blocks: int, block: int, items: int
) -> Iterator[list[Sequence[int]]]:
    """What each block takes of `n` values: what each of its threads adds up, one value after the
    other. Where the words do not say which thread takes a value, it is a thread's own."""
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
    """The partial of one block."""
    partials = [
        _in_turn(forest, [values[k] for k in thread]) if thread else None for thread in threads
    ]
    if kernel.fold == "warps_then_serial":
        warps = [_there(partials[k : k + _WARP]) for k in range(0, len(partials), _WARP)]
        return _in_turn(forest, [forest.join(warp) for warp in warps if warp])
    return forest.join(_there(partials))


def _there(partials: Sequence[int | None]) -> list[int]:
    """Those of threads that have something to add."""
    return [partial for partial in partials if partial is not None]


def _in_turn(forest: Forest, parts: Sequence[int]) -> int:
    """Parts added one after the other."""
    whole = parts[0]
    for part in parts[1:]:
        whole = forest.join([whole, part])
    return whole
