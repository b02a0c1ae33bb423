"""What `auto` takes on a GPU that nobody has tuned it for: launch shapes by rules, from the number
of SMs, the size of the L2 and the bandwidth.

The rules are fitted to times of an NVIDIA H200 and an H100, and stated in what cards differ in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from cudareduce.auto.facts import CHUNK, LOAD, LOADS, TWO_WORDS, WORD, Facts, Pick, evenly
from cudareduce.auto.rows import of_rows
from cudareduce.problem.operators import Reduction

#: The shapes of kernels of tiles, threads a block and bytes a thread, from small tiles to large.
_SHAPES = ((256, LOAD), (256, LOADS), (512, LOADS))
#: Elements less than a word are folded one by one, so fewer a thread: a product of 2^20 int8 takes
#: 5.8 us on an H100 by 512 threads of 16, 7.0 by 256 of 64; one of 2^18 bfloat16 5.2 by 16, 5.4 by
#: twice the blocks of 8. Of extremes two a comparison are ahead of mail from the second shape on:
#: 7.0 and 7.2 us at 2^20 int8, 14.7 and 21.4 at 2^25, where a ring takes 17.9 (H200).
_OF_BYTES = ((256, LOAD), (512, LOAD), (512, 2 * LOAD), (512, LOADS))
_OF_HALVES = ((256, 2 * LOAD), (256, LOADS), (512, LOADS))
#: Those of one block alone, which loads no packs where elements are not less than a word: on an
#: H100 4.01 us at 2^10 float32 in the first, 4.06 in the second.
_ALONE = ((128, 32), (256, LOADS), (512, LOADS), (1024, LOADS))
#: And of elements less than a word with their places: 4.5 us at 2^12 bfloat16 on an H100 with all
#: threads at work, 8.2 where a thread takes twice as many, 4.9 by several blocks.
_ALONE_OF_PLACES = ((128, 32), (256, 32))
#: From so many times the L2 on a ring is ahead of folding them by 16 on an H100: 49.7 us for a
#: product of 2^27 uint8, which takes 50.3; 28.7 and 28.0 at 2^26. An H200's memory is quicker: 12.1
#: and 12.7 at 2^24.
_RING_OF_BYTES = 2
#: Up to so many tiles an SM mail is ahead of a sum that clears itself: 8.7 and 9.1 us at 2^21
#: float32 on an H200, 8.6 and 8.7 at 2^22 bfloat16. From there to as many as have room at once
#: nothing is read any more when all post and block 0 polls: 12.6 us at 2^22 float32, 10.8 in tiles
#: half as large, 10.7 where a sum clears itself; 11.5, 10.6 and 10.5 on an H100. 2^23 bfloat16 take
#: 12.6, 11.1 and 10.7, a maximum of them 11.6 and 10.9; with more tiles, 17 x 2^18 float32, it is
#: 11.1 in all. Means of halves, and sums of them in a fixed order, have halved ones while the L2
#: holds them: 15.4 and 14.6 at 2^24.
_TURNS_OF_MAIL = 2
#: While no SM has more chunks than these they are ahead of tiles for whole numbers of eight bytes
#: that do not meet in one word: a maximum of 2^20 int64 takes 8.15 us, by a count 8.28, by mail
#: 8.43; of float64 8.44, 8.38, 8.40 (H100).
_CHUNKS_EACH = 2
#: SMs come in pairs that share a way to memory, so equal shares go slower once some have a partner
#: at work: tiles of so many threads and bytes a thread have 94.6 % on 64 of an H200's SMs, 89.4 on
#: 80. From this share of the pairs on they are ahead of a ring: 93.8 and 88.7 % on 56.
_ONE_EACH, _OF_PAIRS = (1024, 128), 0.84


def picks(
    reduction: Reduction, n: int, rows: int, facts: Facts, *, aligned: bool = True
) -> Iterator[Pick]:
    """What to take for `rows` rows of `n` elements from an `aligned` start or another, best first;
    some of it may not take them."""
    if rows != 1:
        yield from of_rows(reduction, n, rows, facts, aligned)
    elif not reduction.op.commutative:
        yield Pick("reduce_tiles_ordered")
    else:
        yield from _of_array(reduction, n, facts)


def _of_array(reduction: Reduction, n: int, facts: Facts) -> Iterator[Pick]:
    """One block as long as it asks for all of the input at once: nobody waits for another. On some
    of the SMs then what is for those, once the input fills their rings. Else, as long as no SM has
    more than a tile, what hands partials over fastest among few blocks, in the smallest tiles that
    do. Bytes are added four at a time."""
    size = reduction.dtype.size
    nbytes = n * size
    for block, thread in _alone(reduction):
        if nbytes <= block * thread:
            if size >= WORD or reduction.op.indexed:
                yield Pick("reduce_tiles_scalar", block, thread // size)
            yield Pick("reduce_tiles_block", block)
            break
    if _by_rings(reduction, facts) and not reduction.op.indexed and nbytes >= facts.rings > 0:
        yield from _on_some(size, facts)
    if reduction.op.indexed and size == TWO_WORDS:
        yield _of_pairs(nbytes, facts)
    for block, thread in _shapes(reduction):
        if nbytes <= facts.limits.sm_count * block * thread:
            if size == 1:
                yield Pick("reduce_dp4a_one_word", block, thread)
                if (block, thread) != _OF_BYTES[0]:
                    yield Pick("reduce_tiles_byte_pairs", block, thread)
            if reduction.op.indexed:
                yield Pick("reduce_arg_one_word", block, thread // size)
            yield Pick("reduce_tiles_one_word", block, thread // size)
            yield Pick("reduce_tiles_mailbox", block, thread // size)
            break
    yield from _of_many(reduction, nbytes, facts)


def _of_many(reduction: Reduction, nbytes: int, facts: Facts) -> Iterator[Pick]:
    """Of more than a tile for each SM what disturbs many blocks least, and of a very large input
    chunks as they lie, or on as many SMs as are told bulk copies. Eight loads of bfloat16 under way
    take 94 registers a thread, so an SM would hold one block of chunks."""
    size = reduction.dtype.size
    if reduction.op.indexed:
        yield Pick("reduce_arg_one_word")
        yield Pick("reduce_tiles_arg")
    if size == 1:
        yield Pick("reduce_dp4a_one_word")
        yield Pick("reduce_tiles_dp4a")
        yield Pick("reduce_tiles_byte_pairs")
        if facts.has_rings and (not facts.leisurely or nbytes >= _RING_OF_BYTES * facts.l2):
            yield Pick("reduce_tiles_ring", 512, LOADS)
        yield Pick("reduce_tiles_mailbox", 512, LOAD)
    if size >= WORD and nbytes >= facts.large and (facts.deals or _by_rings(reduction, facts)):
        chunks = Pick("reduce_chunks", CHUNK[0], facts.chunk // size)
        yield chunks if facts.sms is None else Pick("reduce_tiles_ring")
    yield Pick("reduce_tiles_one_word")
    tiles = nbytes / (512 * LOADS) / facts.limits.sm_count
    if size <= WORD and tiles <= _TURNS_OF_MAIL:
        yield Pick("reduce_tiles_mailbox", 512, LOADS // size)
    yield Pick("reduce_tiles_self_reset")
    if reduction.op.name in ("sum", "mean") and 1 < size < WORD and nbytes < facts.l2:
        yield Pick("reduce_tiles_mailbox", 512, LOADS // 2 // size)
    whole = size == TWO_WORDS and reduction.dtype.kind != "float"
    if whole and facts.deals and nbytes <= _CHUNKS_EACH * prod(CHUNK) * facts.limits.sm_count:
        yield Pick("reduce_chunks")
    if nbytes < _mailed(reduction, facts):
        halved = size <= WORD and tiles <= facts.limits.threads_per_sm // 512
        yield Pick("reduce_tiles_mailbox", 512, (LOADS // 2 if halved else LOADS) // size)
    yield Pick("reduce_tiles_acq_rel")


def _by_rings(reduction: Reduction, facts: Facts) -> bool:
    """Whether elements are folded as fast as a ring brings them: a mean of int32 is by doubles, and
    512 threads an SM take 320 us for 2^28 of them on an H200, tiles 243."""
    return facts.has_rings and reduction.dtype.size == reduction.acc.size == WORD


def _mailed(reduction: Reduction, facts: Facts) -> int:
    """Below how many bytes mail is ahead of a count once SMs have several tiles each: 15.7 us at
    2^24 float16, a count 16.4. Two words of mail are polled for twice: 48.7 at 2^24 of a maximum of
    int64, a count 48.1, unless elements take as long to convert: 16.9 and 17.4 for a mean of 2^22
    (H100)."""
    if reduction.acc.size <= WORD or reduction.dtype.size < WORD:
        return facts.large
    return facts.l2 if reduction.acc != reduction.dtype else 0


def _of_pairs(nbytes: int, facts: Facts) -> Pick:
    """What hands over values of eight bytes with their places, which are long to poll for."""
    if nbytes <= facts.limits.sm_count * 256 * LOADS:
        return Pick("reduce_tiles_acq_rel", 256, LOADS // TWO_WORDS)
    return Pick("reduce_tiles_arg", 256, 2 * LOADS // TWO_WORDS)


def _shapes(reduction: Reduction) -> Sequence[tuple[int, int]]:
    """The shapes of kernels of tiles for a type and an operator."""
    if reduction.op.indexed or reduction.dtype.size >= WORD:
        return _SHAPES
    return _OF_BYTES if reduction.dtype.size == 1 else _OF_HALVES


def _alone(reduction: Reduction) -> Sequence[tuple[int, int]]:
    """The shapes in which one block is done before others have handed over: it folds bytes one by
    one, and places in many steps."""
    size = reduction.dtype.size
    if reduction.op.indexed and size < WORD:
        return _ALONE_OF_PLACES[: 1 if size == 1 else None]
    if reduction.op.indexed:
        return _ALONE[: 2 if size < TWO_WORDS else None]
    return _ALONE[: -1 if size == 1 else None]


def _on_some(size: int, facts: Facts) -> Iterator[Pick]:
    """What has most bytes under way on each SM, on no more of them than help: dealt out by ticket
    where they keep the memory busy; else rings, or tiles on an SM of each pair."""
    block, thread = _ONE_EACH
    if facts.busy and facts.leisurely:
        yield Pick("reduce_ring_tickets", blocks=facts.enough)
    elif (facts.sms or 0) >= _OF_PAIRS * facts.pairs:
        blocks = evenly(min(facts.sms or 0, facts.pairs))
        yield Pick("reduce_tiles_acq_rel", block, thread // size, blocks=blocks)
    yield Pick("reduce_tiles_ring", blocks=facts.enough)
