"""What `auto` takes on a GPU that nobody has tuned it for: launch shapes by rules, from the number
of SMs, the size of the L2 and the bandwidth.

The rules are fitted to times of an NVIDIA H200 and an H100, and stated in what cards differ in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cudareduce.device import DeviceInfo, DeviceLimits
from cudareduce.library.header import Grid
from cudareduce.library.kernel import Kernel
from cudareduce.problem.operators import Reduction

#: One load of a thread, and those that kernels of tiles have under way at a time, in bytes.
_LOAD, _LOADS = 16, 64
#: The shapes of kernels of tiles, threads a block and bytes a thread, from small tiles to large.
_SHAPES = ((256, _LOAD), (256, _LOADS), (512, _LOADS))
#: Those of one block alone, which loads no packs where elements are not less than a word: on an
#: H100 4.01 us at 2^10 float32 in the first, 4.06 in the second.
_ALONE, _WORD = ((128, 32), (256, _LOADS), (512, _LOADS), (1024, _LOADS)), 4
#: Elements of so many bytes have no place beside them in a word that one atomic takes.
_TWO_WORDS = 8
#: From so many times the L2 on bulk copies are ahead: on an H200 by 0.4 % at 17 times, 1 % at 68.
_MANY_L2 = 16
#: Compute capabilities whose SMs have room for a ring of so many bytes; those of 12 have 99 KiB. Of
#: eight bytes an element one block an SM adds too slowly: 616 us at 2^28 float64, tiles 475.
_RING, _RING_BYTES = ("9.", "10."), 192 * 2**10
#: Where the driver does not tell them, those of an H200: bytes, and GB/s.
_L2_BYTES, _PEAK_GB_S = 60 * 2**20, 4814.3
#: What one SM takes through a ring, in GB/s: 16 of an H100's took 1920, 24 of an H200's 3000.
_OF_SM_GB_S = 120.0
#: What each still adds where many do, in GB/s: more than bandwidth over this many only disturb one
#: another. 32 of an H100's SMs read at 97.9 % by tickets, 64 at 96; an H200's 48 at 90, 56 at 89.
_ADDED_GB_S = 100.0
#: The parts of a GPU (GPCs) that SMs belong to: where blocks are no multiple of them some have one
#: more. 56, 60, 64 and 66 blocks of tiles read at 94.1, 91.7, 95.4 and 93.2 % on an H200, 32, 33
#: and 36 rings at 93.7, 91.2 and 92.5 % on an H100.
_PARTS = 8
#: SMs come in pairs that share a way to memory, so equal shares go slower once some have a partner
#: at work: tiles of so many threads and bytes a thread have 94.6 % on 64 of an H200's SMs, 89.4 on
#: 80. From this share of the pairs on they are ahead of a ring: 93.8 and 88.7 % on 56.
_ONE_EACH, _OF_PAIRS = (1024, 128), 0.84
#: Up to how much bandwidth an SM has time for work that is dealt out, in GB/s. At 2^28 chunks
#: win 1 % on an H100, of 25 an SM, and lose 8 on an H200, of 36; tickets on 48 SMs win 10, lose 18.
_LEISURE_GB_S = 30.0
#: Such chunks of rows: threads a block, and bytes a thread.
_CHUNK = (512, 128)
#: How long a load from memory takes, in us: bandwidth times this must be under way at any time.
_LATENCY_US = 0.8
#: Bytes that a warp and a block of 256 threads of the kernels of rows have under way.
_OF_WARP, _OF_BLOCK = 2**12, 2**14
#: Elements of one byte that a lane takes of several rows at once: with 256 the registers of a mean
#: do not do (1.4 kB of them are spilled on sm_90), and of a sum they take 239.
_BYTES_FOLDED = 128
#: Up to so many bytes a row leaves most lanes of its warp idle.
_SHORT_ROW = 2**10
#: A row of so many bytes keeps a block busy; an input of so many is worth several blocks a row,
#: where an SM has fewer than so many rows: 64 of 2^22 float32 by a block each take 522 us, on an
#: H200, which reads them in 240.
_LONG_ROW, _LARGE, _FEW_ROWS = 2**15, 2**22, 4
#: A load for each lane of a warp: where few rows of it are all there is, a warp takes one sooner
#: than several; 16 of uint64 with their places 4.5 us instead of 5.1, on an H200.
_OF_LANES = 32 * _LOAD
#: Of eight bytes and a place fewer elements a thread leave registers for more warps: 32 rows of 27
#: MB of int64 take 206 us in this shape on an H200, 249 by 256 threads of 8.
_PLACES_SPLIT = (512, 4)
#: A block of 1024 threads asks for so much at a time: two rows of 2^17 uint8 take 10.3 us by a
#: block each on an H200, 7.0 by several.
_TURN = 2**16
#: From so many bytes a block of 1024 threads has enough of its row to do, one such block an SM. Of
#: 256 six are there, and 2048 rows are two turns and a half of them: 518 us on an H200, not 472.
_WIDE_ROW = 2**20


@dataclass(frozen=True, slots=True)
class Facts:
    """What a choice depends on: the device's limits, what is known of it, hardware that is missing,
    and how many SMs may work, None for all."""

    limits: DeviceLimits
    info: DeviceInfo
    lacks: tuple[str, ...] = ()
    sms: int | None = None

    def run(self, kernel: Kernel) -> bool:
        """Whether the device has what a kernel needs, and the kernel leaves answers there."""
        enough = self.info.cc is None or float(self.info.cc) >= float(kernel.min_cc)
        return enough and not set(kernel.requires) & set(self.lacks) and kernel.finish != "host"

    @property
    def rings(self) -> int:
        """Bytes of the rings of some of the SMs, 0 where all may work."""
        few = self.sms is not None and self.sms < self.limits.sm_count
        return _RING_BYTES * (self.sms or 0) * few

    @property
    def gb_s(self) -> float:
        """The bandwidth of the memory in theory."""
        return self.info.peak_gb_s or _PEAK_GB_S

    @property
    def busy(self) -> bool:
        """Whether the SMs that may work could take more than the memory gives. Then it serves some
        of them quicker than others; until then a ticket is but one more thing to wait for."""
        sms = self.limits.sm_count if self.sms is None else self.sms
        return sms * _OF_SM_GB_S >= self.gb_s

    @property
    def leisurely(self) -> bool:
        """Whether an SM's share of the bandwidth leaves time to be dealt its work."""
        return self.gb_s <= _LEISURE_GB_S * self.limits.sm_count

    @property
    def enough(self) -> int:
        """How many SMs with a ring read as fast as more."""
        return _evenly(self.gb_s / _ADDED_GB_S)

    @property
    def pairs(self) -> int:
        """Pairs of SMs that share a way to memory."""
        return self.limits.sm_count // 2

    @property
    def deals(self) -> bool:
        """Whether chunks may be dealt out to SMs, of which none is left out."""
        return self.leisurely and self.sms is None

    @property
    def large(self) -> int:
        """Bytes of an input beside which the L2 is small."""
        return (self.info.l2_bytes or _L2_BYTES) * _MANY_L2

    @property
    def under_way(self) -> float:
        """Bytes that must be under way to keep the memory busy."""
        return self.gb_s * 1e3 * _LATENCY_US


