"""Reveals calls in worker processes, which may crash or hang without taking the run with them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from cudareduce.backend import Backend
from cudareduce.backends import BackendSpec, choose_backend, open_backend
from cudareduce.emulator.toolchain import resolve_locations
from cudareduce.errors import BuildError, EnvironmentProblem, KernelFault, OutOfMemory, UsageError
from cudareduce.launch.case import build
from cudareduce.libraries.calls import Reporter, Runtimes, error_verdict, import_failure
from cudareduce.libraries.worker import import_libraries
from cudareduce.progress import phase, say
from cudareduce.reveal.calls import (
    Chosen,
    Job,
    KernelCall,
    PeerCall,
    Prepare,
    Refused,
    Shapes,
    calls,
)
from cudareduce.reveal.orders import Order, order_of, refused
from cudareduce.reveal.probing import (
    Call,
    Examination,
    Outcome,
    ProbeResult,
    kernel_call,
    own_call,
    peer_call,
)
from cudareduce.signals import held
from cudareduce.temporary import temporary_folder
from cudareduce.workers import (
    Exited,
    Limit,
    Message,
    Parent,
    Raised,
    Returned,
    TimedOut,
    WorkerPool,
    events,
)


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

    def reveal(self, job: Job) -> ProbeResult:
        """The summation order of one call. Raises EnvironmentProblem."""
        return self._peer(job, job.call) if isinstance(job.call, PeerCall) else self._kernel(job)

    def _backend(self, job: Job | Prepare) -> Backend:
        if self._opened is None:
            self._opened = open_backend(job.spec, catch_faults=True)
        return self._opened

    def _kernel(self, job: Job) -> ProbeResult:
        assert isinstance(job.call, KernelCall)
        call, backend = job.call, self._backend(job)
        nothing = ProbeResult(outcome="skip")
        try:
            with kernel_call(backend, call.case, call.plan) as opened:
                self._parent.send(Phase("runs"))
                opened.answer()
                return self._examined(job, opened)
        except KernelFault as fault:
            return replace(nothing, outcome="wrong", reason=str(fault), fault=True)
        except BuildError as error:
            return replace(nothing, reason=f"does not compile: {error}", cause="unbuilt")
        except (OutOfMemory, MemoryError) as error:
            return replace(nothing, reason=str(error) or "out of host memory", cause="machine")

    def _peer(self, job: Job, call: PeerCall) -> ProbeResult:
        peer, problem = call.peer, call.problem
        self._parent.send(Phase("imports"))
        here = import_libraries([peer], problem, Reporter(self._parent), self._runtimes)[peer.name]
        found = ProbeResult(outcome="skip", called=here.called)
        if here.verdict.outcome != "pass":
            return replace(found, reason=here.verdict.reason, cause=here.verdict.cause)
        self._parent.send(Phase("prepares"))
        try:
            with self._peer_call(job, call) as opened:
                opened.answer()  # a library may compile at its first call
                self._parent.send(Phase("runs"))
                found = replace(
                    self._examined(job, opened), called=here.called, version=here.version
                )
        except Exception as error:
            verdict = error_verdict(peer, error)
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

    def _examined(self, job: Job, opened: Call) -> ProbeResult:
        return Examination(opened, job.call.problem, job.limit_s, self._parent.beat).found()


#: Seconds without a heartbeat: while something is compiled, and beyond a limit in seconds.
_COMPILES_S, _GRACE_S = 300.0, 5.0
_NO_ANSWER = "its process sent an invalid message: the call wrote to a foreign file, or crashed"


class RevealWorkers:
    """Reveals calls in worker processes: one for all, and one for each library that needs its
    own."""

    def __init__(self, state: type[Revealer] = Revealer) -> None:
        self._state, self._pool = state, WorkerPool(state, fresh=True)

    def __enter__(self) -> RevealWorkers:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.close()

    def prepare(self, spec: BackendSpec, calls: Sequence[KernelCall]) -> None:
        """Compile what calls launch, as far as it compiles. A crash shows again when its call is
        revealed. Raises EnvironmentProblem."""
        if not calls:
            return
        job, limit = Prepare(spec, tuple(calls)), Limit(_COMPILES_S)
        event = self._pool.worker().call(self._state.prepare, job, limit)
        if isinstance(event, Raised):
            raise event.error

    def found(self, job: Job) -> ProbeResult:
        """The summation order of one call. A crash or a hang is the call's own fault, but a library
        without a first result in time may be compiling. Raises EnvironmentProblem."""
        worker = self._pool.worker(job.alone)
        worker.submit(self._state.reveal, job, Limit(_COMPILES_S))
        phase = Phase("prepares")
        while True:
            for _, event in events([worker]):
                match event:
                    case Returned(found):
                        assert isinstance(found, ProbeResult)
                        if found.fault:
                            worker.end()
                        return found
                    case Raised(error):
                        raise error
                    case Exited():
                        return _crashed(job, phase, event)
                    case TimedOut(limit):
                        return _timed_out(job, phase, limit)
                    case Message(Phase() as phase):
                        limit_s = job.limit_s if phase.name == "runs" else job.first_s
                        worker.set_limit(Limit(limit_s + _GRACE_S))


def _crashed(job: Job, phase: Phase, event: Exited) -> ProbeResult:
    """What a crash means: a library that cannot be imported has no result, so none that is
    wrong."""
    last_line = f" ({resolve_locations(event.last_line)})" if event.last_line else ""
    how = _NO_ANSWER if event.code is None else event.how + last_line
    if phase.name == "imports" and isinstance(job.call, PeerCall):
        verdict = import_failure(job.call.peer, how)
        return ProbeResult(outcome="skip", reason=verdict.reason, cause=verdict.cause)
    return ProbeResult(outcome="wrong", reason=how)


def _timed_out(job: Job, phase: Phase, limit: Limit) -> ProbeResult:
    if limit.seconds == _COMPILES_S:
        reason = f"no result after {_COMPILES_S:.4g} s of compilation"
        return ProbeResult(outcome="wrong", reason=reason)
    first = phase.name != "runs"
    what = "no first result" if first else "no result"
    limit_s = job.first_s if first else job.limit_s
    reason = (
        f"{what} within {limit_s:.4g} s, nor in {_GRACE_S:.4g} more: it hangs, or needs a longer "
        "--time-limit"
    )
    if first:
        return ProbeResult(outcome="skip", reason=reason, cause="time")
    return ProbeResult(outcome="wrong", reason=reason)


#: Default seconds for the probes of one call, and for a library up to its first result (it may
#: compile).
_PROBES_S, _FIRST_S = 60.0, 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Where calls run. `time_limit` is the seconds for the probes of one call, and for a library up
    to its first result; None is the default of each."""

    backend: str = "auto"
    device: int = 0
    no_cache: bool = False
    quiet: bool = False
    time_limit: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RevealResult:
    """Summation orders on a device; `interrupted` by Ctrl-C before all calls were tried."""

    device: str
    orders: tuple[Order, ...]
    interrupted: bool = False

    def require_any(self) -> None:
        """Raise EnvironmentProblem or UsageError if no call could be tried."""
        causes = {order.cause for order in self.orders if order.outcome == "skip"}
        if self.interrupted or "time" in causes or any(o.outcome != "skip" for o in self.orders):
            return
        first = {order.reason: order.kernel for order in reversed(self.orders)}
        reasons = [f"{first[why]} {why}" for why in reversed(first)]
        error = EnvironmentProblem if "machine" in causes else UsageError
        raise error(f"nothing was revealed: {'; '.join(reasons)}")


