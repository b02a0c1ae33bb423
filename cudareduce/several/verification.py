"""Verify engines: the result of every call, on every rank.

Inputs change between consecutive calls, and one rank in turn is late: only so it shows if a rank
does not wait for another's input, or overwrites it while it is read.
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
    exact_values,
    expected,
    from_storage,
    output_slice,
    random_values,
    to_storage,
)
from cudareduce.several.kernels import FEW, PACK_BYTES, vector_of
from cudareduce.several.windows import GUARD_BYTES, Part


@dataclass(frozen=True, slots=True)
class CallOutput:
    """The result, and the bytes of the input and of the output with its guard."""

    answer: Array
    given: Array
    room: Array


def run_call(
    stage: Stage, engine: Engine, values: Array, number: int, late: int
) -> CallOutput | str:
    """Run one call on this rank's stored values; returns its output, or why it did not end. The
    output is poisoned before."""
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
    return CallOutput(from_storage(answer, dtype), held, round_it)


def check_output(stage: Stage, left: CallOutput, values: Array, expected: Array) -> str | None:
    """Why a call's output is wrong, or None."""
    reduction, rank, ranks = stage.reduction, stage.comm.rank, stage.comm.size
    mine = output_slice(stage.collective, reduction, rank, ranks, len(values))
    right = from_storage(to_storage(expected, reduction.dtype), reduction.dtype)[mine]
    got = left.answer[mine]
    off = np.flatnonzero(~((got == right) | ((got != got) & (right != right))))
    if not len(off):
        return _spoiled(stage, left, values) or _beside(stage, left, mine, len(values))
    first = off[0]
    return (
        f"element {mine.start + first} is {got[first]}, not {right[first]}; {len(off)} of "
        f"{len(right)} are wrong"
    )


def _spoiled(stage: Stage, left: CallOutput, values: Array) -> str | None:
    """Why the input is not what it was, or None. In-place engines may change it."""
    if _in_place(stage):
        return None
    off = np.flatnonzero(left.given != values.view("uint8"))
    if not len(off):
        return None
    return f"it writes to its input, at element {off[0] // stage.reduction.dtype.size}"


