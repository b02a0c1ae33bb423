"""The process that makes the calls: one job after the other, until it is ended or dies of one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from multiprocessing.connection import Connection
from time import monotonic

import numpy as np

from cudareduce.backend import Backend
from cudareduce.backends import open_backend
from cudareduce.errors import BuildError, KernelFault, OutOfMemory
from cudareduce.launch.case import build
from cudareduce.peers.examine import loaded
from cudareduce.peers.faults import Runtimes, faulty
from cudareduce.peers.scene import Teller
from cudareduce.reveal.call import Call, kernel_call, own_call, peer_call
from cudareduce.reveal.examine import Examination
from cudareduce.reveal.found import Found, Outcome
from cudareduce.reveal.job import Job, KernelCall, PeerCall, Prepare
from cudareduce.verify.children import answer_jobs, begin_spawned

#: What a child sends when a library is about to be imported, and to be prepared, when the call
#: begins to run, and now and then while it gets on.
IMPORTS, PREPARES, RUNS, ALIVE = "imports", "prepares", "runs", "alive"
_BEAT_S = 0.25


def serve(pipe: Connection, log: str) -> None:
    """The child: jobs until the pipe closes; the last line of its standard error is kept."""
    begin_spawned(pipe, log)
    answer_jobs(pipe, _Worker(pipe.send).done)


class _Worker:
    """What outlives a job: the backend, and what libraries have loaded."""

    def __init__(self, say: Callable[[object], None]) -> None:
        self._say, self._said = say, 0.0
        self._opened: Backend | None = None
        self._runtimes = Runtimes()

    def done(self, job: Job | Prepare) -> Found | None:
        """Do a job. Raises EnvironmentProblem."""
        if isinstance(job, Prepare):
            self._build(job)
            return None
        return self._peer(job, job.call) if isinstance(job.call, PeerCall) else self._kernel(job)

    def _build(self, job: Prepare) -> None:
        build(self._backend(job), {call.case: [call.plan] for call in job.calls}, self._beat)

    def _backend(self, job: Job | Prepare) -> Backend:
        if self._opened is None:
            self._opened = open_backend(job.spec, catch_faults=True)
        return self._opened

    def _beat(self) -> None:
        if monotonic() > self._said + _BEAT_S:
            self._say(ALIVE)
            self._said = monotonic()

    def _kernel(self, job: Job) -> Found:
        assert isinstance(job.call, KernelCall)
        call, backend = job.call, self._backend(job)
        nothing = Found(outcome="skip")
        try:
            with kernel_call(backend, call.case, call.plan) as made:
                self._say(RUNS)
                made.answer()
                return self._examined(job, made)
        except KernelFault as fault:
            return replace(nothing, outcome="wrong", reason=str(fault), fault=True)
        except BuildError as error:
            return replace(nothing, reason=f"does not compile: {error}", cause="unbuilt")
        except (OutOfMemory, MemoryError) as error:
            return replace(nothing, reason=str(error) or "out of host memory", cause="machine")

    def _peer(self, job: Job, call: PeerCall) -> Found:
        peer, problem = call.peer, call.problem
        self._say(IMPORTS)
        teller = Teller(lambda said: self._beat(), [0, 0])
        here = loaded([peer], problem, teller, self._runtimes)[peer.name]
        found = Found(outcome="skip", called=here.called)
        if here.verdict.outcome != "pass":
            return replace(found, reason=here.verdict.reason, cause=here.verdict.cause)
        self._say(PREPARES)
        try:
            with self._peer_call(job, call) as made:
                made.answer()  # what compiles at its first call
                self._say(RUNS)
                found = replace(self._examined(job, made), called=here.called, version=here.version)
        except Exception as error:
            verdict = faulty(peer, error)
            outcome: Outcome = "wrong" if verdict.outcome == "fail" else "skip"
            return replace(
                found, outcome=outcome, reason=verdict.reason, cause=verdict.cause, fault=True
            )
        return found

    def _peer_call(self, job: Job, call: PeerCall) -> AbstractContextManager[Call]:
        problem = call.problem
        data = np.zeros(problem.elements, problem.reduction.dtype.storage)
        if job.alone is not None:
            return own_call(call.peer, problem, data, job.folder)
        timed = self._backend(job).timed()
        self._beat()
        assert timed is not None  # whoever asks for a library has seen to that
        return peer_call(timed, call.peer, problem, data, job.folder)

    def _examined(self, job: Job, made: Call) -> Found:
        return Examination(made, job.call.problem, job.limit_s, self._beat).found()
