"""What links carry: every way tried, and timed where each rank has a GPU of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import count

from cudareduce.backend import Backend, TimedBackend
from cudareduce.errors import KernelFault
from cudareduce.gpu.peer_memory import IpcMemory
from cudareduce.problem.operators import reduction_of
from cudareduce.results.record import LINKS, Record
from cudareduce.several.arrays import Arrays, missing
from cudareduce.several.carried import aligning, judging
from cudareduce.several.elements import stored, whole
from cudareduce.several.engines import Stage, look_for_those_who_gave_up
from cudareduce.several.links.ways import (
    Way,
    by_copy_engine,
    by_flag,
    by_host,
    by_sms,
)  # fmt: skip
from cudareduce.several.measure import UNCOUNTED, in_turn, unjudged
from cudareduce.several.meet.meeting import Meeting
from cudareduce.several.records import taken
from cudareduce.several.stopwatch import Batch, Entrant, Judge, Stopwatch
from cudareduce.several.windows import Allocate, device_windows, layout, mapped_windows

#: Bytes of an array: long enough that a launch is less than 1 % of it on NVLink 4; those that are
#: copied from and to the host, which is slower; and those of a trial without times, which end
#: within a tile.
TIMED_BYTES, _HOST_BYTES, TRIED_BYTES = 2**28, 2**26, 2**20 - 48
#: How often a flag goes there and back in a call, timed and not.
_FLAGS, _FEW_FLAGS = 1000, 16


def measured(
    meeting: Meeting, backend: Backend, nbytes: int, rounds: int | None,
    progress: Callable[[], None], allocate: Allocate = IpcMemory,
) -> list[Record]:  # fmt: skip
    """Records of all ways, the same on all ranks, in so many rounds; without times if `rounds` is
    None. Raises RankLost, BuildError, OutOfMemory, KernelFault and EnvironmentProblem."""
    reduction = reduction_of("sum", "float32")  # whose packs are what is moved
    parts = layout(meeting.size, nbytes, 0)
    timed = backend.timed()
    made = device_windows(meeting, parts, allocate) if timed else mapped_windows(meeting, parts)
    with made as windows:
        stage = Stage(backend, meeting, windows, "all-reduce", reduction)
        if timed and rounds is not None:
            return _timed(stage, timed, nbytes, rounds, progress)
        found = _tried(stage, nbytes)
        progress()
        return found


def steps_of(rounds: int | None) -> int:
    """How often that tells of its progress."""
    return 1 if rounds is None else rounds + UNCOUNTED


def _timed(
    stage: Stage, backend: TimedBackend, nbytes: int, rounds: int, progress: Callable[[], None]
) -> list[Record]:
    """All ways in turn, round after round."""
    ways: list[Way] = []
    if stage.meeting.size > 1:
        counts = [2**k for k in range(backend.limits().sm_count.bit_length())]
        ways += by_copy_engine(stage, backend, nbytes)
        ways += [*by_sms(stage, nbytes, counts), *by_flag(stage, _FLAGS)]
    ways += by_host(stage, backend, min(nbytes, _HOST_BYTES))
    size = stage.reduction.dtype.size
    watch = Stopwatch(stage, backend, aligning(stage))
    with closing(Arrays(stage, backend, nbytes // size, judging(stage))) as arrays:
        here = arrays.within(stage.windows)
        entrants = {
            way.name: Entrant(way.enqueue, here,
                              _judge(way, lambda s, n: arrays.arrived(s, n // size)))
            for way in ways
        }  # fmt: skip
        batches = in_turn(watch, entrants, rounds, count(1), progress)
    return [_record(stage, way, batches[way.name]) for way in ways]


def _record(stage: Stage, way: Way, batches: Sequence[Batch]) -> Record:
    """What was measured of a way: of one of its parts, and where ranks do not wait for each
    other, without how far they are apart."""
    some = [
        replace(
            batch, times_us=tuple(us / way.parts for us in batch.times_us),
            skews_us=tuple(0.0 if way.apart else skew / way.parts for skew in batch.skews_us),
            loop_us=batch.loop_us / way.parts,
        )
        for batch in batches
    ]  # fmt: skip
    record = taken(_plain(stage, way), some, way.nbytes)
    if way.parts > 1:  # latency, and no rate
        record = replace(record, batch=way.parts, gb_s=None, gb_s_low=None, gb_s_high=None)
    return replace(record, skew_us=None) if way.apart else record


def _tried(stage: Stage, nbytes: int) -> list[Record]:
    """All ways once, and whether what they move arrives."""
    reduction, parts, calls = stage.reduction, stage.windows.layout, count(1)
    n = nbytes // reduction.dtype.size
    given, answer = (stage.windows.part(at, nbytes) for at in (parts.input, parts.output))

    def arrived(call: int, sender: int, _: int) -> str | None:
        return missing(stage, sender, stored(whole(reduction, sender, call, n), reduction.dtype))

    records = []
    for way in (*by_sms(stage, nbytes), *by_flag(stage, _FEW_FLAGS)):
        call = next(calls)
        own = stored(whole(reduction, stage.meeting.rank, call, n), reduction.dtype)
        stage.backend.write(given, own)
        stage.backend.poison(answer)
        stage.backend.synchronize()
        wrong = _ran(stage, way, call) or _judge(way, partial(arrived, call))()
        told = next((why for why in stage.meeting.everybody(wrong) if why), None)
        stage.backend.zero(stage.windows.status)
        plain = _plain(stage, way)
        records.append(replace(plain, verdict="fail", reason=told) if told else plain)
    return records


def _ran(stage: Stage, way: Way, call: int) -> str | None:
    """Let all ranks call a way; why this one's call has failed, if it has."""
    wrong = None
    stage.meeting.barrier()
    try:
        way.enqueue(call)()
        stage.backend.synchronize()
        look_for_those_who_gave_up(stage)
    except KernelFault as fault:
        wrong = str(fault)
    stage.meeting.barrier()
    return wrong


def _judge(way: Way, arrived: Callable[[int, int], str | None]) -> Judge:
    """What judges a way on this rank: of who gets nothing there is nothing to be judged."""
    if way.sender is not None:
        return partial(arrived, way.sender, way.nbytes)
    return way.judge or unjudged


def _plain(stage: Stage, way: Way) -> Record:
    return Record(
        kernel=LINKS, op="copy", dtype="uint8", acc="uint8", n=way.nbytes, rows=1, block=None,
        items=None, grid=way.blocks, passes=None, backend=stage.backend.name, scope="device",
        timing="warm", region="total", pattern="exact", verdict="pass", reason="",
        sms=way.blocks, ranks=stage.meeting.size, engine=way.engine,
    )  # fmt: skip
