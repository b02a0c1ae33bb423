"""Calls in child processes, which may crash or hang without taking the run with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

from cudareduce.backends import BackendSpec
from cudareduce.emulator.toolchain import resolve_locations
from cudareduce.errors import CudareduceError
from cudareduce.reveal.child import RUNS, serve
from cudareduce.reveal.found import Found
from cudareduce.reveal.job import Job, KernelCall, Prepare
from cudareduce.signals import held
from cudareduce.verify.children import Spawned

#: What a process runs; tests put in what has no GPU.
Serve = Callable[[Connection, str], None]
#: Seconds without a sign of life: while something may be imported or compiled, and, above the time
#: limit, while probes are made.
_PREPARES_S, _GRACE_S = 300.0, 5.0


class _LostError(Exception):
    """The process has ended, or hangs."""


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
                self._child(None).asked(Prepare(spec, tuple(calls)), 0)
        except _LostError:  # what it died of will be found again
            self._end(None)

    def found(self, job: Job) -> Found:
        """What comes of a job; a crash and a hang are the call's own fault. Raises
        EnvironmentProblem."""
        alone = job.alone
        try:
            found = self._child(alone).asked(job, job.limit_s)
        except _LostError as error:
            self._end(alone)
            return Found(outcome="wrong", reason=str(error))
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

    def asked(self, job: Job | Prepare, limit_s: float) -> Found | None:
        """What a job gives. Raises _LostError, and the CudareduceError that the child sends."""
        with suppress(BrokenPipeError, ConnectionResetError):  # where answers are read it will show
            self._spawned.pipe.send(job)
        silent_s = _PREPARES_S
        while True:
            if not self._spawned.pipe.poll(silent_s):
                why = f"no answer after {silent_s:.4g} s: it hangs, or --time-limit is too short"
                raise _LostError(why)
            try:
                said = self._spawned.pipe.recv()
            except (EOFError, OSError):
                raise _LostError(self._how_it_ended()) from None
            if said == RUNS:
                silent_s = limit_s + _GRACE_S
            elif isinstance(said, CudareduceError):
                raise said
            elif said is None or isinstance(said, Found):
                return said

    def _how_it_ended(self) -> str:
        how, last = self._spawned.how_it_ended()
        return f"{how} ({resolve_locations(last)})" if last else how

    def end(self) -> None:
        """End it with all that it has started."""
        self._spawned.end()
