"""Libraries in a process of their own, which may die or hang: the run goes on without them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import RawArray
from time import monotonic
from typing import Any

from cudareduce.budget import Deadline
from cudareduce.errors import CudareduceError
from cudareduce.peers.child import serve
from cudareduce.peers.job import Found, Job, Outcome
from cudareduce.peers.scene import BrokenError
from cudareduce.signals import held
from cudareduce.verify.children import Spawned
from cudareduce.verify.verdict import Verdict, skipped

#: What a process runs; tests put in what has no GPU.
Serve = Callable[[Connection, Any, str], None]
#: Seconds without a sign of life: while something may be compiled or imported, and while it runs.
_PREPARES_S, _RUNS_S = 300.0, 60.0
#: Seconds between two looks at whether launches go on.
_LOOK_S = 0.25
_CUT = "--max-time was spent before it was tried"


class LostError(Exception):
    """The process has ended or hangs; `name` is what it was at, empty if nothing."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name, self.reason = name, reason


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
                cut = Found(verdict=skipped("time", _CUT))
                return Outcome(peers=lost | dict.fromkeys(names, cut))
            left = replace(left, deadline_s=_left_s(deadline))
            try:
                outcome = self._asked(left, step)
            except BrokenError as error:
                name, verdict = error.name, error.verdict
            except LostError as error:
                name, verdict = error.name, Verdict("fail", error.reason)
                self._lost[name] = verdict
            except CudareduceError as error:
                cause = skipped("machine", str(error))
                return Outcome(peers=lost | dict.fromkeys(names, Found(verdict=cause)))
            else:
                return replace(outcome, peers={**lost, **outcome.peers})
            self._end(job.alone)
            if name not in names:  # no library was at it
                cause = skipped("machine", f"its process ended beside it: {verdict.reason}")
                return Outcome(peers=lost | dict.fromkeys(names, Found(verdict=cause)))
            called = next(p.called(job.problem) for p in left.peers() if p.name == name)
            lost[name] = Found(verdict=verdict, called=called)
            left = left.without(name)

    def _asked(self, job: Job, step: Callable[[], None]) -> Outcome:
        if job.alone not in self._children:
            with held():
                self._children[job.alone] = _Child(self._target, *self._limits_s)
        return self._children[job.alone].asked(job, step)


def _left_s(deadline: Deadline) -> float | None:
    return None if deadline.seconds is None else deadline.left_s


class _Child:
    """A process that does one job after the other."""

    def __init__(self, target: Serve, prepares_s: float, runs_s: float) -> None:
        self._prepares_s, self._runs_s = prepares_s, runs_s
        self._cells = RawArray("q", 2)
        self._spawned = Spawned(target, self._cells)

    def asked(self, job: Job, step: Callable[[], None]) -> Outcome:
        """The outcome of a job. Raises LostError, and what the child raises."""
        name, names, limit_s, times = "", (), _PREPARES_S, False
        with suppress(BrokenPipeError, ConnectionResetError):  # where answers are read it will show
            self._spawned.pipe.send(job)
        seen, since = -1, monotonic()
        while True:
            if not self._spawned.pipe.poll(_LOOK_S):
                if times:
                    name = names[self._cells[1]]
                if self._cells[0] != seen:
                    seen, since = self._cells[0], monotonic()
                if monotonic() - since > limit_s:
                    why = f"no answer after {limit_s:.4g} s: it hangs, or --time-limit is too short"
                    raise LostError(name, why)
                continue
            try:
                said = self._spawned.pipe.recv()
            except (EOFError, OSError):
                culprit = names[self._cells[1]] if times else name
                raise LostError(culprit, self._how_it_ended()) from None
            since = monotonic()
            if isinstance(said, Outcome):
                return said
            if isinstance(said, Exception):
                raise said
            match said:
                case ("at", who, prepares):
                    name, times = who, False
                    limit_s = self._prepares_s if prepares else self._runs_s
                    limit_s = limit_s if name else _PREPARES_S  # kernels of ours are compiled
                case ("times", entrants):
                    names, times, limit_s = entrants, True, self._runs_s
                case _:
                    step()

    def _how_it_ended(self) -> str:
        how, last = self._spawned.how_it_ended()
        return f"{how} ({last[:160]})" if last else how

    def end(self) -> None:
        """End it with all that it has started."""
        self._spawned.end()