@dataclass(frozen=True, slots=True)
class Pick:
    """A kernel by its name, and a launch shape: threads a block, elements a thread and the rule for
    the grid; None is the kernel's own. No more than `blocks`, if they are told."""

    kernel: str
    block: int | None = None
    items: int | None = None
    grid: Grid | None = None
    blocks: int | None = None


def _evenly(blocks: float) -> int:
    """So many blocks that no part of the GPU has more than another."""
    return int(blocks) // _PARTS * _PARTS or max(1, int(blocks))


def packing(row: int) -> int:
    """How rows of so many bytes lie to loads of 16 bytes, behind an aligned start: 0, where each
    may begin between two; 1, of whole loads; 2, a power of two of them up to one for each lane."""
    packs, rest = divmod(row, _LOAD)
    if rest:
        return 0
    return 2 if packs in (1, 2, 4, 8, 16, 32) else 1


def picks(
    reduction: Reduction, n: int, rows: int, facts: Facts, *, aligned: bool = True
) -> Iterator[Pick]:
    """What to take for `rows` rows of `n` elements from an `aligned` start or another, best first;
    some of it may not take them."""
    if rows != 1:
        yield from _of_rows(reduction, n, rows, facts, aligned)
    elif not reduction.op.commutative:
        yield Pick("reduce_tiles_ordered")
    else:
        yield from _of_array(reduction, n, facts)


