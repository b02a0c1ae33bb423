"""Reveal summation orders in worker processes, so that a crash or hang does not end the run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from cudareduce.analysis.reveal.calls import (
    Job,
    KernelTarget,
    LibraryTarget,
    Prepare,
    Refusal,
    SelectedTargets,
    Shapes,
    calls,
)
from cudareduce.analysis.reveal.orders import Order, order_of, refusal_row
from cudareduce.analysis.reveal.probing import (
    Call,
    Examination,
    Outcome,
    ProbeResult,
    kernel_call,
    library_call,
    own_process_call,
)
from cudareduce.backends.emulator.toolchain import resolve_locations
from cudareduce.backends.protocol import Backend
from cudareduce.backends.selection import BackendSpec, choose_backend, open_backend
from cudareduce.errors import BuildError, EnvironmentProblem, KernelFault, OutOfMemory, UsageError
from cudareduce.launch.case import build
from cudareduce.libraries.calls import Reporter, Runtimes, error_verdict, import_failure
from cudareduce.libraries.worker import import_libraries
from cudareduce.progress import phase, say
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
    """Message: the worker has begun to import a library, to prepare its call, or to run probes."""

    name: Literal["imports", "prepares", "runs"]


class Revealer:
    """Runs jobs in a worker process. Backend and loaded libraries stay open between jobs."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent
        self._opened: Backend | None = None
        self._runtimes = Runtimes()

    def prepare(self, job: Prepare) -> None:
        """Compile the kernels of several targets. Raises EnvironmentProblem."""
        backend = self._backend(job)
        build(backend, {call.case: [call.plan] for call in job.calls}, self._parent.beat)

    def reveal(self, job: Job) -> ProbeResult:
        """Find the summation order of one target. Raises EnvironmentProblem."""
        return (
            self._library(job, job.call)
            if isinstance(job.call, LibraryTarget)
            else self._kernel(job)
        )

    def _backend(self, job: Job | Prepare) -> Backend:
        if self._opened is None:
            self._opened = open_backend(job.spec, catch_faults=True)
        return self._opened

    def _kernel(self, job: Job) -> ProbeResult:
        assert isinstance(job.call, KernelTarget)
        call, backend = job.call, self._backend(job)
        nothing = ProbeResult(outcome="skip")
        try:
            with kernel_call(backend, call.case, call.plan) as opened:
                self._parent.send(Phase("runs"))
                opened.run()
                return self._examine(job, opened)
        except KernelFault as fault:
            return replace(nothing, outcome="wrong", reason=str(fault), fault=True)
        except BuildError as error:
            return replace(nothing, reason=f"does not compile: {error}", cause="unbuilt")
        except (OutOfMemory, MemoryError) as error:
            return replace(nothing, reason=str(error) or "out of host memory", cause="machine")

    def _library(self, job: Job, call: LibraryTarget) -> ProbeResult:
        library, problem = call.library, call.problem
        self._parent.send(Phase("imports"))
        imported = import_libraries(
            [library], problem, Reporter(self._parent), self._runtimes
        )[library.name]  # fmt: skip
        found = ProbeResult(outcome="skip", called=imported.called)
        if imported.verdict.outcome != "pass":
            return replace(found, reason=imported.verdict.reason, cause=imported.verdict.cause)
        self._parent.send(Phase("prepares"))
        try:
            with self._library_call(job, call) as opened:
                opened.run()  # a library may compile at its first call
                self._parent.send(Phase("runs"))
                found = replace(
                    self._examine(job, opened), called=imported.called, version=imported.version
                )
        except Exception as error:
            verdict = error_verdict(library, error)
            outcome: Outcome = "wrong" if verdict.outcome == "fail" else "skip"
            return replace(
                found, outcome=outcome, reason=verdict.reason, cause=verdict.cause, fault=True
            )
        return found

    def _library_call(self, job: Job, call: LibraryTarget) -> AbstractContextManager[Call]:
        problem = call.problem
        data = np.zeros(problem.elements, problem.reduction.dtype.storage)
        if job.alone is not None:
            return own_process_call(call.library, problem, data, job.folder)
        timed = self._backend(job).timed()
        self._parent.beat()
        assert timed is not None  # without a GPU libraries are refused
        return library_call(timed, call.library, problem, data, job.folder)

    def _examine(self, job: Job, opened: Call) -> ProbeResult:
        return Examination(opened, job.call.problem, job.limit_s, self._parent.beat).run()


