"""Calls in child processes, which may crash or hang without taking the run with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

from cudareduce.backends import BackendSpec
from cudareduce.emulator.toolchain import resolve_locations
from cudareduce.errors import CudareduceError
from cudareduce.peers.faults import not_imported
from cudareduce.reveal.child import IMPORTS, PREPARES, RUNS, serve
from cudareduce.reveal.found import Found, Outcome
from cudareduce.reveal.job import Job, KernelCall, PeerCall, Prepare
from cudareduce.signals import held
from cudareduce.verify.children import Spawned
from cudareduce.verify.verdict import Cause

#: What a process runs; tests put in what has no GPU.
Serve = Callable[[Connection, str], None]
#: Seconds without a sign of life: while something is compiled, and beyond a limit in seconds.
_COMPILES_S, _GRACE_S = 300.0, 5.0
_NO_ANSWER = "what came from its process is no answer: it writes to what it did not open, or died"


class _LostError(Exception):
    """The process has ended, or hangs; with a `cause` it is not known to be wrong."""

    def __init__(self, reason: str, cause: Cause | None = None) -> None:
        super().__init__(reason)
        self.cause = cause


class Processes:
    """Child processes that reveal one call after the other, and are replaced when they die: one for
    all, and one for each library that wants it to itself."""

    def __init__(self, target: Serve = serve) -> None:
        self._target = target
        self._children: dict[str | None, _Child] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        for alone in list(self._children):
            self._end(alone)

    def _end(self, alone: str | None) -> None:
        self._children.pop(alone).end()

    def prepare(self, spec: BackendSpec, calls: Sequence[KernelCall]) -> None:
        """Compile what calls launch, as far as it compiles. Raises EnvironmentProblem."""
        try:
            if calls:
                self._child(None).asked(Prepare(spec, tuple(calls)))
        except _LostError:  # what it died of will be found again
            self._end(None)

    def found(self, job: Job) -> Found:
        """What comes of a job; a crash and a hang are the call's own fault, but a library that is
        slow to answer for the first time may be compiling. Raises EnvironmentProblem."""
        alone = job.alone
        try:
            found = self._child(alone).asked(job)
        except _LostError as error:
            self._end(alone)
            outcome: Outcome = "skip" if error.cause else "wrong"
            return Found(outcome=outcome, reason=str(error), cause=error.cause)
        assert found is not None
        if found.fault:
            self._end(alone)
        return found

    def _child(self, alone: str | None) -> _Child:
        if alone not in self._children:
            with held():
                self._children[alone] = _Child(self._target)
        return self._children[alone]


class _Child:
    """A process that does one job after the other."""

    def __init__(self, target: Serve) -> None:
        self._spawned = Spawned(target)

    def asked(self, job: Job | Prepare) -> Found | None:
        """What a job gives. Raises _LostError, and the CudareduceError that the child sends."""
        with suppress(BrokenPipeError, ConnectionResetError):  # where answers are read it will show
            self._spawned.pipe.send(job)
        silent_s = _COMPILES_S
        lost, at = _LostError(f"no answer after {silent_s:.4g} s, as it was compiled"), ""
        while True:
            if not self._spawned.pipe.poll(silent_s):
                raise lost
            try:
                said = self._spawned.heard()
            except EOFError:
                raise self._ended(job, importing=at == IMPORTS) from None
            if isinstance(job, Job) and said in (IMPORTS, PREPARES, RUNS):
                at, first = said, said != RUNS
                limit_s = job.first_s if first else job.limit_s
                silent_s, lost = limit_s + _GRACE_S, _silent(limit_s, first=first)
            elif isinstance(said, CudareduceError):
                raise said
            elif said is None or isinstance(said, Found):
                return said

    def _ended(self, job: Job | Prepare, *, importing: bool) -> _LostError:
        """How it ended; what ends in an import has no answer, and no wrong one."""
        how = self._how_it_ended()
        if importing and isinstance(job, Job) and isinstance(job.call, PeerCall):
            verdict = not_imported(job.call.peer, how)
            return _LostError(verdict.reason, verdict.cause)
        return _LostError(how)

    def _how_it_ended(self) -> str:
        if self._spawned.garbles:
            return _NO_ANSWER
        how, last = self._spawned.how_it_ended()
        return f"{how} ({resolve_locations(last)})" if last else how

    def end(self) -> None:
        """End it with all that it has started."""
        self._spawned.end()


def _silent(limit_s: float, *, first: bool) -> _LostError:
    what = "no first answer" if first else "no answer"
    why = "it hangs, or needs a longer --time-limit"
    return _LostError(
        f"{what} within {limit_s:.4g} s, nor in {_GRACE_S:.4g} more: {why}",
        "time" if first else None,
    )
