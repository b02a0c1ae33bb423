"""What `auto` takes for rows on a GPU that nobody has tuned it for."""

from __future__ import annotations

from collections.abc import Iterator

from cudareduce.auto.facts import CHUNK, LOAD, LOADS, TWO_WORDS, WORD, Facts, Pick
from cudareduce.library.header import Grid
from cudareduce.problem.operators import Reduction

#: Bytes that a warp and a block of 256 threads of the kernels of rows have under way.
#: A row of the latter keeps a block busy where there is no end of them: 2^16 of it take 341 us by a
#: block each on an H100, 346 by a warp.
_OF_WARP, _OF_BLOCK = 2**12, 2**14
#: Elements less than a word that a lane of a butterfly takes of several rows, and bytes of others:
#: with 256 of one byte the registers of a mean do not do (1.4 kB of them are spilled on sm_90).
_BYTES_FOLDED, _OF_BUTTERFLY = 128, 256
#: Up to so many bytes a row leaves most lanes of its warp idle.
_SHORT_ROW = 2**10
#: A row of so many bytes keeps a block busy; an input of so many is worth several blocks a row,
#: where an SM has fewer than so many rows: 64 of 2^22 float32 by a block each take 522 us, on an
#: H200, which reads them in 240; but 256 of 2^15 14.9 us on an H100, 16.6 by several blocks each.
_LONG_ROW, _LARGE, _FEW_ROWS = 2**15, 2**22, 1.5
#: Rows of up to a KiB that are so few an SM go by what each waits for: a warp with two loads a
#: lane, 4.1 us for 128 rows of 8 int8 with their places where staging takes 4.8; of elements less
#: than a word, and no more rows than SMs, a block of so many bytes a thread: 4.2 for 8 rows of 128
#: int8, 5.1 by a butterfly, and 4.2 for 8 of 2^11 float16, 4.3 by a warp each. Of bytes no more
#: than lanes, one a lane: 4.0 for the product of 128 rows of 32, 4.3 where two lanes have them all
#: (H100).
_ROWS_WAITED_FOR, _WARP_LOADS, _FEW_BYTES, _LANES = 8, 2 * LOAD, 128, 32
#: Elements that a lane of a butterfly takes at least; a mean of 2^14 rows of 64 float16 takes 5.5
#: us in 128 tiles of that, 6.5 in 32 larger ones, a minimum with its place 20.4 and 26.7 (H100).
_FOLDED_LEAST = (16, 32)
#: A load for each lane of a warp: where few rows of it are all there is, a warp takes one sooner
#: than several; 16 of uint64 with their places 4.5 us instead of 5.1, on an H200.
_OF_LANES = 32 * LOAD
#: Of eight bytes and a place fewer elements a thread leave registers for more warps: 32 rows of 27
#: MB of int64 take 206 us in this shape on an H200, 249 by 256 threads of 8.
_PLACES_SPLIT = (512, 4)
#: While no SM has more than a tile of so many bytes, tiles half as large are done sooner: two rows
#: of 2^17 float32 in 5.76 us, in these 5.93, but 16 of 2^18 in 11.1 and 11.0 (H100).
_OF_TILE = 2**15
#: A block of 1024 threads asks for so much at a time: two rows of 2^17 uint8 take 10.3 us by a
#: block each on an H200, 7.0 by several.
_TURN = 2**16
#: From so many bytes a block of 1024 threads has enough of its row to do, one such block an SM. Of
#: 256 six are there, and 2048 rows are two turns and a half of them: 518 us on an H200, not 472.
_WIDE_ROW = 2**20
#: So many of them an SM are read by half as many bytes a thread: 2048 rows of 2^18 float32 in 464.0
#: us on an H200, 466.7 by twice as many, 1024 in 236.9 and 239.8; but 300 in 80.5 and 77.7.
_MANY_WIDE = 4
#: From so many bytes one of 512 is ahead, but for bytes, which are folded one by one, and places:
#: 339.4 us for 16384 rows of 2^14 float32, 343.6 by 256, and 25.0 and 25.5 for 1000 of them; 337.4
#: and 339.7 for rows half as long, of bfloat16 337.4 and 342.4 (H100).
_BROAD_ROW = 2**15


