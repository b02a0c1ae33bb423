"""Test sets: the shapes with which a kernel is verified, from its grid, tile and finish.

Fixed sizes miss errors that are specific to a kernel. A tile of 8192 elements, for example, makes
one block of every small size, and one block needs no fence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from cudareduce.catalog.registry import AUTO, AUTO_FIXED
from cudareduce.cuda_source import parse_cuda, without_comments
from cudareduce.errors import UsageError
from cudareduce.launch.bound import KEPT
from cudareduce.launch.case import Case, Prepared, Shape
from cudareduce.machine import DeviceLimits
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import Reduction, reduction_of

#: Up to this size there are enough other test sizes.
_SMALL_LITERAL = 1025
#: Largest literal from which a test size is derived.
_LARGE_LITERAL = 2**24 - 2
#: Integer literals, products and shifts of them; one literal of these.
_INTEGER = r"(?:0[xX][\da-fA-F']+|\d[\d']*)(?![\d.eExX'])"
_LITERALS = re.compile(rf"(?<![\w.]){_INTEGER}[uUlL]*(?:\s*(?:\*|<<)\s*{_INTEGER}[uUlL]*)*")
_LITERAL = re.compile(rf"(\*|<<|)\s*({_INTEGER})[uUlL]*")


def literals(text: str) -> tuple[int, ...]:
    """Integers in the kernel source, products and shifts of literals evaluated."""
    found: dict[int, None] = {}
    for match in _LITERALS.finditer(without_comments(parse_cuda(text))):
        value = 1
        for sign, digits in _LITERAL.findall(match[0]):
            number = int(digits.replace("'", ""), 16 if digits[1:2] in ("x", "X") else 10)
            value = value << min(number, 64) if sign == "<<" else value * number
        found[value] = None
    return tuple(found)


def literal_caps(numbers: Iterable[int]) -> tuple[int, ...]:
    """Test sizes around large integer literals in the kernel source."""
    large = (k for k in numbers if _SMALL_LITERAL < k <= _LARGE_LITERAL)
    return tuple(n for k in large for n in (k, k + 1, 2 * k + 1))


def literal_rows(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Rows of three elements, one row more than each large literal in the kernel source."""
    return tuple((3, k + 1) for k in numbers if _SMALL_LITERAL < k <= _LARGE_LITERAL)


#: Verification level of a shape: all patterns, misalignments and schedules; two patterns, one
#: misalignment and all schedules; one input under one schedule; or the large-index test.
Level = Literal["full", "some", "least", "large-index"]
LEAST: Level = "least"
LARGE_INDEX: Level = "large-index"

#: Shapes that row and warp kernels must get right: no elements, short, odd and many rows.
ROW_SHAPES = ((0, 3), (1, 1), (1, 7), (5, 33), (31, 3), (32, 257), (33, 5), (257, 9), (4097, 3))
#: Most elements of a test size that is derived from the kernel: a second on the emulator.
_MOST = 2**24
#: Most elements for the build that detects data races, and for each block size.
_FEW = 2**17
#: Sizes beyond which float32 cannot count by ones, and byte offsets exceed 32 bits.
_UNCOUNTED = 2**24 + 1
_BEYOND_32_BITS = 2**32 + 12
#: Odd, and larger than the million that authors usually test.
_BEYOND_2_20 = 2**20 + 7
#: Remainders that loops often lose: of eight elements, of tiles larger than a block, of rows of
#: 1024.
_REMAINDERS = (*range(1001, 1009), 2047, 4095, 2**15)
#: Loads of 16 bytes in front of the remainders that no other size has.
_LOADS = 63
#: Least number of small sizes that are tested for an external program.
_FEWEST_SIZES = 4
#: Threads of all launches, once each, up to which every size of an external program is tried.
_MANY_THREADS = 2**20
#: Limit for the shapes with rows that are tested for an external program.
_MANY_ROWS, _FEW_ROWS = 12, 3
#: Pairs of iterations of which the sum of bytes per thread exceeds 16 bits.
_BYTES_OF_16_BITS = 150
#: Most elements at which a program is verified because that is the size in its file.
_MOST_OWN = 2**21
#: Blocks that wait for each other and that the emulator runs at a time.
_MOST_BLOCKS_AT_ONCE = 256
#: Number of blocks that a 16-bit counter cannot count.
_BLOCKS_16_BITS = 2**16
#: Further blocks, so that a wrapped counter does not end where a correct one does.
_MORE_BLOCKS = 999
#: Operators that expose other errors than the sum: an identity other than 0 (two kinds), structs
#: whose ties are resolved by index, and operators that are not commutative.
_OTHER_OPERATORS = (
    ("max", "min"),
    ("prod",),
    ("argmin", "argmax"),
    ("affine16", "affine", "matmul"),
)
#: Largest number of elements for which all combinations are tested.
_SHORT = 1025
#: Matches a variable in global memory, which keeps its value between launches.
_STATIC_VARIABLE = re.compile(r"__device__[^;(){}]*[;={]")


