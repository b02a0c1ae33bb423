"""The ways that are measured: the copy engine, and SMs that read or write, one way and both ways;
flags; and the copy engine between a GPU and its host.

One way every second rank is at it, with the next one; both ways all are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from cudareduce.backend import Launch, Program, TimedBackend
from cudareduce.bench.stream.memory import pages
from cudareduce.several.carried import carrying, helpers
from cudareduce.several.engines import Stage
from cudareduce.several.stopwatch import Enqueue, Judge

#: What one of a few blocks moves, in bytes: as long as all of an array takes many of them.
_BYTES_A_BLOCK = 2**24
#: Bytes of a flag.
_FLAG_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One thing that is measured: what a call of it enqueues on this rank, and the `sender` whose
    array is here then, if there is one, or a `judge` that says why what is here is wrong.

    A call moves `nbytes`, `parts` times one after the other, by so many `blocks` where that is
    limited. Ranks are `apart` where some are idle or each is with its own host: that one took
    longer tells nothing there.
    """

    engine: str
    nbytes: int
    enqueue: Enqueue
    sender: int | None = None
    judge: Judge | None = None
    blocks: int | None = None
    parts: int = 1
    apart: bool = False

    @property
    def name(self) -> str:
        """What no other has."""
        return f"{self.engine} {self.blocks or ''}"


def by_sms(stage: Stage, nbytes: int, counts: Sequence[int] = ()) -> Iterator[Way]:
    """Reads and writes of SMs, and both ways by so many blocks alone. Raises BuildError."""
    for program in helpers(stage, "links.cu", "link_read", "link_write"):
        kind = program.entry.removeprefix("link_")
        yield from _both(stage, kind, nbytes, carrying(stage, program, nbytes))
        for blocks in counts:
            some = min(nbytes, blocks * _BYTES_A_BLOCK)
            moves = carrying(stage, program, some, blocks)
            yield Way(engine=f"{kind}:both", nbytes=some, enqueue=moves, blocks=blocks,
                      sender=_sender(stage, kind))  # fmt: skip


def by_copy_engine(stage: Stage, backend: TimedBackend, nbytes: int) -> Iterator[Way]:
    """Copies from one GPU's memory to another's."""
    windows, parts = stage.windows, stage.windows.layout
    given = windows.part(parts.input, nbytes)
    theirs = windows.part(parts.output, nbytes, (windows.rank + 1) % stage.meeting.size)
    copy = partial(backend.overwrite, theirs, 0, given)
    yield from _both(stage, "copy", nbytes, lambda _: copy)


def by_flag(stage: Stage, rounds: int) -> Iterator[Way]:
    """A flag there and back, so many times in a call: half a round is one way. Raises
    BuildError."""
    parts = stage.windows.layout
    own = stage.windows.part(parts.flags, _FLAG_BYTES)

    def judge() -> str | None:
        last = int(stage.backend.download(own, "uint32", 1)[0])
        if _partner(stage) is None or (last and last % rounds == 0):
            return None
        return f"rank {stage.meeting.rank}: a flag ended at {last}, no multiple of {rounds}"

    def enqueue(program: Program, call: int) -> Launch:
        places = [parts.flags, call * rounds + 1, rounds]
        return stage.backend.launcher(program, 1, 32, [stage.windows.words(), *places])

    for program in helpers(stage, "flags.cu", "flag_ordered", "flag_relaxed"):
        yield Way(engine=program.entry.replace("_", ":"), nbytes=_FLAG_BYTES, judge=judge,
                  enqueue=partial(enqueue, program), parts=2 * rounds, apart=True)  # fmt: skip


def by_host(stage: Stage, backend: TimedBackend, nbytes: int) -> Iterator[Way]:
    """Copies from memory of the host that is kept in place, and to it; of all ranks at once. Raises
    OutOfMemory."""
    windows, parts, rank = stage.windows, stage.windows.layout, stage.meeting.rank
    given, answer = (windows.part(at, nbytes) for at in (parts.input, parts.output))
    held = pages(nbytes)[:nbytes]
    held.fill(rank + 1)
    backend.pin(held)
    back = pages(nbytes)[:nbytes]
    backend.pin(back)

    def came() -> str | None:
        got = backend.download(answer, "uint8", nbytes)
        return None if np.array_equal(got, held) else f"rank {rank}: a copy from its host is wrong"

    def went() -> str | None:
        sent = backend.download(given, "uint8", nbytes)
        return None if np.array_equal(sent, back) else f"rank {rank}: a copy to its host is wrong"

    bring, take = partial(backend.copy_in, answer, held), partial(backend.copy_out, back, given)
    yield Way(engine="copy:from_host", nbytes=nbytes, enqueue=lambda _: bring, judge=came,
              apart=True)  # fmt: skip
    yield Way(engine="copy:to_host", nbytes=nbytes, enqueue=lambda _: take, judge=went,
              apart=True)  # fmt: skip


def _both(stage: Stage, kind: str, nbytes: int, enqueue: Enqueue) -> Iterator[Way]:
    """One way, where every second rank does nothing, and both ways."""
    rank, sender = stage.meeting.rank, _sender(stage, kind)
    busy = rank % 2 == 0 and _partner(stage) is not None
    # who reads has it from the next; who is written to, from the one before, if that one writes
    has = busy if kind == "read" else rank % 2 == 1
    yield Way(engine=f"{kind}:one_way", nbytes=nbytes, enqueue=enqueue if busy else _nothing,
              sender=sender if has else None, apart=True)  # fmt: skip
    yield Way(engine=f"{kind}:both", nbytes=nbytes, enqueue=enqueue, sender=sender)


def _sender(stage: Stage, kind: str) -> int:
    """Whose array a rank has when all have read those of the next, or written to the next."""
    return (stage.meeting.rank + (1 if kind == "read" else -1)) % stage.meeting.size


def _partner(stage: Stage) -> int | None:
    """The other rank of a pair; of an odd number the last one has none."""
    other = stage.meeting.rank ^ 1
    return other if other < stage.meeting.size else None


def _nothing(call: int) -> Launch:
    return lambda: None
