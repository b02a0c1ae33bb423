"""The default launch of `auto` on a GPU without a table: one rule, from three numbers of the GPU.

The numbers are the SM count, the threads per SM and the size of the L2. Faster launches on a GPU
that was measured are in the table of that GPU (`tables/`, written by `tune`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cudareduce.catalog.front_matter import Grid
from cudareduce.catalog.kernel import Kernel
from cudareduce.machine import DeviceInfo, DeviceLimits
from cudareduce.reduction.operators import Reduction

#: Bytes of one load of a thread, and of the loads that a tile kernel has in flight per thread.
LOAD, IN_FLIGHT = 16, 64
#: Compute capabilities with room for a ring of bulk copies (TMA) in shared memory, and its size.
_RING_CC, _RING_BYTES = ("9.", "10."), 192 * 2**10
#: Bytes of the L2 where the driver does not report them.
_L2_BYTES = 50 * 2**20


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about a GPU on which the rule depends: limits, description, missing hardware
    features, and the number of SMs to use (None for all)."""

    limits: DeviceLimits
    info: DeviceInfo
    lacks: tuple[str, ...] = ()
    sms: int | None = None

    def run(self, kernel: Kernel) -> bool:
        """True if the GPU can run a kernel, and the kernel leaves its result on the GPU."""
        enough = self.info.cc is None or float(self.info.cc) >= float(kernel.min_cc)
        return enough and not set(kernel.requires) & set(self.lacks) and kernel.finish != "host"

    @property
    def ring_bytes(self) -> int:
        """Bytes of all rings of the SMs in use; 0 if all SMs are used or the GPU has no TMA."""
        if self.sms is None or self.sms >= self.limits.sm_count:
            return 0
        return _RING_BYTES * self.sms if (self.info.cc or "").startswith(_RING_CC) else 0

    @property
    def large(self) -> int:
        """Bytes of an input that is much larger than the L2."""
        return 16 * (self.info.l2_bytes or _L2_BYTES)

    @property
    def full(self) -> int:
        """Bytes in flight that keep the memory busy: about half a load per resident thread."""
        return self.limits.sm_count * self.limits.threads_per_sm * LOAD // 2


@dataclass(frozen=True, slots=True)
class Pick:
    """A kernel and its launch shape: threads per block, items per thread, grid rule, and the most
    blocks. None is the kernel's own default."""

    kernel: str
    block: int | None = None
    items: int | None = None
    grid: Grid | None = None
    blocks: int | None = None


def picks(
    reduction: Reduction, n: int, rows: int, facts: Facts, *, aligned: bool = True
) -> Iterator[Pick]:
    """Launches for `rows` rows of `n` elements, fastest first; the caller skips unsupported ones.
    `aligned`: the input starts at a multiple of 16 bytes."""
    if rows != 1:
        yield from _rows(reduction, n, rows, facts, aligned)
    elif not reduction.op.commutative:
        yield Pick("reduce_tiles_ordered")
    else:
        yield from _array(reduction, n, facts)


