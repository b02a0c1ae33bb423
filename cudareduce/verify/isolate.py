"""Verification in a child process, which may crash or hang without taking the run with it.

On the CPU every kernel is verified so, since a fault is the process's own. On the GPU a user's own
file is, since a fault poisons the CUDA context of the process that caused it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

from cudareduce.backend import Backend, BuildError
from cudareduce.backends import BackendSpec, open_backend
from cudareduce.emulator.toolchain import resolve_locations
from cudareduce.errors import CudareduceError
from cudareduce.launch.case import Prepared, Shape, build
from cudareduce.verify.verdict import RIGHT, Verdict, worse
from cudareduce.verify.verify import verify

#: Seconds that a killed child is waited for before it is left to the operating system.
_KILL_WAIT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Verify one case on shapes that it takes, in order; `prepared` comes without programs, which
    the child builds for itself.

    `thorough` tries all patterns and schedules, not the decisive one alone; `only` is the one
    pattern to verify with.
    """

    spec: BackendSpec
    prepared: Prepared
    shapes: tuple[Shape, ...]
    seed: int = 0
    thorough: bool = True
    only: str | None = None


class Isolation:
    """A child process that does jobs one after the other and is replaced when it dies."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._process: multiprocessing.process.BaseProcess | None = None
        self._log: Path | None = None

    def verify(self, job: Job, limit_s: float) -> Verdict:
        """The verdict of a job; a crash of the child, and no answer within `limit_s` seconds, is a
        failure. Raises the CudareduceError that the child sends: BuildError, OutOfMemory."""
        if self._process is None:
            self._start()
        assert self._process is not None
        try:
            self._pipe.send(job)
            if not self._pipe.poll(limit_s):
                self.close()
                return Verdict(
                    "fail", f"no answer after {limit_s:g} s: it hangs, or --time-limit is too short"
                )
            answer = self._pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._process.join()
            reason = self._last_line(self._process.exitcode)
            self.close()
            return Verdict("fail", reason)
        if isinstance(answer, CudareduceError):
            raise answer
        assert isinstance(answer, Verdict)
        return answer

    def _start(self) -> None:
        self._pipe, theirs = self._context.Pipe()
        handle, name = tempfile.mkstemp(prefix="cudareduce-", suffix=".log")
        os.close(handle)
        self._log = Path(name)
        self._process = self._context.Process(target=_serve, args=(theirs, name), daemon=True)
        self._process.start()
        theirs.close()

    def close(self) -> None:
        """End the child, whatever it is doing."""
        if self._process is not None:
            self._process.kill()
            self._process.join(_KILL_WAIT_S)  # a driver may take its time to end a kernel
            self._pipe.close()
        self._process = None
        if self._log is not None:
            self._log.unlink(missing_ok=True)
        self._log = None

    def _last_line(self, code: int | None) -> str:
        """What the child said last on standard error, else how it ended."""
        lines = self._log.read_text(errors="replace").splitlines() if self._log else []
        if lines:
            return resolve_locations(lines[-1])
        if code is not None and code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        return f"its process ended with code {code}"


def _serve(pipe: Connection, log: str) -> None:
    """The child: jobs until the pipe closes; the last line of its standard error is kept."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 2)
    open_specs: dict[BackendSpec, Backend] = {}
    while True:
        try:
            job: Job = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(_verify(job, open_specs))
        except CudareduceError as error:
            pipe.send(error)
        except MemoryError:
            pipe.send(Verdict("skip", "out of host memory"))


def _verify(job: Job, backends: dict[BackendSpec, Backend]) -> Verdict:
    if job.spec not in backends:
        backends[job.spec] = open_backend(job.spec, catch_faults=True)
    return verify_job(job, backends[job.spec])


def verify_job(job: Job, backend: Backend) -> Verdict:
    """The verdict of a job, in this process. Raises BuildError and OutOfMemory."""
    case = job.prepared.case
    built = build(backend, {case: [job.prepared.plans[shape] for shape in job.shapes]})[case]
    if isinstance(built, BuildError):
        raise built
    ready = replace(job.prepared, programs=built)
    verdict = RIGHT
    for shape in job.shapes:
        new = verify(
            backend, [ready], shape, seed=job.seed, thorough=job.thorough, only=job.only
        )[case]  # fmt: skip
        verdict = worse(verdict, new)
        if verdict.outcome == "fail":
            break
    return verdict