def _beside(stage: Stage, left: CallOutput, mine: slice, n: int) -> str | None:
    """Why bytes outside the result were written, or None; the rest of a pack may be."""
    size, front = stage.reduction.dtype.size, _front(stage)
    if _in_place(stage):  # in-place engines leave the input there
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
    """The output with guard bytes on both sides."""
    packs, front = -(-n * stage.reduction.dtype.size // PACK_BYTES), _front(stage)
    nbytes = front + packs * PACK_BYTES + GUARD_BYTES
    return stage.windows.part(stage.windows.layout.output - front, nbytes)


def _front(stage: Stage) -> int:
    """The guard bytes before an output; none for in-place engines."""
    return 0 if _in_place(stage) else GUARD_BYTES


def _in_place(stage: Stage) -> bool:
    return stage.windows.layout.input == stage.windows.layout.output


#: The fewest late ranks to test, calls with the same input, and how late a rank is: in s on the
#: host, and in clocks of a kernel, or ns of the emulator.
_MOST_LATE, REPEATS = 3, 10
LATE_S, STUMBLE = 2e-3, 2_000_000


@dataclass(frozen=True, slots=True)
class Finding:
    """What verification found of an engine on up to `n` elements: why it is wrong, if it is,
    whether all ranks had the same bits, the number of distinct results of one input, and the number
    of calls."""

    engine: str
    n: int
    wrong: str | None
    same_bits: bool | None
    distinct: int | None
    calls: int
    version: str | None = None


def call_pairs(ranks: int, blocks: int = 1) -> int:
    """The number of call pairs: each rank is late in one, and each of a few blocks is the latest in
    one."""
    return max(_MOST_LATE, ranks, blocks if blocks <= FEW else 1)


def test_sizes(vector: int, ranks: int, most: list[int], more: Iterable[int] = ()) -> list[int]:
    """Sizes at which packs and shares end, up to the largest requested one, the requested ones and
    `more`."""
    edges = {1, vector - 1, vector, vector + 1, vector * ranks - 1, vector * ranks,
             vector * ranks + 1, 1000, 4099, *more}  # fmt: skip
    return sorted({n for n in edges if 0 < n <= max([*most, *more])} | set(most))


def verify_engine(
    stage: Stage, engine: Engine, asked: list[int], calls: Iterator[int],
    edges: Mapping[int, int],
) -> Finding:  # fmt: skip
    """Run an engine at all test sizes and check all results. All ranks call it together, with the
    same finding. Raises RankLost."""
    stage = replace(stage, windows=engine.windows)
    made, library = 0, engine.version
    for n in test_sizes(vector_of(stage.reduction), stage.comm.size, asked, edges):
        if engine.why_not(n):
            continue
        wrong = None
        with stage.comm.doing(f"{engine.name} of {n} elements"):
            for pair in range(call_pairs(stage.comm.size, edges.get(n, 1))):
                made += 2  # also after an error: other ranks wait for this one in each call
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
    """Why one of two consecutive calls is wrong on this rank, or None.

    One rank is late in both calls. A rank that was early in the first and late in the second would
    not overwrite an input that others still read; nor would one that first had to make its input,
    or to check the last result. So inputs are made before, and results are checked after both
    calls.
    """
    reduction, ranks, rank = stage.reduction, stage.comm.size, stage.comm.rank
    late, numbers = pair % ranks, [next(calls), next(calls)]
    # libraries differ in how min and max treat NaN
    nan = not (engine.version and reduction.op.name in ("min", "max"))
    given = []
    for turn, number in enumerate(numbers, 2 * pair):
        whose = number // 2 % ranks if nan and turn % 2 else None  # the rank in turn has the NaN
        given.append([_given(reduction, each, turn, n, each == whose) for each in range(ranks)])
    own = [to_storage(inputs[rank], reduction.dtype) for inputs in given]
    left = []
    for values, number in zip(own, numbers, strict=True):
        if rank == late:
            time.sleep(LATE_S)
        left.append(run_call(stage, engine, values, number, late))
    wrongs = (
        one
        if isinstance(one, str)
        else check_output(stage, one, values, expected(reduction, inputs))
        for one, values, inputs in zip(left, own, given, strict=True)
    )
    told = ((k, why) for k, why in enumerate(wrongs, 2 * pair + 1) if why)
    return next((f"rank {rank}, n = {n}, call {k}: {why}" for k, why in told), None)


def _given(reduction: Reduction, rank: int, turn: int, n: int, nan: bool) -> Array:
    """A rank's elements at a call, one of them NaN if requested."""
    values = exact_values(reduction, rank, turn, n)
    if not nan or reduction.dtype.kind != "float":
        return values
    values = values.astype(np.float64)
    values[n // 2] = np.nan
    return values


def _repeated(
    stage: Stage, engine: Engine, n: int, calls: Iterator[int]
) -> tuple[bool, int, str | None]:
    """Whether all ranks had the same bits, the number of distinct results of one input, and why
    they are wrong, if they are."""
    reduction, rank, ranks = stage.reduction, stage.comm.rank, stage.comm.size
    float_type, product = reduction.dtype.kind == "float", reduction.op.name == "prod"
    inputs = [
        random_values(r, n, factors=product) if float_type else exact_values(reduction, r, 0, n)
        for r in range(ranks)
    ]
    own = [to_storage(values, reduction.dtype) for values in inputs]
    held = [from_storage(values, reduction.dtype).astype(np.float64) for values in own]
    mine = output_slice(stage.collective, reduction, rank, ranks, n)
    # at most `ranks` roundings per element, the last one to the dtype
    size = np.prod(np.abs(held), axis=0) if product else np.sum(np.abs(held), axis=0)
    bound = ranks * reduction.dtype.epsilon * size[mine]
    exact = from_storage(to_storage(expected(reduction, inputs), reduction.dtype), reduction.dtype)[
        mine
    ]
    hashes, far = [], None
    for _ in range(REPEATS):
        left = run_call(stage, engine, own[rank], next(calls), 0)
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