def found(wanted: Sequence[tuple[Chosen, Shapes]], where: Where) -> RevealResult:
    """Reveal the order of every call. Raises EnvironmentProblem."""
    spec, remarks = choose_backend(where.backend, where.device, not where.no_cache)
    for remark in remarks:
        say(remark, where.quiet)
    with ExitStack() as stack:
        with held():
            folder = stack.enter_context(temporary_folder())
        spec = spec.with_cache(Path(folder))
        with open_backend(spec) as backend:
            device, limits, lacks = backend.info().name, backend.limits(), backend.traits.lacks
        requested = [call for what, shapes in wanted
                     for call in calls(what, shapes, limits, lacks, gpu=spec.timed)]  # fmt: skip
        limit_s, first_s = where.time_limit or _PROBES_S, where.time_limit or _FIRST_S
        compiled = str(spec.cache or folder)
        orders: list[Order] = []
        workers = stack.enter_context(RevealWorkers())
        progress = stack.enter_context(phase("revealing", len(requested), where.quiet))
        try:
            workers.prepare(spec, [call for call in requested if isinstance(call, KernelCall)])
            for call in requested:
                progress.now(call.name)
                if isinstance(call, Refused):
                    orders.append(refused(call))
                else:
                    job = Job(spec, call, limit_s, first_s, compiled)
                    orders.append(order_of(call, workers.found(job)))
                progress.step()
        except KeyboardInterrupt:
            return RevealResult(device=device, orders=tuple(orders), interrupted=True)
    return RevealResult(device=device, orders=tuple(orders))
