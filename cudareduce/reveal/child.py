"""Reveals calls in a worker process."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Literal

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
from cudareduce.workers import Parent


@dataclass(frozen=True, slots=True)
class Phase:
    """A job has begun to import a library, to prepare its call, or to run its probes."""

    name: Literal["imports", "prepares", "runs"]


class Revealer:
    """In a worker: does jobs, and keeps the backend and the libraries that are loaded."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent
        self._opened: Backend | None = None
        self._runtimes = Runtimes()

    def prepare(self, job: Prepare) -> None:
        """Compile what several calls launch. Raises EnvironmentProblem."""
        backend = self._backend(job)
        build(backend, {call.case: [call.plan] for call in job.calls}, self._parent.beat)

    def reveal(self, job: Job) -> Found:
        """The summation order of one call. Raises EnvironmentProblem."""
        return self._peer(job, job.call) if isinstance(job.call, PeerCall) else self._kernel(job)

    def _backend(self, job: Job | Prepare) -> Backend:
        if self._opened is None:
            self._opened = open_backend(job.spec, catch_faults=True)
        return self._opened

    def _kernel(self, job: Job) -> Found:
        assert isinstance(job.call, KernelCall)
        call, backend = job.call, self._backend(job)
        nothing = Found(outcome="skip")
        try:
            with kernel_call(backend, call.case, call.plan) as made:
                self._parent.send(Phase("runs"))
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
        self._parent.send(Phase("imports"))
        here = loaded([peer], problem, Teller(self._parent), self._runtimes)[peer.name]
        found = Found(outcome="skip", called=here.called)
        if here.verdict.outcome != "pass":
            return replace(found, reason=here.verdict.reason, cause=here.verdict.cause)
        self._parent.send(Phase("prepares"))
        try:
            with self._peer_call(job, call) as made:
                made.answer()  # a library may compile at its first call
                self._parent.send(Phase("runs"))
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
        self._parent.beat()
        assert timed is not None  # the command has checked that before it named a library
        return peer_call(timed, call.peer, problem, data, job.folder)

    def _examined(self, job: Job, made: Call) -> Found:
        return Examination(made, job.call.problem, job.limit_s, self._parent.beat).found()