#: Limits in s without a heartbeat: during compilation, and in addition to a job's own limits.
_COMPILES_S, _GRACE_S = 300.0, 5.0
_NO_ANSWER = (
    "its process sent an invalid message: the call wrote to a file that it did not open, or crashed"
)


class RevealWorkers:
    """Worker processes: one shared by most targets, and one for each library that needs its own."""

    def __init__(self, state: type[Revealer] = Revealer) -> None:
        self._state, self._pool = state, WorkerPool(state, fresh=True)

    def __enter__(self) -> RevealWorkers:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.close()

    def prepare(self, spec: BackendSpec, calls: Sequence[KernelTarget]) -> None:
        """Compile the kernels of all targets. Failures are ignored, since they recur when a target
        is revealed. Raises EnvironmentProblem."""
        if not calls:
            return
        job, limit = Prepare(spec, tuple(calls)), Limit(_COMPILES_S)
        event = self._pool.worker().call(self._state.prepare, job, limit)
        if isinstance(event, Raised):
            raise event.error

    def reveal(self, job: Job) -> ProbeResult:
        """Find the summation order of one target. A crash or a hang is `wrong`; a library without a
        first result in time is skipped, since it may be compiling. Raises EnvironmentProblem."""
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
    """The result after a crash: `wrong`, or `skip` if a library crashed during its import."""
    last_line = f" ({resolve_locations(event.last_line)})" if event.last_line else ""
    how = _NO_ANSWER if event.code is None else event.how + last_line
    if phase.name == "imports" and isinstance(job.call, LibraryTarget):
        verdict = import_failure(job.call.library, how)
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


#: Default limits in s: for the probes of a target, and for a library's first result (it may
#: compile).
_PROBES_S, _FIRST_S = 60.0, 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Backend and limits. `time_limit` in s applies to the probes of one target, and to a library's
    first result; None is the default of each."""

    backend: str = "auto"
    device: int = 0
    no_cache: bool = False
    quiet: bool = False
    time_limit: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RevealResult:
    """Summation orders on a device. `interrupted`: Ctrl-C came before all targets were tried."""

    device: str
    orders: tuple[Order, ...]
    interrupted: bool = False

    def require_any(self) -> None:
        """Raise EnvironmentProblem or UsageError if no target could be tried."""
        causes = {order.cause for order in self.orders if order.outcome == "skip"}
        if self.interrupted or "time" in causes or any(o.outcome != "skip" for o in self.orders):
            return
        first = {order.reason: order.kernel for order in reversed(self.orders)}
        reasons = [f"{first[why]} {why}" for why in reversed(first)]
        error = EnvironmentProblem if "machine" in causes else UsageError
        raise error(f"nothing was revealed: {'; '.join(reasons)}")


def reveal_all(
    targets: Sequence[tuple[SelectedTargets, Shapes]], where: RunOptions
) -> RevealResult:
    """Find the summation order of every target. Raises EnvironmentProblem."""
    spec, remarks = choose_backend(where.backend, where.device, not where.no_cache)
    for remark in remarks:
        say(remark, where.quiet)
    with ExitStack() as stack:
        with held():
            folder = stack.enter_context(temporary_folder())
        spec = spec.with_cache(Path(folder))
        with open_backend(spec) as backend:
            device, limits, lacks = backend.info().name, backend.limits(), backend.traits.lacks
        requested = [call for what, shapes in targets
                     for call in calls(what, shapes, limits, lacks, gpu=spec.timed)]  # fmt: skip
        limit_s, first_s = where.time_limit or _PROBES_S, where.time_limit or _FIRST_S
        compiled = str(spec.cache or folder)
        orders: list[Order] = []
        workers = stack.enter_context(RevealWorkers())
        progress = stack.enter_context(phase("revealing", len(requested), where.quiet))
        try:
            workers.prepare(spec, [call for call in requested if isinstance(call, KernelTarget)])
            for call in requested:
                progress.now(call.name)
                if isinstance(call, Refusal):
                    orders.append(refusal_row(call))
                else:
                    job = Job(spec, call, limit_s, first_s, compiled)
                    orders.append(order_of(call, workers.reveal(job)))
                progress.step()
        except KeyboardInterrupt:
            return RevealResult(device=device, orders=tuple(orders), interrupted=True)
    return RevealResult(device=device, orders=tuple(orders))
