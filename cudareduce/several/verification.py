"""What a call leaves on a rank, and whether that is right.

Is what an engine leaves right, on every rank, at every call?

Inputs change between calls that follow one another, and one rank in turn comes late: only then does
it show that somebody does not wait for another's input, or writes over it while it is read.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cudareduce.errors import KernelFault
from cudareduce.problem.operators import Reduction
from cudareduce.several.engines import Engine, Stage
from cudareduce.several.inputs import (
    Array,
    at_random,
    expected,
    read,
    share,
    stored,
    whole,
)
from cudareduce.several.kernels import FEW, PACK_BYTES, vector_of
from cudareduce.several.windows import GUARD_BYTES, Part


@dataclass(frozen=True, slots=True)
class Left:
    """The answer, and the bytes of the input and of the output with what lies round that."""

    answer: Array
    given: Array
    room: Array


def call(stage: Stage, engine: Engine, values: Array, number: int, late: int) -> Left | str:
    """What a call makes of this rank's stored values, or why it has no end; what it must not write
    is NaN, or -1."""
    dtype, n, front = stage.reduction.dtype, len(values), _front(stage)
    given = stage.windows.part(stage.windows.layout.input, values.nbytes)
    room = _room(stage, n)
    stage.backend.poison(room)
    stage.backend.write(given, values)
    try:
        engine.run(n, number, late)
    except KernelFault as fault:
        return str(fault)
    held, round_it = (
        stage.backend.download(part, "uint8", part.nbytes).copy() for part in (given, room)
    )
    answer = round_it[front : front + values.nbytes].view(dtype.storage)
    return Left(read(answer, dtype), held, round_it)


def why_wrong(stage: Stage, left: Left, values: Array, expected: Array) -> str | None:
    """Why what is left is wrong, for this rank's stored values and what the answer must be; None if
    it is right."""
    reduction, rank, ranks = stage.reduction, stage.comm.rank, stage.comm.size
    mine = share(stage.collective, reduction, rank, ranks, len(values))
    right = read(stored(expected, reduction.dtype), reduction.dtype)[mine]
    got = left.answer[mine]
    off = np.flatnonzero(~((got == right) | ((got != got) & (right != right))))
    if not len(off):
        return _spoiled(stage, left, values) or _beside(stage, left, mine, len(values))
    first = off[0]
    return (
        f"element {mine.start + first} is {got[first]}, not {right[first]}; {len(off)} of "
        f"{len(right)} are wrong"
    )


def _spoiled(stage: Stage, left: Left, values: Array) -> str | None:
    """What this rank's input holds that it was not given, if anything; whoever works in place may
    leave there what it likes."""
    if _in_place(stage):
        return None
    off = np.flatnonzero(left.given != values.view("uint8"))
    if not len(off):
        return None
    return f"it writes to its input, at element {off[0] // stage.reduction.dtype.size}"


def _beside(stage: Stage, left: Left, mine: slice, n: int) -> str | None:
    """What this rank's output holds beside its answer, but for the rest of a pack, if anything."""
    size, front = stage.reduction.dtype.size, _front(stage)
    if _in_place(stage):  # whoever works in place leaves there what it was given
        mine = slice(0, n)
    rest = left.room.copy()
    end = -(-mine.stop * size // PACK_BYTES) * PACK_BYTES
    rest[front + mine.start * size : front + end] = 0xFF
    written = np.flatnonzero(rest != 0xFF)
    if not len(written):
        return None
    first = (written[0] - front) // size
    return f"it writes where nothing of the answer lies, from element {first} on"


def _room(stage: Stage, n: int) -> Part:
    """The output of a call with some bytes in front of it and behind, which nobody may write."""
    packs, front = -(-n * stage.reduction.dtype.size // PACK_BYTES), _front(stage)
    nbytes = front + packs * PACK_BYTES + GUARD_BYTES
    return stage.windows.part(stage.windows.layout.output - front, nbytes)


def _front(stage: Stage) -> int:
    """Bytes in front of an output that nobody may write: of one in place there are none."""
    return 0 if _in_place(stage) else GUARD_BYTES


def _in_place(stage: Stage) -> bool:
    return stage.windows.layout.input == stage.windows.layout.output


#: Ranks that come late at least, of fewer some again; calls with one input; how late a rank is, in
#: s, on the host, and in a kernel's clocks, or the emulator's ns.
_MOST_LATE, REPEATS = 3, 10
LATE_S, STUMBLE = 2e-3, 2_000_000


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of an engine on arrays of up to `n` elements: why it is wrong, if it is; whether
    all ranks had the same bits; how many answers there were to one input; how many calls; the
    `version` of a library."""

    engine: str
    n: int
    wrong: str | None
    same_bits: bool | None
    distinct: int | None
    calls: int
    version: str | None = None


def pairs(ranks: int, blocks: int = 1) -> int:
    """How many pairs of calls with inputs that change: each rank is late in one, and in one each of
    so many blocks, if they are few, is the latest."""
    return max(_MOST_LATE, ranks, blocks if blocks <= FEW else 1)


def sizes(vector: int, ranks: int, most: list[int], more: Iterable[int] = ()) -> list[int]:
    """Where shares and packs end, up to the largest that is asked for, that, and `more`."""
    edges = {1, vector - 1, vector, vector + 1, vector * ranks - 1, vector * ranks,
             vector * ranks + 1, 1000, 4099, *more}  # fmt: skip
    return sorted({n for n in edges if 0 < n <= max([*most, *more])} | set(most))


def examine(
    stage: Stage, engine: Engine, asked: list[int], calls: Iterator[int],
    edges: Mapping[int, int],
) -> Finding:  # fmt: skip
    """Run an engine at all sizes that it takes, and at its `edges`, and judge all its answers. All
    ranks do so together, and find the same. Raises RankLost."""
    stage = replace(stage, windows=engine.windows)
    made, library = 0, engine.version
    for n in sizes(vector_of(stage.reduction), stage.comm.size, asked, edges):
        if engine.why_not(n):
            continue
        wrong = None
        with stage.comm.doing(f"{engine.name} of {n} elements"):
            for pair in range(pairs(stage.comm.size, edges.get(n, 1))):
                made += 2  # all calls, as others wait for this rank in each
                found = _wrong(stage, engine, n, pair, calls)
                wrong = wrong or found
            told = [text for text in stage.comm.all_gather(wrong) if text]
        if told:
            stage.backend.zero(stage.windows.status)
            return Finding(engine.name, n, told[0], None, None, made, library)
    with stage.comm.doing(f"{engine.name} of {max(asked)} elements"):
        same_bits, distinct, wrong = _repeated(stage, engine, max(asked), calls)
    stage.backend.zero(stage.windows.status)
    return Finding(engine.name, max(asked), wrong, same_bits, distinct, made + REPEATS, library)


def _wrong(stage: Stage, engine: Engine, n: int, pair: int, calls: Iterator[int]) -> str | None:
    """Why one of two calls that follow one another is wrong on this rank; None if both are right.

    One rank is late in both: if whoever went ahead in the first were late in the second, it would
    not write its input while another still reads the last one. Nor would it if it had first to make
    that input, or to judge what came of the last one.
    """
    reduction, ranks, rank = stage.reduction, stage.comm.size, stage.comm.rank
    late, numbers = pair % ranks, [next(calls), next(calls)]
    # what becomes of NaN in a minimum is each library's own, and no fault
    nan = not (engine.version and reduction.op.name in ("min", "max"))
    given = []
    for turn, number in enumerate(numbers, 2 * pair):
        whose = number // 2 % ranks if nan and turn % 2 else None  # each rank's in turn
        given.append([_given(reduction, each, turn, n, each == whose) for each in range(ranks)])
    own = [stored(inputs[rank], reduction.dtype) for inputs in given]
    left = []
    for values, number in zip(own, numbers, strict=True):
        if rank == late:
            time.sleep(LATE_S)
        left.append(call(stage, engine, values, number, late))
    wrongs = (
        one if isinstance(one, str) else why_wrong(stage, one, values, expected(reduction, inputs))
        for one, values, inputs in zip(left, own, given, strict=True)
    )
    told = ((k, why) for k, why in enumerate(wrongs, 2 * pair + 1) if why)
    return next((f"rank {rank}, n = {n}, call {k}: {why}" for k, why in told), None)


def _given(reduction: Reduction, rank: int, turn: int, n: int, nan: bool) -> Array:
    """The elements of a rank at a call; of floats one is NaN, if so asked."""
    values = whole(reduction, rank, turn, n)
    if not nan or reduction.dtype.kind != "float":
        return values
    values = values.astype(np.float64)
    values[n // 2] = np.nan
    return values


def _repeated(
    stage: Stage, engine: Engine, n: int, calls: Iterator[int]
) -> tuple[bool, int, str | None]:
    """Whether all ranks had the same bits, how many answers there were to one input, and why they
    are wrong if they are."""
    reduction, rank, ranks = stage.reduction, stage.comm.rank, stage.comm.size
    float_type, product = reduction.dtype.kind == "float", reduction.op.name == "prod"
    inputs = [at_random(r, n, factors=product) if float_type else whole(reduction, r, 0, n)
              for r in range(ranks)]  # fmt: skip
    own = [stored(values, reduction.dtype) for values in inputs]
    held = [read(values, reduction.dtype).astype(np.float64) for values in own]
    mine = share(stage.collective, reduction, rank, ranks, n)
    # at most `ranks` roundings of each element, the last one to the type that travels
    size = np.prod(np.abs(held), axis=0) if product else np.sum(np.abs(held), axis=0)
    bound = ranks * reduction.dtype.epsilon * size[mine]
    exact = read(stored(expected(reduction, inputs), reduction.dtype), reduction.dtype)[mine]
    hashes, far = [], None
    for _ in range(REPEATS):
        left = call(stage, engine, own[rank], next(calls), 0)
        if isinstance(left, str):
            far = f"rank {rank}, n = {n}: {left}"
            continue
        answer = left.answer[mine]
        hashes.append(hashlib.sha256(np.ascontiguousarray(answer).tobytes()).hexdigest())
        if not float_type and not np.array_equal(answer, exact):
            far = (
                f"rank {rank}, n = {n}: another answer at a call with the input of the call before"
            )
        if float_type and not (np.abs(answer - expected(reduction, held)[mine]) <= bound).all():
            far = f"rank {rank}, n = {n}: further off than any order of additions explains"
    every = stage.comm.all_gather([hashes, far])
    lists = [some for some, _ in every]
    same = stage.collective != "all-reduce" or all(some == lists[0] for some in lists)
    distinct = max(len(set(some)) for some in lists)
    wrong = next((why for _, why in every if why), None if same else "ranks have other bits")
    return same, distinct, wrong