def packing(row: int) -> int:
    """How rows of so many bytes lie to loads of 16 bytes, behind an aligned start: 0, where each
    may begin between two; 1, of whole loads; 2, a power of two of them up to one for each lane."""
    packs, rest = divmod(row, LOAD)
    if rest:
        return 0
    return 2 if packs in (1, 2, 4, 8, 16, 32) else 1


def of_rows(reduction: Reduction, n: int, rows: int, facts: Facts, aligned: bool) -> Iterator[Pick]:
    """Rows of `n` elements: several a warp where they are a power of two of packs, other short ones
    through shared memory; else a warp each, or a block each where rows are long or too few for
    warps to keep the memory busy; very few long ones are shared by several blocks each, and many
    long ones chunk by chunk."""
    size, indexed = reduction.dtype.size, reduction.op.indexed
    row, (block, thread) = size * n, CHUNK
    yield from _of_few_rows(reduction, row, rows, facts)
    if aligned and packing(row) == 2:
        if row == _OF_LANES and row * rows < facts.under_way:
            yield Pick("reduce_rows_warp")
        grid: Grid | None = "cover" if row * rows >= facts.large // 2 else None
        yield Pick("reduce_rows_butterfly", None, _folded(reduction, n * rows, facts), grid)
    if row <= _SHORT_ROW:
        yield Pick("reduce_rows_staged")
    light = size == TWO_WORDS or not indexed  # what is done for each byte
    if light and facts.deals and row >= 4 * block * thread and row * rows >= facts.large:
        yield Pick("reduce_rows_split", block, thread // size, "cover")
    long = row > _TURN or (row >= _LONG_ROW and row * rows >= _LARGE)
    if rows < _FEW_ROWS * facts.limits.sm_count and long:
        small = row * rows <= facts.limits.sm_count * _OF_TILE
        if indexed and size == TWO_WORDS:
            yield Pick("reduce_rows_split", *_PLACES_SPLIT)
        yield Pick("reduce_rows_split", 256 if small else None)
    few = rows * _OF_WARP < facts.under_way
    busy = row >= (_OF_BLOCK if row * rows >= facts.large else _LONG_ROW)
    if busy or (few and row > (_SHORT_ROW if indexed else _OF_WARP)):
        alone = rows * _OF_BLOCK < facts.under_way and row > _OF_BLOCK
        broad = row >= _BROAD_ROW and size > 1 and not indexed
        wide = alone or row >= _WIDE_ROW
        halved = row >= _WIDE_ROW and rows >= _MANY_WIDE * facts.limits.sm_count
        items = LOADS // 2 // size if halved else None
        yield Pick("reduce_rows_block", 1024 if wide else 512 if broad else 256, items)
    yield Pick("reduce_rows_warp")
    yield Pick("reduce_warp_registers")


def _of_few_rows(reduction: Reduction, row: int, rows: int, facts: Facts) -> Iterator[Pick]:
    """What answers soonest where no row keeps an SM busy, and one or few are all that it has."""
    size, sms = reduction.dtype.size, facts.limits.sm_count
    if size == 1 and rows <= sms and _SHORT_ROW < row <= 256 * LOAD:
        yield Pick("reduce_rows_block", 256, LOAD)
    if size < WORD and rows <= sms and _FEW_BYTES <= row <= 256 * LOAD:
        yield Pick("reduce_rows_broadcast", 256)
    if size == 1 and rows <= _ROWS_WAITED_FOR * sms and row <= _LANES:
        yield Pick("reduce_warp_registers")
    if rows <= _ROWS_WAITED_FOR * sms and row <= _SHORT_ROW:
        yield Pick("reduce_rows_warp", 256, _WARP_LOADS // size)


def _folded(reduction: Reduction, elements: int, facts: Facts) -> int:
    """Elements a lane of a butterfly takes: fewer than its own until every SM has a tile."""
    size = reduction.dtype.size
    least = _FOLDED_LEAST[size < WORD]
    items = _BYTES_FOLDED if size < WORD else _OF_BUTTERFLY // size
    if reduction.op.indexed and 1 < size < WORD:
        return least
    while items > least and elements < facts.limits.sm_count * 256 * items:
        items //= 2
    return items
