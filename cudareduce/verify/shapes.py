"""Which shapes prove a kernel, from what its header says of grid, tile and finish.

Sizes that are the same for every kernel miss what hangs on its own: a tile of 8192 elements makes
one block of every small size, and one block needs no fence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from cudareduce.errors import UsageError
from cudareduce.launch.case import Case, Shape
from cudareduce.library.plane import of_several
from cudareduce.library.registry import AUTO, AUTO_FIXED
from cudareduce.machine.device import DeviceLimits
from cudareduce.problem.dtypes import DTYPES
from cudareduce.problem.operators import Reduction, reduction_of
from cudareduce.verify.written import written_rows, written_sizes

#: How much is tried on a shape: all patterns, misalignments and schedules; two patterns, one
#: misalignment and all schedules; one input under one schedule; or single blocks of launches that
#: are larger than any memory.
Care = Literal["full", "some", "least", "far"]
LEAST: Care = "least"
FAR: Care = "far"

#: Rows of every kind that row and warp kernels must get right: none, short, odd, many.
ROW_SHAPES = ((0, 3), (1, 1), (1, 7), (5, 33), (31, 3), (32, 257), (33, 5), (257, 9), (4097, 3))
#: The most elements of a size that the kernel itself gives rise to: emulated, a second's work.
_MOST = 2**24
#: The most that are watched, or tried with each block: some hundredths of a second's work.
_FEW = 2**17
#: Where float32 no longer counts by ones, and where offsets in bytes no longer fit 32 bits.
_UNCOUNTED = 2**24 + 1
_BEYOND_32_BITS = 2**32 + 12
#: Odd, and beyond the million that authors try.
_BEYOND_2_20 = 2**20 + 7
#: What loops of authors lose: a rest of each of eight elements, of tiles that are larger than their
#: blocks, and of rows of 1024.
_RESTS = (*range(1001, 1009), 2047, 4095, 2**15)
#: Arrivals from which on 16 bits do not count them.
_WRAPS = 2**16
#: And so many more that those do not end where a count from 0 to these ends.
_MORE = 999
#: Operators that differ from the sum in what a kernel may get wrong: an identity that is not 0, two
#: ways; structs of which equals are told apart by their place; an order that matters.
_OTHERS = (("max", "min"), ("prod",), ("argmin", "argmax"), ("affine16", "affine", "matmul"))
#: Up to so many elements all is tried.
_SHORT = 1025
#: A variable in global memory that outlives a launch.
_KEPT = re.compile(r"__device__[^;(){}]*[;={]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Net:
    """A case, perhaps with another block than was asked for, and what to try it with: shapes, on a
    device with `limits`, in the build that is `watched` for hazards or the plain one."""

    case: Case
    shapes: tuple[Shape, ...]
    limits: DeviceLimits
    care: Care
    watched: bool = False


def edge_sizes(block: int) -> list[int]:
    """Elements where reductions go wrong: none, one, about a warp, a block of so many threads, two,
    and odd sizes between."""
    near_blocks = (block - 1, block, block + 1, 2 * block - 1, 2 * block + 1)
    return sorted({0, 1, 2, 31, 32, 33, *near_blocks, 1023, 1024, 1025, 4097, 65537, 1000003})


def edges(case: Case, limits: DeviceLimits, *, large: bool = False) -> tuple[Shape, ...]:
    """Where a kernel may go wrong, in increasing order: sizes that hurt every reduction, then those
    of its own tiles, grid and finish; `large` adds what only a GPU gets through."""
    tile = tile_of(case)
    sizes = {*edge_sizes(case.block), *_tiles(tile), *_whole(tile), *_folds(case)}
    sizes |= {_BEYOND_2_20, *_rounds(case, limits), *_many_rounds(case, limits)}
    sizes |= {*(_arrivals(case, limits) if large else ()), *(_RESTS if case.kernel.foreign else ())}
    sizes = {n for n in (*sizes, *written_sizes(case.kernel.constants, tile)) if n <= _MOST}
    if large:
        sizes |= {_UNCOUNTED, _BEYOND_32_BITS // case.reduction.dtype.size}
    if case.kernel.plane:
        sizes = {of_several(n) if n > _FEW else n for n in sizes}
    many = written_rows(case.kernel.constants)
    rows = dict.fromkeys((*_asked(case, (*ROW_SHAPES, *many)), *_rows(case)))
    return (*_arrays(case, sizes), *rows)


def hazard_net(case: Case) -> Iterator[Net]:
    """What the build that watches every access is given: several blocks and several turns of a
    block with little work, since the device of its plans is tiny."""
    tile, limits = tile_of(case), _tiny(case)
    sizes = {1, *_tiles(tile), *(2 * n for n in _whole(tile)[:1])}
    rounds = set(_rounds(case, limits))
    sizes |= rounds if min(rounds, default=0) <= _FEW else set()
    shapes = (*_arrays(case, sizes, _FEW), *_rows(case))
    yield Net(case=case, shapes=shapes, limits=limits, care="some", watched=True)
    if min(rounds, default=0) > _FEW:
        small = replace(case, block=min(_blocks(case)))
        again = _arrays(small, _rounds(small, limits), _MOST)
        yield Net(case=small, shapes=again, limits=limits, care="least", watched=True)


def block_nets(case: Case) -> Iterator[Net]:
    """Every other block that the header names, each on a few shapes of its own."""
    for block in (k for k in _blocks(case) if k != case.block):
        other = replace(case, block=block)
        limits, tile = _tiny(other), tile_of(other)
        sizes = {1, tile - 1, 2 * tile + 1, 2 * tile, *_rounds(other, limits), *_folds(other)}
        shapes = (*_arrays(other, sizes, _FEW), *_rows(other)[:2])
        yield Net(case=other, shapes=shapes, limits=limits, care="some")


def guess_net(case: Case) -> Net:
    """What tells grids apart that a file without a header may have been written for: more tiles
    than the device of its plans takes at a time, and more rows than a block has threads for."""
    shapes = _arrays(case, (1, tile_of(case) + 1, 8 * tile_of(case)))
    shapes += _asked(case, [(3, case.block + 1)]) if case.kernel.grid == "thread_per_row" else ()
    return Net(case=case, shapes=shapes, limits=_tiny(case), care="some")


def condition_nets(case: Case) -> Iterator[Net]:
    """What tells whether a case is right on the condition that it is given with: every kind of
    value in a few tiles, and more of them than the device of its plans takes at a time."""
    tile, limits = tile_of(case), _tiny(case)
    few = (*_arrays(case, {1, 2, 33, *_tiles(tile)}, _FEW), *_rows(case))
    yield Net(case=case, shapes=few, limits=limits, care="full")
    more = {8 * tile, *_rounds(case, limits), *written_sizes(case.kernel.constants, tile)}
    yield Net(case=case, shapes=_arrays(case, more), limits=limits, care="least")
    yield from round_net(case)
    yield next(hazard_net(case))  # which alone sees a load that is not aligned


def watched_net(case: Case, shapes: Iterable[Shape], limits: DeviceLimits) -> Net:
    """What the build that watches is given of shapes at which a case was wrong, smaller ones
    first."""
    few = tuple(shape for shape in sorted(shapes) if 0 < shape[0] * shape[1] <= _FEW)
    return Net(case=case, shapes=few, limits=limits, care="some", watched=True)


def size_net(case: Case, limits: DeviceLimits) -> Net:
    """What tells whether a case is right on arrays of the sizes that it asks for."""
    care: Care = "full" if max(case.asks.sizes) <= _SHORT else "least"
    return Net(case=case, shapes=_arrays(case, ()), limits=limits, care=care)


def round_net(case: Case) -> Iterator[Net]:
    """Every kind of value where a thread of a grid that does not grow has several, cheaply."""
    limits = _tiny(case)
    shapes = _arrays(case, _rounds(case, limits), _FEW)
    if shapes:
        yield Net(case=case, shapes=shapes, limits=limits, care="full")


def operator_nets(case: Case) -> Iterator[Net]:
    """The other kinds of operators that a kernel takes, one of each kind, in turn with its own
    block and with the smallest that the header names; in both where the order matters, which no
    operator but these finds out."""
    for k, kind in enumerate(_OTHERS):
        found = next((r for r in _reductions(kind) if case.kernel.why_not(r) is None), None)
        if found is None or case.reduction.op.name in kind:
            continue
        blocks = (case.block, min(_blocks(case)))
        for block in sorted({*blocks} if not found.op.commutative else {blocks[k % 2]}):
            other = replace(case, reduction=found, block=block)
            tile, limits = tile_of(other), _tiny(other)
            sizes = {33, tile, 2 * tile + 1, *_rounds(other, limits)}
            if other.kernel.vector > 1:  # most elements behind the last load
                sizes.add(2 * tile - 1)
            shapes = (*_arrays(other, sizes, _FEW), *_rows(other)[:2])
            yield Net(case=other, shapes=shapes, limits=limits, care="full")


def _reductions(ops: Iterable[str]) -> Iterator[Reduction]:
    """Each operator on each type, common ones first."""
    types = dict.fromkeys(("float32", "int32", "uint32", *DTYPES))
    return (reduction_of(op, dtype) for op in ops for dtype in types)


def arrival_net(case: Case, limits: DeviceLimits, *, any_block: bool = True) -> Iterator[Net]:
    """More blocks than 16 bits count, of a kernel that counts its blocks as they arrive, or rows;
    with `any_block` in the smallest block that it takes."""
    small = replace(case, block=min(_blocks(case))) if any_block else case
    shapes = _arrays(small, _arrivals(small, limits), _MOST)
    if case.kernel.scope in ("rows", "warp"):
        shapes = () if case.asks.square else ((3, case.asks.near_rows(_WRAPS + 1, 3)),)
    if shapes:
        yield Net(case=small, shapes=shapes, limits=limits, care="least")


def _blocks(case: Case) -> tuple[int, ...]:
    """The blocks that the header names; of a file without one nobody has said any, and `auto` has
    chosen one."""
    settled = case.kernel.guessed is not None or case.kernel.id in (AUTO, AUTO_FIXED)
    return (case.block,) if settled else case.kernel.blocks


def tile_of(case: Case) -> int:
    """Elements that a block takes at a time."""
    return case.block * case.items


def _arrays(case: Case, sizes: Iterable[int], most: int | None = None) -> tuple[Shape, ...]:
    """Arrays of these sizes, in increasing order, as far as they have no more than `most` elements:
    where a case asks for other sizes, of those next to them, of large ones of the next."""
    asks = case.asks
    near = {n for size in sizes for n in asks.near(size)[-1 if size > _FEW else 0 :]}
    if asks.multiple > 1 and near:
        near |= {asks.multiple * k for k in (1, 2, 3, 5)}
    some = sorted(n for n in asks.sizes or near if asks.why_not(n) is None)
    few = [n for n in some if most is None or n <= most]
    if not few and near and (asks.sizes or asks.multiple > 1):
        few = [n for n in some[:1] if n <= _MOST // 16]
    return tuple((n, 1) for n in few)


def _tiles(tile: int) -> tuple[int, ...]:
    """Around one tile, and two and three with one element more."""
    return tile - 1, tile, tile + 1, 2 * tile + 1, 3 * tile + 1


def _whole(tile: int) -> tuple[int, ...]:
    """Whole tiles: to a kernel that takes no count there is nothing else."""
    return 2 * tile, 3 * tile, 5 * tile, 33 * tile


def _folds(case: Case) -> tuple[int, ...]:
    """From here on one block that folds all partials takes more than one a thread."""
    if case.kernel.finish not in ("last_block", "relaunch_one_block"):
        return ()
    return case.block * tile_of(case) + 1, 2 * case.block * tile_of(case) + 1


def _rounds(case: Case, limits: DeviceLimits) -> tuple[int, ...]:
    """Where every block of a grid that does not grow any more takes its turn a third time."""
    grid = case.kernel.fixed_grid or 1
    if case.kernel.grid in ("fill", "fill_by_row"):
        grid = limits.sm_count * (limits.threads_per_sm // case.block)
    elif case.kernel.grid == "per_sm":
        grid = limits.sm_count
    elif case.kernel.grid != "fixed":
        return ()
    return 2 * grid * tile_of(case), 2 * grid * tile_of(case) + 1


def _many_rounds(case: Case, limits: DeviceLimits) -> tuple[int, ...]:
    """Where those blocks take more turns than somebody may have written out, or a byte counts."""
    many = (16, 130) if case.kernel.foreign else (16,)
    return tuple(k * n + 1 for n in _rounds(case, limits)[:1] for k in many)


def _arrivals(case: Case, limits: DeviceLimits) -> tuple[int, ...]:
    """As many blocks as 16 bits count, and some more, where the grid can have as many."""
    counts = case.kernel.finish == "last_block" or _KEPT.search(case.kernel.text)
    if not counts or case.kernel.scope != "grid":
        return ()
    sizes = _WRAPS * tile_of(case), (_WRAPS + _MORE) * tile_of(case)
    try:
        grid = max((step.grid for step in case.plan(sizes[1], 1, limits).passes), default=0)
    except UsageError:
        return ()
    return sizes if grid > _WRAPS else ()


def _rows(case: Case) -> tuple[Shape, ...]:
    """Rows, several of them a block or several blocks a row, of even and of odd length."""
    warps = case.block // 32
    if case.kernel.scope == "warp":
        return (31, 2 * warps + 1), (32, 3 * warps), (7, max(1, warps - 1))
    if case.kernel.scope == "rows":
        tile, wide = tile_of(case), case.kernel.vector > 1
        load = case.kernel.vector_of(case.reduction.dtype.size)
        few_loads = (((load << k), 300) for k in range(6 * wide))  # as lanes share them
        rows_of_block = {"warp_per_row": warps, "thread_per_row": case.block}
        blocks = 6 if case.kernel.turns else 2  # twice those of a tiny device
        several = blocks * rows_of_block.get(case.kernel.grid, 4) + 1
        usual = (2 * tile + 1, 3), (31, several), (257, 3), (tile, 2)
        return _asked(case, (*usual, *few_loads))
    return ()


def _asked(case: Case, shapes: Iterable[Shape]) -> tuple[Shape, ...]:
    """Rows of the lengths that a case asks for, next to these, and of the shortest."""
    asks = case.asks
    shapes = [(n, asks.near_rows(rows, n)) for n, rows in shapes]
    if asks.multiple == 1 and not asks.sizes:
        return tuple(dict.fromkeys(shapes))
    lengths = asks.sizes or tuple(asks.multiple * k for k in (1, 2, 3))
    near = () if asks.sizes else ((asks.near(n)[-1], rows) for n, rows in shapes)
    found = dict.fromkeys((*((n, asks.near_rows(3, n)) for n in lengths), *near))
    return tuple((n, rows) for n, rows in found if n * rows <= _MOST)


def _tiny(case: Case) -> DeviceLimits:
    """A device of which three blocks are all that it holds, or two for each of three rows."""
    return DeviceLimits(6 if case.kernel.grid == "fill_by_row" else 3, threads_per_sm=case.block)
