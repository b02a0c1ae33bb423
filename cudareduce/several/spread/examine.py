"""Is the answer right, on every rank, at every call? Inputs change between calls that follow one
another, and one rank in turn comes late, as with arrays that ranks exchange."""

from __future__ import annotations

import time

import numpy as np

from cudareduce.errors import KernelFault
from cudareduce.launch.case import Case
from cudareduce.several.elements import at_random, read, stored
from cudareduce.several.engines import Stage, look_for_those_who_gave_up
from cudareduce.several.examine import LATE_S, REPEATS, STUMBLE, Finding, pairs
from cudareduce.several.libraries.nccl import NcclCommunicator
from cudareduce.several.spread.content import Content, share
from cudareduce.several.spread.share import Share, cleared, judged, on_share
from cudareduce.several.spread.ways import Local, Way

#: Lengths at which shares are one element, a part of a tile and several tiles, in elements beside
#: those that are asked for.
_LENGTHS = (1000, 4099, 100_003)


def lengths(ranks: int, asked: int) -> list[int]:
    """Those that are tried where `asked` is what is asked for."""
    return sorted({ranks, ranks + 1, *(n for n in _LENGTHS if ranks < n < asked), asked})


def examined(
    stage: Stage, cases: list[Case], asked: int, member: NcclCommunicator | None = None
) -> tuple[dict[tuple[Case, str], Finding], dict[tuple[Case, str], str]]:
    """What came of each way of each case, up to a length of `asked`, and why there is none. Raises
    RankLost, BuildError and OutOfMemory."""
    findings: dict[tuple[Case, str], Finding] = {}
    refusals: dict[tuple[Case, str], str] = {}
    for n in lengths(stage.comm.size, asked):
        with on_share(stage, cases, n, 1, member, STUMBLE) as on:
            refusals = on.refusals
            for case, ways in on.ways.items():
                for (way,) in ways:
                    before = findings.get((case, way.name))
                    if way.name == Local.name or (before and before.wrong):
                        continue
                    made = before.calls if before else 0
                    findings[case, way.name] = _examined(stage, on, way, n, made)
    return findings, refusals


def _examined(stage: Stage, on: Share, way: Way, n: int, made: int) -> Finding:
    cleared(stage)
    wrong, calls = None, 2 * pairs(stage.comm.size)
    for turn in range(calls):  # all calls, as others wait for this rank in each
        found = _wrong(stage, on, way, n, turn)
        wrong = wrong or found
    told = [text for text in stage.comm.all_gather(wrong) if text]
    if told:
        cleared(stage)
        return Finding(way.name, n, told[0], None, None, made + calls, way.version)
    same, distinct, wrong = _repeated(stage, on, way, n)
    return Finding(way.name, n, wrong, same, distinct, made + calls + REPEATS, way.version)


def _wrong(stage: Stage, on: Share, way: Way, n: int, turn: int) -> str | None:
    """Why one call is wrong on this rank; None if it is right."""
    rank, ranks = stage.comm.rank, stage.comm.size
    late = turn // 2 % ranks  # in two that follow one another
    floats = stage.reduction.dtype.kind == "float"
    # of NaN among others each library has its own opinion
    library = way.version is not None and stage.reduction.op.name in ("min", "max")
    nan_of = late if floats and turn == 2 * pairs(ranks) - 1 and not library else None
    content = Content(stage.reduction, n, ranks, turn, nan_of)
    if rank == late:
        time.sleep(LATE_S)
    try:
        got = _answer(stage, on, way, content.of(rank), late)
    except KernelFault as fault:
        return f"{fault}, at n = {n}"
    why = judged(got, content.answer)
    return f"rank {rank}, n = {n}, call {turn + 1}: {why}" if why else None


def _repeated(stage: Stage, on: Share, way: Way, n: int) -> tuple[bool, int, str | None]:
    """Whether all ranks had the same bits, how many answers there were to one input, and why they
    are wrong if they are."""
    reduction, rank = stage.reduction, stage.comm.rank
    rounded = reduction.dtype.kind == "float" and reduction.op.name in ("sum", "mean")
    content = Content(reduction, n, stage.comm.size, 0)
    values = content.of(rank)
    if rounded:
        own = share(n, rank, stage.comm.size)
        values = stored(at_random(rank, len(own)), reduction.dtype)
    exact, bound = _exact(stage, values, n) if rounded else (0.0, 0.0)
    bits, why = [], None
    for _ in range(REPEATS):  # all calls, as others wait for this rank in each
        try:
            answer = _answer(stage, on, way, values, 0)
        except KernelFault as fault:
            why = f"{fault}, at n = {n}"
            continue
        bits.append(answer.tobytes().hex())
        if not rounded:
            why = why or judged(answer, content.answer)
        elif not abs(float(answer) - exact) <= bound:
            why = f"n = {n}: further off than any order of additions explains"
    every = stage.comm.all_gather([bits, why])
    same = all(some == every[0][0] for some, _ in every)
    wrong = next((text for _, text in every if text), None if same else "ranks have other bits")
    return same, len({one for some, _ in every for one in some}), wrong


def _exact(stage: Stage, values: np.ndarray, n: int) -> tuple[float, float]:
    """The exact sum or mean of all ranks' numbers, and how far off one in any order may be."""
    reduction = stage.reduction
    held = read(values, reduction.dtype).astype(np.float64)
    sums = stage.comm.all_gather([float(held.sum()), float(np.abs(held).sum())])
    exact, size = sum(s for s, _ in sums), sum(a for _, a in sums)
    bound = n * reduction.acc.epsilon * size
    if reduction.op.name == "mean":
        exact, bound = exact / n, bound / n + reduction.acc.epsilon * abs(exact / n)
    return exact, bound


def _answer(stage: Stage, on: Share, way: Way, values: np.ndarray, late: int) -> np.generic:
    """What a call makes of this rank's values."""
    backend = stage.backend
    backend.write(on.inputs[0], values)
    backend.poison(on.answer)
    for program in way.waits:
        program.set_constant("WINDOWS", *stage.windows.words(late))
    way.run()
    backend.synchronize()
    look_for_those_who_gave_up(stage)
    got: np.generic = backend.download(on.answer, stage.reduction.result_dtype, 1)[0]
    return got
