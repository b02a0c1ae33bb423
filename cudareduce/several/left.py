"""What a call leaves on a rank, and whether that is right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cudareduce.errors import KernelFault
from cudareduce.several.elements import Array, read, share, stored
from cudareduce.several.engines import Engine, Stage
from cudareduce.several.exchange import PACK_BYTES
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