@dataclass(frozen=True, slots=True, kw_only=True)
class TestSet:
    """A case, perhaps with another block size than requested, and the shapes to verify it with, on
    a device with `limits`; `watched` selects the emulator build that detects data races."""

    __test__ = False  # not a class of tests for pytest

    case: Case
    shapes: tuple[Shape, ...]
    limits: DeviceLimits
    level: Level
    watched: bool = False


def edge_sizes(block: int) -> list[int]:
    """Sizes at which reductions often fail: none, one, around a warp, around one and two blocks of
    `block` threads, and odd sizes between."""
    near_blocks = (block - 1, block, block + 1, 2 * block - 1, 2 * block + 1)
    return sorted({0, 1, 2, 31, 32, 33, *near_blocks, 1023, 1024, 1025, 4097, 65537, 1000003})


def recorded_shapes(case: Case, most: int | None) -> tuple[Shape, ...]:
    """The shapes at which an external program was recorded, up to `most` elements; with a limit
    only one that is not small."""
    assert case.kernel.program is not None
    shapes = sorted(case.kernel.program.shapes, key=prod)
    allowed = [shape for shape in shapes if case.precondition.why_not(*shape) is None]
    if most is None:
        return tuple(allowed)
    allowed = [shape for shape in allowed if _runs_at_once(case, shape)] or allowed
    small = [shape for shape in allowed if prod(shape) <= _FEW]
    if case.kernel.scope == "rows" and len(small) > _MANY_ROWS:  # each has many threads
        many = [shape for shape in small if shape[1] > _FEW_ROWS]
        kept = {*many[: _MANY_ROWS // 2], *many[_MANY_ROWS // 2 :: 3]}
        small = [shape for shape in small if shape[1] <= _FEW_ROWS or shape in kept]
    program = case.kernel.program
    threads = [
        max((prod(one.grid) * prod(one.block) for one in run.launches), default=0)
        for run in (program.run(*shape) for shape in small) if run is not None
    ]  # fmt: skip
    # A grid of fixed size is as large for few elements.
    step = -(-sum(threads) // _MANY_THREADS) or 1
    longest = max(small, default=None)
    small = small[:: min(step, max(1, len(small) // _FEWEST_SIZES))]
    small += [longest] if longest and longest not in small else []
    large = [shape for shape in allowed if _FEW < prod(shape) <= most]
    chosen = [*small, *large[:1]]
    own = program.own
    if own in allowed and own not in chosen and prod(own) <= min(most, _MOST_OWN):
        chosen.append(own)
    return tuple(sorted(chosen, key=prod))


def _runs_at_once(case: Case, shape: Shape) -> bool:
    """True unless a cooperative launch has more blocks than the emulator runs at a time."""
    run = case.kernel.program.run(*shape) if case.kernel.program else None
    launches = run.launches if run else ()
    return all(not one.cooperative or prod(one.grid) <= _MOST_BLOCKS_AT_ONCE for one in launches)


def edges(case: Case, limits: DeviceLimits, *, large: bool = False) -> tuple[Shape, ...]:
    """Shapes at which a kernel may fail, in increasing order: sizes critical for every reduction,
    then those of its own tiles, grid and finish. `large` adds sizes that only a GPU can verify."""
    if case.kernel.program is not None:
        return recorded_shapes(case, None if large else _MOST)
    tile = tile_of(case)
    sizes = {*edge_sizes(case.block), *_tiles(tile), *_whole_tiles(tile), *_fold_sizes(case)}
    sizes |= {_BEYOND_2_20, *_iterations(case, limits), *_many_iterations(case, limits)}
    sizes |= {
        *(_block_counts(case, limits) if large else ()),
        *(_REMAINDERS if case.kernel.foreign else ()),
    }
    sizes |= {*_rests(case, sizes), *literal_caps(literals(case.kernel.code))}
    sizes = {n for n in sizes if n <= _MOST}
    if large:
        sizes |= {_UNCOUNTED, _BEYOND_32_BITS // case.reduction.dtype.size}
    many = literal_rows(literals(case.kernel.code))
    rows = dict.fromkeys((*_allowed_rows(case, (*ROW_SHAPES, *many)), *_rows(case)))
    return (*_arrays(case, sizes), *rows)


def race_test_sets(case: Case) -> Iterator[TestSet]:
    """Test sets for data races: several blocks and several iterations of the grid-stride loop with
    little work, since they are planned for a tiny device."""
    tile, limits = tile_of(case), _tiny_device(case)
    if case.kernel.program is not None:
        shapes = recorded_shapes(case, _FEW)
        yield TestSet(case=case, shapes=shapes, limits=limits, level="some", watched=True)
        return
    sizes = {1, *_tiles(tile), *(2 * n for n in _whole_tiles(tile)[:1])}
    rounds = set(_iterations(case, limits))
    sizes |= rounds if min(rounds, default=0) <= _FEW else set()
    shapes = (*_arrays(case, sizes, _FEW), *_rows(case))
    yield TestSet(case=case, shapes=shapes, limits=limits, level="some", watched=True)
    if min(rounds, default=0) > _FEW:
        small = replace(case, block=min(_blocks(case)))
        again = _arrays(small, _iterations(small, limits), _MOST)
        yield TestSet(case=small, shapes=again, limits=limits, level="least", watched=True)


def block_test_sets(case: Case) -> Iterator[TestSet]:
    """Test sets for every other block size that the front matter names."""
    for block in (k for k in _blocks(case) if k != case.block):
        other = replace(case, block=block)
        limits, tile = _tiny_device(other), tile_of(other)
        sizes = {
            1,
            tile - 1,
            2 * tile + 1,
            2 * tile,
            *_iterations(other, limits),
            *_fold_sizes(other),
        }
        shapes = (*_arrays(other, sizes, _FEW), *_rows(other)[:2])
        yield TestSet(case=other, shapes=shapes, limits=limits, level="some")


def watched_test_set(case: Case, shapes: Iterable[Shape], limits: DeviceLimits) -> TestSet:
    """Test set for the race-detecting build, of the small shapes at which a case failed."""
    few = tuple(shape for shape in sorted(shapes) if 0 < shape[0] * shape[1] <= _FEW)
    return TestSet(case=case, shapes=few, limits=limits, level="some", watched=True)


def grid_stride_test_sets(case: Case) -> Iterator[TestSet]:
    """Test set with every pattern where each thread of a fixed grid takes several elements."""
    limits = _tiny_device(case)
    rounds = _iterations(case, limits)
    shapes = _arrays(case, rounds, _FEW)
    if shapes:
        yield TestSet(case=case, shapes=shapes, limits=limits, level="full")
    if case.reduction.dtype.size == 1:  # a running sum in 16 bits overflows
        shapes = _arrays(case, [_BYTES_OF_16_BITS * n for n in rounds[:1]], _MOST // 4)
        yield TestSet(case=case, shapes=shapes, limits=limits, level="some")


def operator_test_sets(case: Case) -> Iterator[TestSet]:
    """Test sets for one operator of each other kind that the kernel supports, alternately with its
    own block size and with the smallest of the front matter. Operators that are not commutative are
    tried with both, since no other operator exposes a wrong order."""
    for k, kind in enumerate(_OTHER_OPERATORS):
        found = next((r for r in _reductions(kind) if case.kernel.why_not(r) is None), None)
        if found is None or case.reduction.op.name in kind:
            continue
        blocks = (case.block, min(_blocks(case)))
        for block in sorted({*blocks} if not found.op.commutative else {blocks[k % 2]}):
            other = replace(case, reduction=found, block=block)
            tile, limits = tile_of(other), _tiny_device(other)
            sizes = {33, tile, 2 * tile + 1, *_iterations(other, limits)}
            if other.kernel.vector > 1:  # most elements after the last vector load
                sizes.add(2 * tile - 1)
            shapes = (*_arrays(other, sizes, _FEW), *_rows(other)[:2])
            yield TestSet(case=other, shapes=shapes, limits=limits, level="full")


def _reductions(ops: Iterable[str]) -> Iterator[Reduction]:
    """Each operator on each type, common types first."""
    types = dict.fromkeys(("float32", "int32", "uint32", *DTYPES))
    return (reduction_of(op, dtype) for op in ops for dtype in types)


def block_count_test_sets(
    case: Case, limits: DeviceLimits, *, any_block: bool = True
) -> Iterator[TestSet]:
    """Test set with more blocks than 16 bits can count, for a kernel with an arrival counter, or
    with more rows. `any_block` allows the smallest block size that the kernel supports."""
    small = replace(case, block=min(_blocks(case))) if any_block else case
    shapes = _arrays(small, _block_counts(small, limits), _MOST)
    if case.kernel.scope in ("rows", "warp"):
        shapes = ((3, case.precondition.nearest_rows(_BLOCKS_16_BITS + 1)),)
    if shapes:
        yield TestSet(case=small, shapes=shapes, limits=limits, level="least")


def _blocks(case: Case) -> tuple[int, ...]:
    """The block sizes of the front matter; only the selected one for `auto`."""
    return (case.block,) if case.kernel.id in (AUTO, AUTO_FIXED) else case.kernel.blocks


def keeps_state(ready: Prepared) -> bool:
    """True if a kernel may find what an earlier launch has left: in its workspace, its arrival
    counter or a variable in global memory."""
    kept = any(KEPT & plan.scratch.keys() for plan in ready.plans.values())
    return kept or _STATIC_VARIABLE.search(ready.case.kernel.code) is not None


def tile_of(case: Case) -> int:
    """Elements that a block reads per iteration."""
    return case.block * case.items


def _arrays(case: Case, sizes: Iterable[int], most: int | None = None) -> tuple[Shape, ...]:
    """Arrays of these sizes with up to `most` elements, in increasing order. Sizes that violate the
    precondition of a case are replaced by the nearest allowed ones."""
    precondition = case.precondition
    near = {
        n for size in sizes for n in precondition.nearest_sizes(size)[-1 if size > _FEW else 0 :]
    }
    if precondition.multiple > 1 and near:
        near |= {precondition.multiple * k for k in (1, 2, 3, 5)}
    some = sorted(n for n in precondition.sizes or near if precondition.why_not(n) is None)
    few = [n for n in some if most is None or n <= most]
    if not few and near and (precondition.sizes or precondition.multiple > 1):
        few = [n for n in some[:1] if n <= _MOST // 16]
    return tuple((n, 1) for n in few)


def _tiles(tile: int) -> tuple[int, ...]:
    """Sizes around one tile, and of two and three tiles with one more element."""
    return tile - 1, tile, tile + 1, 2 * tile + 1, 3 * tile + 1


def _whole_tiles(tile: int) -> tuple[int, ...]:
    """Multiples of the tile, the only sizes of a kernel without an element count."""
    return 2 * tile, 3 * tile, 5 * tile, 33 * tile


def _rests(case: Case, sizes: Iterable[int]) -> Iterator[int]:
    """A size up to 1023 for each remainder that no other has, of the elements of a 16-byte load."""
    load = max(1, 16 // case.reduction.dtype.size)
    known = {n % load for n in sizes if n > load}
    return (_LOADS * load + rest for rest in range(load) if rest not in known)


def _fold_sizes(case: Case) -> tuple[int, ...]:
    """Sizes from which on the last block folds more than one partial result per thread."""
    if case.kernel.finish not in ("last_block", "relaunch_one_block"):
        return ()
    return case.block * tile_of(case) + 1, 2 * case.block * tile_of(case) + 1


def _iterations(case: Case, limits: DeviceLimits) -> tuple[int, ...]:
    """Sizes at which every block of a fixed grid starts its third iteration."""
    grid = case.kernel.fixed_grid or 1
    if case.kernel.grid in ("fill", "fill_by_row"):
        grid = limits.sm_count * (limits.threads_per_sm // case.block)
    elif case.kernel.grid == "per_sm":
        grid = limits.sm_count
    elif case.kernel.grid != "fixed":
        return ()
    return 2 * grid * tile_of(case), 2 * grid * tile_of(case) + 1


def _many_iterations(case: Case, limits: DeviceLimits) -> tuple[int, ...]:
    """Sizes with more iterations than an unrolled loop may have, or a byte can count."""
    many = (16, 130) if case.kernel.foreign else (16,)
    return tuple(k * n + 1 for n in _iterations(case, limits)[:1] for k in many)


def _block_counts(case: Case, limits: DeviceLimits) -> tuple[int, ...]:
    """Sizes with 2^16 blocks and some more, if the grid can be that large."""
    counts = case.kernel.finish == "last_block" or _STATIC_VARIABLE.search(case.kernel.code)
    if not counts or case.kernel.scope != "grid":
        return ()
    sizes = _BLOCKS_16_BITS * tile_of(case), (_BLOCKS_16_BITS + _MORE_BLOCKS) * tile_of(case)
    try:
        grid = max((step.grid for step in case.plan(sizes[1], 1, limits).passes), default=0)
    except UsageError:
        return ()
    return sizes if grid > _BLOCKS_16_BITS else ()


def _rows(case: Case) -> tuple[Shape, ...]:
    """Rows of even and odd length: several rows per block, and several blocks per row."""
    warps = case.block // 32
    if case.kernel.scope == "warp":
        return (31, 2 * warps + 1), (32, 3 * warps), (7, max(1, warps - 1))
    if case.kernel.scope == "rows":
        tile, wide = tile_of(case), case.kernel.vector > 1
        load = case.kernel.vector_of(case.reduction.dtype.size)
        rows_of_block = {"warp_per_row": warps, "thread_per_row": case.block}
        several = 2 * rows_of_block.get(case.kernel.grid, 4) + 1
        # Short rows may be split between the lanes of a warp, so that a block takes many.
        has_one_row = case.kernel.grid in ("block_per_row", "fill_by_row")
        few_loads = ((load << k, several if has_one_row else 300) for k in range(6 * wide))
        usual = (2 * tile + 1, 3), (31, several), (31, several - 1), (257, 3), (tile, 2)
        return _allowed_rows(case, (*usual, *few_loads))
    return ()


def _allowed_rows(case: Case, shapes: Iterable[Shape]) -> tuple[Shape, ...]:
    """Rows whose lengths satisfy the precondition of a case, next to the given shapes, and the
    shortest ones."""
    precondition = case.precondition
    shapes = [(n, precondition.nearest_rows(rows)) for n, rows in shapes]
    if precondition.multiple == 1 and not precondition.sizes:
        return tuple(dict.fromkeys(shapes))
    lengths = precondition.sizes or tuple(precondition.multiple * k for k in (1, 2, 3))
    near = (
        ()
        if precondition.sizes
        else ((precondition.nearest_sizes(n)[-1], rows) for n, rows in shapes)
    )
    found = dict.fromkeys((*((n, precondition.nearest_rows(3)) for n in lengths), *near))
    return tuple((n, rows) for n, rows in found if n * rows <= _MOST)


def _tiny_device(case: Case) -> DeviceLimits:
    """A device that holds three blocks at a time, or two for each of three rows."""
    return DeviceLimits(6 if case.kernel.grid == "fill_by_row" else 3, threads_per_sm=case.block)
