"""The ranks of a command: started here or found, met, of one mind, and each with its device."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cudareduce.backends import BackendSpec, choose_backend, gpu_count
from cudareduce.errors import UsageError
from cudareduce.machine.host import cpu_count
from cudareduce.progress import say
from cudareduce.several.meet.arrival import meet
from cudareduce.several.meet.meeting import Meeting
from cudareduce.several.meet.place import OWN, Place, meeting_file, place
from cudareduce.several.meet.start import start

#: What is said where times would be of no use.
SHARED = "Ranks share a GPU, and take turns on it: answers are checked, nothing is timed."


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """What is asked of ranks, whatever they do: `ranks` of them, which `meet` somewhere, on a
    `backend`, and `quiet`ly. `argv` is the command line, which each rank is started with."""

    ranks: int | None
    backend: str
    meet: str | None
    no_cache: bool
    quiet: bool
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """One rank among those it has met: where it computes, whether that is timed, for which each
    must have a GPU of its own, and whether it shows no progress."""

    meeting: Meeting
    spec: BackendSpec
    timed: bool
    quiet: bool

    @property
    def first(self) -> bool:
        """Whether this is the one that prints and writes."""
        return self.meeting.rank == 0


def together(
    asked: Ranks, count: Callable[[], int], what: Any, part: Callable[[Member], int]
) -> int:
    """Start as many ranks as `count` says, or be one of them and take `part`; the code that all
    end with. `what` must be the same for all, as JSON. Ranks that are lost, and numbers that
    do not fit, are errors on all of them."""
    here = place(os.environ)
    if here is None:
        number = count()
        if number > 1:
            return start(number, asked.argv)
        with Meeting(0, 1, []) as alone:
            return part(_member(asked, what, alone, Place(OWN.name, 0, 1, 0, "")))
    if asked.ranks not in (None, here.size):
        raise UsageError(
            f"--ranks {asked.ranks}: {here.launcher} has started {here.size}; leave --ranks out"
        )
    with meet(here, meeting_place(here, asked.meet)) as meeting:
        return int(meeting.share(part(_member(asked, what, meeting, here))))


def on_gpus(
    count: int, argv: Sequence[str], where: str | None, part: Callable[[Meeting, Place], int]
) -> int:
    """Start so many ranks, or be one of them and take `part`; they meet at `where`. The code that
    all end with. Raises RankLost, and a UsageError where a launcher has started more or fewer."""
    here = place(os.environ)
    if here is None:
        return start(count, argv)
    if count != here.size:
        raise UsageError(
            f"--gpus {count}: {here.launcher} has started {here.size} ranks; give that"
        )
    with meet(here, meeting_place(here, where)) as meeting:
        return part(meeting, here)


def meeting_place(here: Place, asked: str | None) -> str:
    """Where the ranks meet: if nobody says, at a file that bears the job's name."""
    if asked is not None:
        return asked
    if here.launcher == OWN.name:
        return here.job
    return meeting_file(here)


def _member(asked: Ranks, what: Any, meeting: Meeting, here: Place) -> Member:
    """This rank, once all want the same and have said whether they have a GPU of their own: ranks
    of a host take its GPUs in turn."""
    spec, remarks = choose_backend(asked.backend, gpu_of(here), not asked.no_cache)
    spec = replace(spec, threads=max(1, cpu_count() // here.size))
    of_one_mind(meeting, [what, spec.name])
    quiet = asked.quiet or meeting.rank > 0
    for remark in remarks:
        say(remark, quiet)
    timed = timed_apart(meeting, here, spec, quiet=quiet)
    return Member(meeting, spec, timed, quiet)


def gpu_of(here: Place) -> int:
    """The GPU of a rank: those of a host take its GPUs in turn."""
    return here.local_rank % max(1, gpu_count())


def timed_apart(meeting: Meeting, here: Place, spec: BackendSpec, *, quiet: bool) -> bool:
    """Whether anything is timed: where each rank has a GPU of its own; where ranks share one, that
    is said. Raises RankLost."""
    apart = all(meeting.everybody(here.local_rank < gpu_count()))
    if spec.timed and not apart:
        say(SHARED, quiet)
    return spec.timed and apart


def of_one_mind(meeting: Meeting, what: Any) -> None:
    """A UsageError where ranks were asked for different things: they would not meet in a call.
    Raises RankLost."""
    if len({json.dumps(each) for each in meeting.everybody(what)}) > 1:
        raise UsageError(
            "ranks were asked for different things: start all with the same command, and the "
            "same kernels"
        )