def _array(reduction: Reduction, n: int, facts: Facts) -> Iterator[Pick]:
    """Launches for one array. A small input gets one block that loads all of it at once. An input
    of up to one tile per SM gets small tiles, and the kernels that combine few partial results with
    the lowest latency. A larger input gets those that do it with the least contention."""
    size, indexed, sms = reduction.dtype.size, reduction.op.indexed, facts.limits.sm_count
    nbytes = n * size
    # Elements below 4 bytes are added one at a time, so a block takes fewer of them.
    alone = ((128, 32), (256, 64), (512, 64), (1024, 64))[: 3 if size == 1 else 4]
    if indexed and size < 8:  # and an index for each takes as long
        alone = {1: ((128, 32),), 2: ((128, 32), (256, 32)), 4: ((128, 32), (256, 64))}[size]
    for block, thread in alone:
        if nbytes <= block * thread:
            if size >= 4 or indexed:
                yield Pick("reduce_tiles_scalar", block, thread // size)
            yield Pick("reduce_tiles_block", block)
            break
    if fills_rings(reduction, n, facts):
        yield Pick("reduce_tiles_ring")
    if indexed and size == 8:
        if nbytes <= sms * 256 * 64:
            yield Pick("reduce_tiles_acq_rel", 256, 8)
        yield Pick("reduce_tiles_arg", 256, 16)
    tiles = ((256, LOAD), (256, IN_FLIGHT), (512, IN_FLIGHT))
    if size < 4 and not indexed:
        first = ((256, LOAD), (512, LOAD), (512, 2 * LOAD)) if size == 1 else ((256, 2 * LOAD),)
        tiles = (*first, *tiles[-1 if size == 1 else 1 :])
    for block, thread in tiles:
        if nbytes <= sms * block * thread:
            if size == 1:
                yield Pick("reduce_dp4a_one_word", block, thread)
                if block == 512:
                    yield Pick("reduce_tiles_byte_pairs", block, thread)
            if indexed:
                yield Pick("reduce_arg_one_word", block, thread // size)
            yield Pick("reduce_tiles_one_word", block, thread // size)
            yield Pick("reduce_tiles_mailbox", block, thread // size)
            break
    if indexed:
        yield Pick("reduce_arg_one_word")
        yield Pick("reduce_tiles_arg")
    if size == 1:
        yield Pick("reduce_dp4a_one_word")
        yield Pick("reduce_tiles_dp4a")
        yield Pick("reduce_tiles_byte_pairs")
    yield Pick("reduce_tiles_one_word")
    if size <= 4 and nbytes <= 2 * sms * 512 * IN_FLIGHT:
        yield Pick("reduce_tiles_mailbox", 512, IN_FLIGHT // size)
    yield Pick("reduce_tiles_self_reset")
    if nbytes < facts.large and (reduction.acc.size <= 4 or size < 4):
        yield Pick("reduce_tiles_mailbox", 512, IN_FLIGHT // size)
    yield Pick("reduce_tiles_acq_rel")


def fills_rings(reduction: Reduction, n: int, facts: Facts) -> bool:
    """True if an array on some of the SMs is large enough to fill their rings, and its elements are
    added as fast as the rings fill."""
    size = reduction.dtype.size
    return (
        0 < facts.ring_bytes <= n * size
        and size == reduction.acc.size == 4
        and not reduction.op.indexed
    )


def packing(row: int) -> int:
    """The alignment of contiguous rows of `row` bytes to 16-byte loads, if the first is aligned.

    0: some rows are misaligned; 1: a row is a whole number of loads; 2: that number is a power of
    two, at most 32 (one load per lane of a warp)."""
    loads, rest = divmod(row, LOAD)
    if rest:
        return 0
    return 2 if loads in (1, 2, 4, 8, 16, 32) else 1


def _rows(reduction: Reduction, n: int, rows: int, facts: Facts, aligned: bool) -> Iterator[Pick]:
    """Launches for several rows. Several short rows share a warp. Longer rows get one warp each, or
    one block each if one warp per row would not fill the GPU. A few very long rows get several
    blocks each."""
    size, indexed, sms = reduction.dtype.size, reduction.op.indexed, facts.limits.sm_count
    row, total = size * n, size * n * rows
    if size < 4 and rows <= sms and 128 <= row <= 2**12:
        if size == 1 and row > 2**10:
            yield Pick("reduce_rows_block", 256, LOAD)
        yield Pick("reduce_rows_broadcast", 256)
    if row <= 2**10 and rows <= 8 * sms:  # bound by the latency of loads
        if size == 1 and row <= 32:
            yield Pick("reduce_warp_registers")
        yield Pick("reduce_rows_warp", 256, 2 * LOAD // size)
    if aligned and packing(row) == 2:
        least, items = (32, 128) if size < 4 else (16, 256 // size)
        while items > least and (n * rows < sms * 256 * items or (indexed and size == 2)):
            items //= 2
        grid: Grid | None = "cover" if total >= facts.large // 2 else None
        yield Pick("reduce_rows_butterfly", None, items, grid)
    if row <= 2**10:
        yield Pick("reduce_rows_staged")
    if rows < 1.5 * sms and (row > 2**16 or (row >= 2**15 and total >= 2**22)):
        if indexed and size == 8:  # smaller tiles leave registers for more warps
            yield Pick("reduce_rows_split", 512, 4)
        yield Pick("reduce_rows_split", 256 if total <= sms * 2**15 else None)
    few = rows * 2**12 < facts.full and row > (2**10 if indexed else 2**12)
    if few or row >= (2**14 if total >= facts.large else 2**15):
        wide = row >= 2**20 or (row > 2**14 and rows * 2**14 < facts.full)
        block = 1024 if wide else 512 if row >= 2**15 and size > 1 and not indexed else 256
        halved = row >= 2**20 and rows >= 4 * sms
        yield Pick("reduce_rows_block", block, 32 // size if halved else None)
    yield Pick("reduce_rows_warp")
    yield Pick("reduce_warp_registers")
