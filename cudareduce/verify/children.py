"""Child processes that do not outlive the run: how one begins, and how it is ended."""

from __future__ import annotations

import ctypes
import os
import pickle
import select
import signal
import socket
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context, resource_tracker, set_start_method
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from cudareduce.errors import CudareduceError
from cudareduce.signals import ignore_endings

#: From linux/prctl.h: the signal that a process gets when what it was forked from ends.
_PR_SET_PDEATHSIG = 1
#: The variable that all have in their environment which a child has started, and which outlive it
#: in sessions of their own.
_MARK = "CUDAREDUCE_CHILD"
_END_WAIT_S = 2.0
#: Seconds for the rest of a message once it has begun: what a library writes there has no end.
_REST_S = 10
#: Bytes of a message: what is longer is none, but was written by something else.
_LONGEST = 2**26
#: Bytes in which the last line is looked for.
_LAST_BYTES = 2**16


def follow_parent() -> None:
    """In a child: leave the end to the parent, and end when that does; be a group of its own, so
    that compilers end with it."""
    ignore_endings()
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_with(pipe: Connection) -> None:
    """In a child: end, with all that it has started, once nobody holds the other end of its pipe,
    whatever it is doing. What it was forked from may outlive the run."""

    def wait() -> None:
        gone = select.poll()
        gone.register(pipe.fileno(), 0)  # which leaves nothing but the end to be told
        gone.poll()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def end_group(process: BaseProcess, wait_s: float) -> None:
    """End a child with all that it has started, and wait so long for it."""
    if process.pid is not None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # gone, or not yet a group of its own
            process.kill()
    process.join(wait_s)


@contextmanager
def _marked(mark: str) -> Iterator[None]:
    """What is started meanwhile, and what that starts, bears this mark."""
    os.environ[_MARK] = mark
    try:
        yield
    finally:
        del os.environ[_MARK]


def _end_marked(mark: str) -> None:
    """End all that bear it, as proc(5) shows."""
    sought = f"{_MARK}={mark}".encode()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # another user's, or ended meanwhile
            if sought in environment.read_bytes().split(b"\0"):
                os.kill(int(environment.parent.name), signal.SIGKILL)


def begin_spawned(pipe: Connection, log: str) -> None:
    """In a child that libraries are loaded into: what it says goes to a file, and the pipe is its
    alone, since a process that a library forks would keep it open, or answer, too."""
    follow_parent()
    os.register_at_fork(after_in_child=pipe.close)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    # A spawned process keeps the names of its semaphores, and whoever ends it hears of those that
    # libraries have left; those of this way have none.
    set_start_method("fork", force=True)


def said_bytes() -> int:
    """In such a child: how much it has said so far; nothing, where a library has closed that."""
    with suppress(AttributeError, OSError, ValueError):
        sys.stdout.flush()
        ctypes.CDLL(None).fflush(None)
        return os.fstat(1).st_size
    return 0


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
        resource_tracker.ensure_running()  # which outlives the child, so it bears no mark
        with _marked(self._log):
            self._process.start()
        theirs.close()
        self.garbles = False  # whether it was ended for that
        with socket.socket(fileno=os.dup(self.pipe.fileno())) as ours:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _REST_S, 0))

    def heard(self) -> Any:
        """What it says next. Raises EOFError where it has ended, and where it says what is no
        message and is ended for it: a library may write to files that it has not opened."""
        try:
            return pickle.loads(self.pipe.recv_bytes(_LONGEST))
        except (EOFError, ConnectionError):
            raise EOFError from None
        except Exception:
            self.garbles = True
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
        if self.garbles or code is None:
            return "answers nonsense: it writes to files that it has not opened", ""
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
        return f"ends its process {how}", last

    def end(self) -> None:
        """End it with all that it has started, in sessions of their own too."""
        end_group(self._process, _END_WAIT_S)
        _end_marked(self._log)
        self.pipe.close()
        Path(self._log).unlink(missing_ok=True)
