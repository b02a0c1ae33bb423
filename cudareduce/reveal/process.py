"""Calls in worker processes, which may crash or hang without taking the run with them."""

from __future__ import annotations

from collections.abc import Sequence

from cudareduce.backends import BackendSpec
from cudareduce.emulator.toolchain import resolve_locations
from cudareduce.peers.faults import not_imported
from cudareduce.reveal.child import Phase, Revealer
from cudareduce.reveal.found import Found
from cudareduce.reveal.job import Job, KernelCall, PeerCall, Prepare
from cudareduce.workers import (
    Exited,
    Limit,
    Message,
    Raised,
    Returned,
    TimedOut,
    WorkerPool,
    events,
)

#: Seconds without a heartbeat: while something is compiled, and beyond a limit in seconds.
_COMPILES_S, _GRACE_S = 300.0, 5.0
_NO_ANSWER = "what came from its process is no answer: it writes to what it did not open, or died"


class Processes:
    """Reveals calls in worker processes: one for all, and one for each library that needs its
    own."""

    def __init__(self, state: type[Revealer] = Revealer) -> None:
        self._state, self._pool = state, WorkerPool(state, fresh=True)

    def __enter__(self) -> Processes:
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

    def found(self, job: Job) -> Found:
        """The summation order of one call. A crash or a hang is the call's own fault, but a library
        without a first result in time may be compiling. Raises EnvironmentProblem."""
        worker = self._pool.worker(job.alone)
        worker.submit(self._state.reveal, job, Limit(_COMPILES_S))
        phase = Phase("prepares")
        while True:
            for _, event in events([worker]):
                match event:
                    case Returned(found):
                        assert isinstance(found, Found)
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


def _crashed(job: Job, phase: Phase, event: Exited) -> Found:
    """What a crash means: a library that cannot be imported has no result, so none that is
    wrong."""
    last_line = f" ({resolve_locations(event.last_line)})" if event.last_line else ""
    how = _NO_ANSWER if event.code is None else event.how + last_line
    if phase.name == "imports" and isinstance(job.call, PeerCall):
        verdict = not_imported(job.call.peer, how)
        return Found(outcome="skip", reason=verdict.reason, cause=verdict.cause)
    return Found(outcome="wrong", reason=how)


def _timed_out(job: Job, phase: Phase, limit: Limit) -> Found:
    if limit.seconds == _COMPILES_S:
        reason = f"no answer after {_COMPILES_S:.4g} s, as it was compiled"
        return Found(outcome="wrong", reason=reason)
    first = phase.name != "runs"
    what = "no first answer" if first else "no answer"
    limit_s = job.first_s if first else job.limit_s
    reason = (
        f"{what} within {limit_s:.4g} s, nor in {_GRACE_S:.4g} more: it hangs, or needs a longer "
        "--time-limit"
    )
    if first:
        return Found(outcome="skip", reason=reason, cause="time")
    return Found(outcome="wrong", reason=reason)
