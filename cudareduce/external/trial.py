"""Run a recorded program on the emulator in a child process, which a fault may end."""

from __future__ import annotations

import faulthandler
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import numpy as np

from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.backends.emulator.toolchain import Toolchain, resolve_locations
from cudareduce.backends.protocol import Buffer, Source
from cudareduce.budget import Deadline
from cudareduce.catalog.program import Program, Run
from cudareduce.errors import BuildError, CudareduceError, Undecided
from cudareduce.launch.bound import Replay
from cudareduce.machine import cpu_count
from cudareduce.reduction.inputs import Array

#: Seconds that one run may take, also with detection of data races, and compiling before it.
_RUN_S, _WATCHED_RUN_S, _BUILD_S = 2.0, 12.0, 60.0
#: Parts that the time for several kernels is divided into.
_MOST_SHARES = 3
#: After so many runs without end no other of the file is tried.
_MOST_HUNG = 4
#: A time limit grows at most so many times on a machine with other work.
_MOST_CROWDED = 5.0


def budget(seconds: float) -> Deadline:
    """A deadline of `seconds`, extended if the machine is busy."""
    crowded = os.getloadavg()[0] / cpu_count()
    return Deadline(seconds * min(max(1.0, crowded), _MOST_CROWDED))


def next_deadline(deadline: Deadline, left: int) -> Deadline:
    """The deadline for the next of `left` kernels of a file: never less than a third of the
    remaining time, so that at least some of many kernels are decided."""
    return deadline.share(min(left, _MOST_SHARES))


def build_runtimes(cache: Path) -> None:
    """Compile the emulator with and without race detection, unless cached. Raises
    EnvironmentProblem."""
    for watched in (False, True):
        Toolchain(cache, watched).runtime()


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a run has no results: an invalid access, a barrier that not all threads reach, or no
    end."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Request:
    program: Program
    run: Run
    inputs: Mapping[str, Array]
    byte: int
    wanted: tuple[str, ...]


class Trials:
    """Runs the programs of one file on inputs. Compiled code is cached in folder `cache`. With
    `watched`, data races and reads of uninitialised shared memory are faults too."""

    def __init__(
        self, path: Path, cache: Path | None, deadline: Deadline, *, watched: bool = False
    ) -> None:
        self._path, self._cache, self._watched = path, cache, watched
        self._run_s = _WATCHED_RUN_S if watched else _RUN_S
        self.deadline = deadline
        self._hung = 0
        self._pid, self._pipe, self._log = 0, None, ""  # type: tuple[int, Connection | None, str]

    def run(
        self, program: Program, run: Run, inputs: Mapping[str, Array], *, byte: int = 0xFF,
        wanted: Sequence[str] = (),
    ) -> Mapping[str, bytes] | Fault:  # fmt: skip
        """The content of the `wanted` buffers (all if empty) after a run from memory filled with
        `byte`. Raises BuildError, EnvironmentProblem, and Undecided after the deadline."""
        if self.deadline.passed:
            raise Undecided(f"{self._path}: the time to identify it is over")
        if self._hung >= _MOST_HUNG:
            return Fault(f"no end after {self._run_s:g} s")
        if self._pipe is None:
            self._start()
        pipe = self._pipe
        assert pipe is not None
        try:
            alone = replace(program, runs=())
            pipe.send(_Request(alone, run, inputs, byte, tuple(wanted)))
            answer: Any = None
            for seconds in (_BUILD_S, self._run_s):
                if not pipe.poll(seconds):
                    self.close()
                    self._hung += 1
                    return Fault(f"no end after {seconds:g} s")
                answer = pipe.recv()
                if answer is not None:
                    break
        except (EOFError, ConnectionError):
            said = Path(self._log).read_text(errors="replace").strip().splitlines()
            self.close()
            return Fault(resolve_locations(said[-1]) if said else "its process was ended")
        if isinstance(answer, BaseException):
            if isinstance(answer, BuildError) or not isinstance(answer, CudareduceError):
                raise answer
            return Fault(str(answer))
        return answer  # type: ignore[no-any-return]

    def _start(self) -> None:
        handle, self._log = tempfile.mkstemp(suffix=".log")
        ours, theirs = Pipe()
        pid = os.fork()
        if pid == 0:
            ours.close()
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            _serve(theirs, self._path, self._cache, watched=self._watched)
        os.close(handle)
        theirs.close()
        self._pid, self._pipe = pid, ours

    def close(self) -> None:
        """End the child."""
        if self._pipe is not None:
            self._pipe.close()
            with suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
            Path(self._log).unlink(missing_ok=True)
            self._pipe = None

    def __enter__(self) -> Trials:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()


def _serve(pipe: Connection, path: Path, cache: Path | None, *, watched: bool) -> NoReturn:
    """The child process: one run per request, until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.disable()  # it would print a kernel's abort to the parent's standard error
    os.setpgid(0, 0)
    try:
        with CpuBackend(cache=cache, hazards=watched) as backend:
            backend.catch_faults()
            built: dict[Source, Any] = {}
            while True:
                try:
                    request: _Request = pipe.recv()
                except EOFError:
                    break
                try:
                    pipe.send(_done(backend, built, path, request, pipe))
                except CudareduceError as error:
                    pipe.send(error)
    except BaseException as error:
        with suppress(OSError, ValueError):
            pipe.send(error)
    os._exit(0)


def _done(
    backend: CpuBackend, built: dict[Source, Any], path: Path, request: _Request, pipe: Connection
) -> dict[str, bytes]:
    program, run = request.program, request.run
    variables = tuple(variable.name for variable in program.variables)
    source = Source(program.texts[run.source], path.stem, path, program.kernels, variables)
    if source not in built:
        built[source] = backend.build([source])[0]
    compiled = built[source]
    if isinstance(compiled, BuildError):
        raise compiled
    pipe.send(None)  # from now on time is the kernel's
    given: dict[str, Buffer] = {name: backend.upload(a) for name, a in request.inputs.items()}
    replay = Replay(backend, program, run, compiled, given)
    for buffer in replay.allocated.values():
        backend.poison(buffer, request.byte)
    replay.reset_variables()
    for launch in replay.launches:
        launch()
    names = request.wanted or tuple(replay.buffers)
    held = {
        name: np.asarray(
            backend.download(replay.buffers[name], "uint8", replay.buffers[name].nbytes)
        ).tobytes()
        for name in names
    }
    replay.reset_variables()
    backend.free(*replay.allocated.values(), *given.values())
    return held
