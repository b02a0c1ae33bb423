"""One array of each length over all ranks: every way verified, then timed in the same rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, cycle
from pathlib import Path

from cudareduce.backend import Backend, Launch
from cudareduce.gpu.peer_memory import IpcMemory
from cudareduce.launch.case import Case
from cudareduce.peers.contract import AbsentError
from cudareduce.problem.operators import Reduction
from cudareduce.several.arrays import TURNS
from cudareduce.several.carried import aligning
from cudareduce.several.communicator import Communicator, agree
from cudareduce.several.engines import Stage
from cudareduce.several.examine import Finding
from cudareduce.several.libraries.nccl import NcclCommunicator, communicator, load
from cudareduce.several.measure import UNCOUNTED, in_turn, unjudged
from cudareduce.several.spread.content import Content
from cudareduce.several.spread.examine import examined
from cudareduce.several.spread.share import Share, Timed, cleared, on_share
from cudareduce.several.spread.ways import Host, Local, Way
from cudareduce.several.spread.ways import Nccl as NcclWay
from cudareduce.several.stopwatch import SAMPLES, Batch, Enqueue, Entrant, Judge, Stopwatch
from cudareduce.several.trial import by_host_clock
from cudareduce.several.windows import Allocate, device_windows, layout, mapped_windows
from cudareduce.verify.verdict import Verdict, skipped

#: Why there is no such way of a case, or of its whole, without a name.
Refusals = dict[tuple[Case, str], str]
#: Of ways of cases: samples by rounds, and what a call took by the host's clock.
Figures = dict[tuple[Case, str], tuple[tuple[Batch, ...], float | None]]
#: Elements of an array that is verified by itself at most, where timed calls verify longer ones.
_ALONE = 2**22
#: Bytes of mail: two halves of what all ranks send, 16 bytes of a partial at most as four words of
#: 8, and the number of the call.
_WORD_BYTES, _WORDS = 8, 4


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of a way of a case at a length: what was found of its answers, or the verdict for
    which ranks did not try it, and its samples by rounds; of one by the host what a call took by
    the host's clock."""

    case: Case
    way: str
    finding: Finding | None
    untried: Verdict | None = None
    batches: tuple[Batch, ...] = ()
    host_us: float | None = None


def steps(rounds: int, *, timed: bool) -> int:
    """How often a trial tells of its progress."""
    return 1 + (rounds + UNCOUNTED if timed else 0)


def tried(
    reduction: Reduction, cases: Sequence[Case], n: int, rounds: int, comm: Communicator,
    backend: Backend, progress: Callable[[], None], *, timed: bool,
    allocate: Allocate = IpcMemory, nccl: Path | None = None,
) -> list[Tried]:  # fmt: skip
    """All ways of all cases on an array of `n` elements, the same on all ranks. Raises RankLost,
    BuildError, OutOfMemory, KernelFault and EnvironmentProblem."""
    mail = _WORD_BYTES * (1 + 2 * comm.size * _WORDS)
    parts = layout(comm.size, 0, mail)
    windows = (
        device_windows(comm, parts, allocate) if backend.timed()
        else mapped_windows(comm, parts)
    )  # fmt: skip
    with windows as held, _member(comm, nccl, timed=timed) as (member, absent):
        stage = Stage(backend, comm, held, "all-reduce", reduction)
        alone = min(n, _ALONE) if timed else n
        findings, refusals = examined(stage, list(cases), alone, member)
        refusals |= {(case, NcclWay.name): absent for case in cases if absent}
        progress()
        right = {key for key, finding in findings.items() if not finding.wrong}
        figures: Figures = {}
        if timed and right:
            taken = [case for case in cases if any(case == other for other, _ in right)]
            figures, later = _timed(stage, taken, n, rounds, right, progress, member)
            refusals |= later
        keys = [*figures, *(key for key in findings if key not in figures)]
        left = {key for key in keys if key in refusals or (key[0], "") in refusals}
        found = [Tried(*key, findings.get(key), None, *figures.get(key, ((), None)))
                 for key in keys if key not in left]  # fmt: skip
        return found + [Tried(*key, None, skipped("unfit", why)) for key, why in refusals.items()]


@contextmanager
def _member(
    comm: Communicator, nccl: Path | None, *, timed: bool
) -> Iterator[tuple[NcclCommunicator | None, str]]:
    """This rank's part of NCCL, of the library in that file or of the one that is found, or why
    there is none; neither where nothing is timed. Raises RankLost."""
    with ExitStack() as opened:
        member, why = None, ""
        try:
            if timed:
                library = agree(comm, partial(load, nccl))
                member = opened.enter_context(communicator(library, comm))
        except AbsentError as error:
            why = str(error)
        yield member, why


def _timed(
    stage: Stage, cases: list[Case], n: int, rounds: int, right: set[tuple[Case, str]],
    progress: Callable[[], None], member: NcclCommunicator | None,
) -> tuple[Figures, Refusals]:  # fmt: skip
    """The samples of all that is right, and of each kernel alone, of the host its own time; and why
    some of it does not go at this length."""
    backend = stage.backend.timed()
    assert backend is not None
    ranks, rank = stage.comm.size, stage.comm.rank
    contents = [Content(stage.reduction, n, ranks, turn) for turn in range(TURNS)]
    with on_share(stage, cases, n, TURNS, member) as on:
        for given, content in zip(on.inputs, contents, strict=True):
            backend.write(given, content.of(rank))
        cleared(stage)
        for turns in (turns for ways in on.ways.values() for turns in ways):
            if turns[0].version:  # what a library makes ready at its first call may wait for a gate
                turns[0].run()
        backend.synchronize()
        keys = dict(_entrants(on, right))
        subject = Timed(stage, on, contents, SAMPLES)
        try:
            watch = Stopwatch(stage, backend, aligning(stage))
            named = {str(k): key for k, key in enumerate(keys)}
            entrants = {name: Entrant(keys[key], subject, _judge(key[1]))
                        for name, key in named.items()}  # fmt: skip
            taken = in_turn(watch, entrants, rounds, count(1), progress)
        finally:
            subject.close()
        figures: Figures = {key: (taken[name], None) for name, key in named.items()}
        for case, ways in on.ways.items():
            if (case, Host.name) in right:
                host = next(turns[0] for turns in ways if turns[0].name == Host.name)
                figures[case, Host.name] = (), by_host_clock(stage, host.run)
        return figures, on.refusals


def _judge(way: str) -> Judge | None:
    """Shares alone leave no answer."""
    return unjudged if way == Local.name else None


def _entrants(
    on: Share, right: set[tuple[Case, str]]
) -> Iterator[tuple[tuple[Case, str], Enqueue]]:
    for case, ways in on.ways.items():
        for turns in ways:
            name = turns[0].name
            if name == Local.name or ((case, name) in right and name != Host.name):
                yield (case, name), _in_turn(turns)


def _in_turn(turns: Sequence[Way]) -> Enqueue:
    """Launches that take turns between inputs: an even number of them, in a batch and in a loop,
    so that each batch begins with the first."""
    following: Iterator[Way] = cycle(turns)

    def enqueue(_: int) -> Launch:
        return next(following).run

    return enqueue
