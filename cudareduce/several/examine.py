"""Is what an engine leaves right, on every rank, at every call?

Inputs change between calls that follow one another, and one rank in turn comes late: only then does
it show that somebody does not wait for another's input, or writes over it while it is read.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

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
from cudareduce.several.exchange import FEW, vector_of
from cudareduce.several.left import call, why_wrong

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
