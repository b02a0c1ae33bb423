"""Libraries in a process of their own, which may die or hang: the run goes on without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import RawArray
from time import monotonic
from typing import Any

from cudareduce.budget import Deadline
from cudareduce.errors import CudareduceError
from cudareduce.peers.child import serve
from cudareduce.peers.contract import Peer
from cudareduce.peers.faults import not_imported
from cudareduce.peers.job import CUT, UNVERIFIED, Found, Job, Outcome
from cudareduce.peers.scene import BrokenError, Phase
from cudareduce.signals import held
from cudareduce.verify.children import Spawned
from cudareduce.verify.verdict import Verdict, skipped

#: What a process runs; tests put in what has no GPU.
Serve = Callable[[Connection, Any, str], None]
#: Seconds without a sign of life: while something may be compiled or imported, and while it runs.
_PREPARES_S, _RUNS_S = 300.0, 60.0
#: Seconds between two looks at whether launches go on.
_LOOK_S = 0.25
#: Seconds behind the deadline without a sign of life: the child looks at it between calls.
_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class _At:
    """What a process is at: a peer by its name, empty if none, what that does, and how many bytes
    had been said before. Of several `names` the cells say whose the last launch is."""

    name: str = ""
    phase: Phase = "prepares"
    said: int = 0
    names: tuple[str, ...] = ()


class LostError(Exception):
    """The process has ended or hangs, in words, or is `late`; and what it was at."""

    def __init__(self, at: _At, reason: str, *, late: bool = False) -> None:
        super().__init__(reason)
        self.at, self.reason, self.late = at, reason, late

    def verdict(self, peers: Sequence[Peer]) -> Verdict:
        """The verdict on the peer that it was at."""
        if self.late:
            return skipped("time", self.reason)
        peer = next((peer for peer in peers if peer.name == self.at.name), None)
        if peer is not None and self.at.phase == "imports":
            return not_imported(peer, self.reason)
        return Verdict("fail", self.reason)


class Processes:
    """Does jobs in child processes, which outlive a job and are replaced when they die: one that
    libraries share, and one for each that wants it to itself."""

    def __init__(self, time_limit_s: float | None, target: Serve | None = None) -> None:
        self._limits_s = time_limit_s or _PREPARES_S, time_limit_s or _RUNS_S
        self._target = target or serve
        self._children: dict[str | None, _Child] = {}
        self._lost: dict[str, Verdict] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End what runs, whatever it is doing."""
        for name in list(self._children):
            self._end(name)

    def _end(self, alone: str | None) -> None:
        child = self._children.pop(alone, None)
        if child is not None:
            child.end()

    def outcome(self, job: Job, deadline: Deadline, step: Callable[[], None]) -> Outcome:
        """What a job gives: libraries that share a process, then each that wants one of its own.
        A peer that has taken a process down is not tried again."""
        shared = self._tried(job, deadline, step)
        peers = dict(shared.peers)
        for name in job.own():
            peers |= self._tried(replace(job, alone=name, kernels=()), deadline, step).peers
        return replace(shared, peers=peers)

    def _tried(self, job: Job, deadline: Deadline, step: Callable[[], None]) -> Outcome:
        left = replace(job, left_out=job.left_out | set(self._lost))
        lost = {p.name: Found(verdict=self._lost[p.name]) for p in job.peers()
                if p.name in self._lost}  # fmt: skip
        while True:
            names = [peer.name for peer in left.peers()]
            if deadline.passed or not names:
                cut = Found(verdict=skipped("time", CUT))
                return Outcome(peers=lost | dict.fromkeys(names, cut))
            left = replace(left, deadline_s=_left_s(deadline))
            try:
                outcome = self._asked(left, deadline, step)
            except BrokenError as error:
                name, verdict = error.name, error.verdict
            except LostError as error:
                name, verdict = error.at.name, error.verdict(left.peers())
                if not error.late:
                    self._lost[name] = verdict
            except CudareduceError as error:
                cause = skipped("machine", str(error))
                return Outcome(peers=lost | dict.fromkeys(names, Found(verdict=cause)))
            else:
                return replace(outcome, peers={**lost, **outcome.peers})
            self._end(job.alone)
            if name not in names:  # no library was at it
                if verdict.cause == "time":
                    continue  # which it is for all of them
                cause = skipped("machine", f"its process ended beside it: {verdict.reason}")
                return Outcome(peers=lost | dict.fromkeys(names, Found(verdict=cause)))
            called = next(p.called(job.problem) for p in left.peers() if p.name == name)
            lost[name] = Found(verdict=verdict, called=called)
            left = left.without(name)

    def _asked(self, job: Job, deadline: Deadline, step: Callable[[], None]) -> Outcome:
        if job.alone not in self._children:
            with held():
                self._children[job.alone] = _Child(self._target, *self._limits_s)
        beside = len(self._children)  # the others of them, and this process
        return self._children[job.alone].asked(replace(job, ours=beside), deadline, step)


def _left_s(deadline: Deadline) -> float | None:
    return None if deadline.seconds is None else deadline.left_s


class _Child:
    """A process that does one job after the other."""

    def __init__(self, target: Serve, prepares_s: float, runs_s: float) -> None:
        self._prepares_s, self._runs_s = prepares_s, runs_s
        self._cells = RawArray("q", 2)
        self._spawned = Spawned(target, self._cells)

    def asked(self, job: Job, deadline: Deadline, step: Callable[[], None]) -> Outcome:
        """The outcome of a job. Raises LostError, and what the child raises."""
        with suppress(BrokenPipeError, ConnectionResetError):  # where answers are read it will show
            self._spawned.pipe.send(job)
        at, seen, since = _At(), -1, monotonic()
        while True:
            if not self._spawned.pipe.poll(_LOOK_S):
                if self._cells[0] != seen:
                    seen, since = self._cells[0], monotonic()
                self._check(at, monotonic() - since, deadline)
                continue
            try:
                said = self._spawned.heard()
            except EOFError:
                raise LostError(self._culprit(at), self._how_it_ended(at.said)) from None
            since = monotonic()
            if isinstance(said, Outcome):
                return said
            if isinstance(said, Exception):
                raise said
            match said:
                case ("at", name, phase, before):
                    at = _At(name, phase, before)
                case ("times", names, before):
                    at = _At("", "runs", before, names)
                case _:
                    step()

    def _check(self, at: _At, silent_s: float, deadline: Deadline) -> None:
        """Raise LostError if it has been silent for too long, or for long behind the deadline."""
        limit_s = self._runs_s if at.phase == "runs" else self._prepares_s
        limit_s = limit_s if at.name or at.names else _PREPARES_S  # kernels of ours are compiled
        if deadline.passed and silent_s > _GRACE_S:
            raise LostError(self._culprit(at), UNVERIFIED, late=True)
        if silent_s > limit_s:
            why = f"no answer after {limit_s:.4g} s: it hangs, or --time-limit is too short"
            raise LostError(self._culprit(at), why)

    def _culprit(self, at: _At) -> _At:
        return replace(at, name=at.names[self._cells[1]]) if at.names else at

    def _how_it_ended(self, since: int) -> str:
        how, last = self._spawned.how_it_ended(since)
        return f"{how} ({last[:160]})" if last else how

    def end(self) -> None:
        """End it with all that it has started."""
        self._spawned.end()
