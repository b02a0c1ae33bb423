"""Child processes that do not outlive the run: how one begins, and how it is ended."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context, set_start_method
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from cudareduce.errors import CudareduceError
from cudareduce.signals import ignore_endings

#: From linux/prctl.h: the signal that a process gets when what it was forked from ends, and that
#: what its children leave behind becomes its own.
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_END_WAIT_S = 2.0
#: Seconds for the rest of a message once it has begun: what a library writes there has no end.
_REST_S = 10
#: Bytes in which the last line is looked for.
_LAST_BYTES = 2**16


def follow_parent() -> None:
    """In a child: leave the end to the parent, and end when that does; be a group of its own, so
    that compilers end with it."""
    ignore_endings()
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_group(process: BaseProcess, wait_s: float) -> None:
    """End a child with all that it has started, in sessions of their own too, and wait so long for
    it."""
    if process.pid is not None:
        started = _descendants(process.pid)
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # gone, or not yet a group of its own
            process.kill()
        for pid in started:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    process.join(wait_s)


def _descendants(pid: int) -> list[int]:
    """What a process has started, and what that has, as proc(5) lists it."""
    found: list[int] = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # ended meanwhile
            found += map(int, listed.read_text(encoding="ascii").split())
    return [*found, *(other for child in found for other in _descendants(child))]


def begin_spawned(log: str) -> None:
    """In a child that libraries are loaded into: what it says goes to a file."""
    follow_parent()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    # A spawned process keeps the names of its semaphores, and whoever ends it hears of those that
    # libraries have left; those of this way have none.
    set_start_method("fork", force=True)


def said_bytes() -> int:
    """In such a child: how much it has said so far."""
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)
    return os.fstat(1).st_size


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
        self._garbles = False
        with socket.socket(fileno=os.dup(self.pipe.fileno())) as ours:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _REST_S, 0))

    def heard(self) -> Any:
        """What it says next. Raises EOFError where it has ended, and where it says what is no
        message and is ended for it: a library may write to files that it has not opened."""
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionError):
            raise EOFError from None
        except Exception:
            self._garbles = True
            end_group(self._process, _END_WAIT_S)
            raise EOFError from None

    def how_it_ended(self, since: int = 0) -> tuple[str, str]:
        """In words, and the last line that it said after so many bytes, empty without one."""
        self._process.join(_END_WAIT_S)
        code = self._process.exitcode
        with Path(self._log).open("rb") as log:
            log.seek(max(since, log.seek(0, os.SEEK_END) - _LAST_BYTES))
            lines = log.read().decode(errors="replace").strip().splitlines()
        last = lines[-1].strip() if lines else ""
        if self._garbles or code is None:
            return "answers nonsense: it writes to files that it has not opened", ""
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
        return f"ends its process {how}", last

    def end(self) -> None:
        """End it with all that it has started."""
        end_group(self._process, _END_WAIT_S)
        self.pipe.close()
        Path(self._log).unlink(missing_ok=True)
