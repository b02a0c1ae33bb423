"""Is what an engine leaves right, on every rank, at every call?

Inputs change between calls that follow one another, and one rank in turn comes late: only then does
it show that somebody does not wait for another's input, or writes over it while it is read.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from cudareduce.errors import KernelFault
from cudareduce.problem.operators import Reduction
from cudareduce.several.elements import (
    Array,
    at_random,
    expected,
    read,
    share,
    stored,
    whole,
)  # fmt: skip
from cudareduce.several.engines import Engine, Stage
from cudareduce.several.exchange import PACK_BYTES, vector_of
from cudareduce.several.windows import GUARD_BYTES, Part

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


def turns(ranks: int) -> int:
    """How many calls with inputs that change: each rank is late in two."""
    return 2 * max(_MOST_LATE, ranks)


def late_in(turn: int, ranks: int) -> int:
    """The rank that is late in a call: the same in two that follow one another. If whoever went
    ahead in the first were late in the second, it would not write its input while another still
    reads the last one."""
    return turn // 2 % ranks


def sizes(vector: int, ranks: int, most: list[int], edge: int = 0) -> list[int]:
    """Where shares and packs end, up to the largest that is asked for or the `edge`, and those."""
    edges = {1, vector - 1, vector, vector + 1, vector * ranks - 1, vector * ranks,
             vector * ranks + 1, 1000, 4099, edge}  # fmt: skip
    return sorted({n for n in edges if 0 < n <= max(*most, edge)} | set(most))


def examine(
    stage: Stage, engine: Engine, asked: list[int], calls: Iterator[int], edge: int = 0
) -> Finding:
    """Run an engine at all sizes that it takes, its `edge` among them, and judge all its answers.
    All ranks do so together, and find the same. Raises RankLost."""
    stage = replace(stage, windows=engine.windows)
    made, library = 0, engine.version
    for n in sizes(vector_of(stage.reduction), stage.meeting.size, asked, edge):
        if engine.why_not(n):
            continue
        wrong = None
        for turn in range(turns(stage.meeting.size)):
            made += 1  # all calls, as others wait for this rank in each
            found = _wrong(stage, engine, n, turn, next(calls))
            wrong = wrong or found
        told = [text for text in stage.meeting.everybody(wrong) if text]
        if told:
            stage.backend.zero(stage.windows.status)
            return Finding(engine.name, n, told[0], None, None, made, library)
    same_bits, distinct, wrong = _repeated(stage, engine, max(asked), calls)
    stage.backend.zero(stage.windows.status)
    return Finding(engine.name, max(asked), wrong, same_bits, distinct, made + REPEATS, library)


def _wrong(stage: Stage, engine: Engine, n: int, turn: int, number: int) -> str | None:
    """Why one call is wrong on this rank; None if it is right."""
    reduction, ranks = stage.reduction, stage.meeting.size
    late = late_in(turn, ranks)
    if stage.meeting.rank == late:
        time.sleep(LATE_S)
    # what becomes of NaN in a minimum is each library's own, and no fault
    nan = turn % 2 and not (engine.version and reduction.op.name in ("min", "max"))
    whose = number // 2 % ranks if nan else None  # each rank's in turn
    inputs = [_given(reduction, rank, turn, n, rank == whose) for rank in range(ranks)]
    try:
        answer = _answer(stage, engine, inputs[stage.meeting.rank], number, late)
    except KernelFault as fault:
        return f"{fault}, at n = {n}"
    mine = share(stage.collective, reduction, stage.meeting.rank, ranks, n)
    right = read(stored(expected(reduction, inputs), reduction.dtype), reduction.dtype)[mine]
    got = answer[mine]
    off = np.flatnonzero(~((got == right) | ((got != got) & (right != right))))
    if not len(off):
        return _spoiled(stage, inputs[stage.meeting.rank]) or _beside(stage, mine, n)
    first = off[0]
    return (
        f"rank {stage.meeting.rank}, n = {n}, call {turn + 1}: element {mine.start + first} is "
        f"{got[first]}, not {right[first]}; {len(off)} of {len(right)} are wrong"
    )


def _given(reduction: Reduction, rank: int, turn: int, n: int, nan: bool) -> Array:
    """The elements of a rank at a call; of floats one is NaN, if so asked."""
    values = whole(reduction, rank, turn, n)
    if not nan or reduction.dtype.kind != "float":
        return values
    values = values.astype(np.float64)
    values[n // 2] = np.nan
    return values


def _spoiled(stage: Stage, values: Array) -> str | None:
    """What this rank's input holds that it was not given, if anything; whoever works in place may
    leave there what it likes."""
    parts, dtype, n = stage.windows.layout, stage.reduction.dtype, len(values)
    if parts.input == parts.output:
        return None
    given = stage.windows.part(parts.input, n * dtype.size)
    held = stage.backend.download(given, dtype.storage, n)
    off = np.flatnonzero(held.view("uint8") != stored(values, dtype).view("uint8"))
    if not len(off):
        return None
    first = off[0] // dtype.size
    return f"rank {stage.meeting.rank}, n = {n}: it writes to its input, at element {first}"


def _beside(stage: Stage, mine: slice, n: int) -> str | None:
    """What this rank's output holds beside its answer, but for the rest of a pack, if anything."""
    size, parts = stage.reduction.dtype.size, stage.windows.layout
    if parts.input == parts.output:  # whoever works in place leaves there what it was given
        mine = slice(0, n)
    room = _room(stage, n)
    held = stage.backend.download(room, "uint8", room.nbytes).copy()
    held[mine.start * size : -(-mine.stop * size // PACK_BYTES) * PACK_BYTES] = 0xFF
    written = np.flatnonzero(held != 0xFF)
    if not len(written):
        return None
    return (
        f"rank {stage.meeting.rank}, n = {n}: it writes where nothing of the answer lies, from "
        f"element {written[0] // size} on"
    )


def _room(stage: Stage, n: int) -> Part:
    """The output of a call with some bytes behind it, which nobody may write."""
    packs = -(-n * stage.reduction.dtype.size // PACK_BYTES)
    return stage.windows.part(stage.windows.layout.output, packs * PACK_BYTES + GUARD_BYTES)


def _repeated(
    stage: Stage, engine: Engine, n: int, calls: Iterator[int]
) -> tuple[bool, int, str | None]:
    """Whether all ranks had the same bits, how many answers there were to one input, and why they
    are wrong if they are."""
    reduction, rank, ranks = stage.reduction, stage.meeting.rank, stage.meeting.size
    float_type = reduction.dtype.kind == "float" and reduction.op.name != "prod"
    inputs = [at_random(r, n) if float_type else whole(reduction, r, 0, n) for r in range(ranks)]
    held = [read(stored(values, reduction.dtype), reduction.dtype).astype(np.float64)
            for values in inputs]  # fmt: skip
    mine = share(stage.collective, reduction, rank, ranks, n)
    # at most `ranks` roundings of each element, the last one to the type that travels
    bound = ranks * reduction.dtype.epsilon * np.sum(np.abs(held), axis=0)[mine]
    exact = read(stored(expected(reduction, inputs), reduction.dtype), reduction.dtype)[mine]
    hashes, far = [], None
    for _ in range(REPEATS):
        try:
            answer = _answer(stage, engine, inputs[rank], next(calls), 0)[mine]
        except KernelFault as fault:
            far = f"{fault}, at n = {n}"
            continue
        hashes.append(hashlib.sha256(np.ascontiguousarray(answer).tobytes()).hexdigest())
        if not float_type and not np.array_equal(answer, exact):
            far = (
                f"rank {rank}, n = {n}: another answer at a call with the input of the call before"
            )
        if float_type and not (np.abs(answer - expected(reduction, held)[mine]) <= bound).all():
            far = f"rank {rank}, n = {n}: further off than any order of additions explains"
    every = stage.meeting.everybody([hashes, far])
    lists = [some for some, _ in every]
    same = stage.collective != "all-reduce" or all(some == lists[0] for some in lists)
    distinct = max(len(set(some)) for some in lists)
    wrong = next((why for _, why in every if why), None if same else "ranks have other bits")
    return same, distinct, wrong


def _answer(stage: Stage, engine: Engine, values: Array, call: int, late: int) -> Array:
    """What a call makes of this rank's values; of what it must not write, NaN or -1."""
    dtype, parts, n = stage.reduction.dtype, stage.windows.layout, len(values)
    output = stage.windows.part(parts.output, n * dtype.size)
    given = stage.windows.part(parts.input, n * dtype.size)
    stage.backend.poison(_room(stage, n))
    stage.backend.write(given, stored(values, dtype))
    engine.run(n, call, late)
    return read(stage.backend.download(output, dtype.storage, n), dtype)