def _of_array(reduction: Reduction, n: int, facts: Facts) -> Iterator[Pick]:
    """One block as long as it asks for all of the input at once: nobody waits for another. On some
    of the SMs then what is for those, once the input fills their rings. Else, as long as no SM has
    more than a tile, what hands partials over fastest among few blocks, in the smallest tiles that
    do; then what disturbs many blocks least, and of a very large input chunks as they lie, or bulk
    copies. Bytes are added four at a time."""
    size = reduction.dtype.size
    ring = size == 4 and (facts.info.cc or "").startswith(_RING)
    nbytes = n * size
    for block, thread in _alone(reduction):
        if nbytes <= block * thread:
            if size >= _WORD or reduction.op.indexed:
                yield Pick("reduce_tiles_scalar", block, thread // size)
            yield Pick("reduce_tiles_block", block)
            break
    if ring and not reduction.op.indexed and nbytes >= facts.rings > 0:
        yield from _on_some(size, facts)
    for block, thread in _SHAPES:
        if nbytes <= facts.limits.sm_count * block * thread:
            if size == 1:
                yield Pick("reduce_dp4a_one_word", block, thread)
            if reduction.op.indexed:
                yield Pick("reduce_arg_one_word", block, thread // size)
            yield Pick("reduce_tiles_one_word", block, thread // size)
            yield Pick("reduce_tiles_mailbox", block, thread // size)
            break
    if reduction.op.indexed:
        yield Pick("reduce_arg_one_word")
        yield Pick("reduce_tiles_arg")
    if size == 1:
        yield Pick("reduce_dp4a_one_word")
        yield Pick("reduce_tiles_dp4a")
    if nbytes >= facts.large and facts.deals:
        yield Pick("reduce_chunks")
    if nbytes >= facts.large and ring:
        yield Pick("reduce_tiles_ring")
    yield Pick("reduce_tiles_one_word")
    yield Pick("reduce_tiles_self_reset")
    yield Pick("reduce_tiles_acq_rel")


def _alone(reduction: Reduction) -> Sequence[tuple[int, int]]:
    """The shapes in which one block is done before others have handed over: it folds bytes one by
    one, and places in many steps."""
    size = reduction.dtype.size
    if reduction.op.indexed:
        return _ALONE[: 1 if size == 1 else 2 if size < _TWO_WORDS else None]
    return _ALONE[: -1 if size == 1 else None]


def _on_some(size: int, facts: Facts) -> Iterator[Pick]:
    """What has most bytes under way on each SM, on no more of them than help: dealt out by ticket
    where they keep the memory busy; else rings, or tiles on an SM of each pair."""
    block, thread = _ONE_EACH
    if facts.busy and facts.leisurely:
        yield Pick("reduce_ring_tickets", blocks=facts.enough)
    elif (facts.sms or 0) >= _OF_PAIRS * facts.pairs:
        blocks = _evenly(min(facts.sms or 0, facts.pairs))
        yield Pick("reduce_tiles_acq_rel", block, thread // size, blocks=blocks)
    yield Pick("reduce_tiles_ring", blocks=facts.enough)


def _of_rows(
    reduction: Reduction, n: int, rows: int, facts: Facts, aligned: bool
) -> Iterator[Pick]:
    """Rows of `n` elements: several a warp where they are a power of two of packs, other short ones
    through shared memory; else a warp each, or a block each where rows are long or too few for
    warps to keep the memory busy; very few long ones are shared by several blocks each, and many
    long ones chunk by chunk."""
    size, indexed = reduction.dtype.size, reduction.op.indexed
    row, (block, thread) = size * n, _CHUNK
    if aligned and packing(row) == 2:
        if row == _OF_LANES and row * rows < facts.under_way:
            yield Pick("reduce_rows_warp")
        yield Pick("reduce_rows_butterfly", items=_BYTES_FOLDED if size == 1 else None)
    if row <= _SHORT_ROW:
        yield Pick("reduce_rows_staged")
    long = row > _TURN or (row >= _LONG_ROW and row * rows >= _LARGE)
    if rows < _FEW_ROWS * facts.limits.sm_count and long:
        yield Pick("reduce_rows_split", *(_PLACES_SPLIT if indexed and size == _TWO_WORDS else ()))
    if facts.deals and row >= 4 * block * thread and row * rows >= facts.large:
        yield Pick("reduce_rows_split", block, thread // size, "cover")
    few = rows * _OF_WARP < facts.under_way
    if row >= _LONG_ROW or (few and row > (_SHORT_ROW if indexed else _OF_WARP)):
        alone = rows * _OF_BLOCK < facts.under_way and row > _OF_BLOCK
        yield Pick("reduce_rows_block", 1024 if alone or row >= _WIDE_ROW else 256)
    yield Pick("reduce_rows_warp")
    yield Pick("reduce_warp_registers")
