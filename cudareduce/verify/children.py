"""Child processes that do not outlive the run: how one begins, and how it is ended."""

from __future__ import annotations

import ctypes
import os
import signal
import tempfile
from collections.abc import Callable
from multiprocessing import get_context, set_start_method
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from cudareduce.errors import CudareduceError
from cudareduce.signals import ignore_endings

#: From linux/prctl.h: the signal that a process gets when what it was forked from ends.
_PR_SET_PDEATHSIG = 1
_END_WAIT_S = 2.0


def follow_parent() -> None:
    """In a child: leave the end to the parent, and end when that does; be a group of its own, so
    that compilers end with it."""
    ignore_endings()
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_group(process: BaseProcess, wait_s: float) -> None:
    """End a child with all that it has started, and wait so long for it."""
    if process.pid is not None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # gone, or not yet a group of its own
            process.kill()
    process.join(wait_s)


def begin_spawned(log: str) -> None:
    """In a child that libraries are loaded into: what it says goes to a file."""
    follow_parent()
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    # A spawned process keeps the names of its semaphores, and whoever ends it hears of those that
    # libraries have left; those of this way have none.
    set_start_method("fork", force=True)


def answer_jobs(pipe: Connection, done: Callable[[Any], object], *sent: type[Exception]) -> None:
    """Do jobs until the pipe closes. Errors of the package, and those of the types `sent`, are
    answers too."""
    answers: tuple[type[Exception], ...] = (CudareduceError, *sent)
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(done(job))
        except answers as error:
            pipe.send(error)
        except Exception as error:
            pipe.send(CudareduceError(f"internal error: {type(error).__name__}: {error}"))


class Spawned:
    """A process begun anew, at the other end of a pipe; `target` is given its end of that, `args`,
    and the file for what it says."""

    def __init__(self, target: Callable[..., None], *args: object) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        handle, self._log = tempfile.mkstemp(suffix=".log")
        os.close(handle)
        self._process = context.Process(target=target, args=(theirs, *args, self._log), daemon=True)
        self._process.start()
        theirs.close()

    def how_it_ended(self) -> tuple[str, str]:
        """In words, and the last line that it said, empty without one."""
        self._process.join(_END_WAIT_S)
        code = self._process.exitcode
        lines = Path(self._log).read_text(errors="replace").strip().splitlines()
        how = f"by {signal.Signals(-code).name}" if code and code < 0 else f"with code {code}"
        return f"ends its process {how}", lines[-1].strip() if lines else ""

    def end(self) -> None:
        """End it with all that it has started."""
        end_group(self._process, _END_WAIT_S)
        self.pipe.close()
        Path(self._log).unlink(missing_ok=True)
