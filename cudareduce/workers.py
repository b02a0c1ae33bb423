"""The process pool: child processes that run submitted functions one at a time.

A worker may crash, hang or write over its own memory without harm to the parent. The parent submits
a plain function, then reads typed events: messages of the function, then what it returned or
raised, or that the worker exited or exceeded its limit. A worker is reused until it dies. No worker
outlives the run, nor does anything that a worker has started.

Imports little: the command line starts the fork server before it loads anything slow.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from multiprocessing import connection, forkserver, get_context, resource_tracker, set_start_method
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import IO, Any, Generic, Literal, TypeVar

from cudareduce.errors import CudareduceError, EnvironmentProblem
from cudareduce.signals import held, ignore_endings
from cudareduce.temporary import temporary_folder

#: Modules that the fork server loads once for all workers.
_PRELOADED = ["cudareduce.verify.isolation", "cudareduce.backends.emulator.cpu"]
#: prctl option: the signal that a process receives when its parent ends (linux/prctl.h).
_PR_SET_PDEATHSIG = 1
#: Environment variable by which processes are found that a worker has started in other sessions.
_MARK = "CUDAREDUCE_CHILD"
#: Seconds to wait for a killed worker: a driver may need some to end a kernel.
_KILL_WAIT_S = 10.0
#: Seconds for a worker whose pipe is closed to end, so that its exit code is known.
_EXIT_WAIT_S = 2.0
#: Seconds for the rest of a message that has begun, and its most bytes: a library may write to
#: files it has not opened, and what arrives then has neither an end nor a meaning.
_MESSAGE_S, _MESSAGE_BYTES = 10, 2**26
#: Bytes at the end of the log in which the last line is searched, and that are read of the output.
_LAST_BYTES = _OUTPUT_BYTES = 2**16
#: A process that has had less than this share of a processor for so many seconds waits for
#: something other than a processor.
_IDLE_SHARE, _IDLE_S = 0.01, 10.0
#: Least seconds between two checks of the processor time of one worker.
_CHECK_S = 1.0

NOT_STARTED = "a worker process does not start: see what ends it, and whether memory is left"

State = TypeVar("State")
Argument = TypeVar("Argument")


@dataclass(frozen=True, slots=True)
class Limit:
    """A time limit for a worker in seconds. On the "wall" clock it restarts with each message or
    heartbeat. The "cpu" clock counts the processor time of its threads since the limit was set,
    which does not depend on the load of the machine."""

    seconds: float
    clock: Literal["cpu", "wall"] = "wall"


@dataclass(frozen=True, slots=True)
class Message:
    """Event: the running function has sent a value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Returned:
    """Event: the function has returned; the worker is idle again."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The function has raised an expected error; any other is reported as an internal error. The
    worker is idle again."""

    error: CudareduceError


@dataclass(frozen=True, slots=True)
class Exited:
    """The worker ended. `code` is its exit code, -N for signal N, or None if it was killed because
    it sent bytes that are not a message. `last_line` is the last line printed after its last
    message; `started` is False if it ended before it could run a task."""

    code: int | None
    last_line: str = ""
    started: bool = True

    @property
    def how(self) -> str:
        """How the worker ended, as a text that follows the name of the code that it ran."""
        if self.code is None:
            return "sends invalid messages: it writes to a descriptor that it has not opened"
        if self.code < 0:
            return f"ends its process by {signal.Signals(-self.code).name}"
        return f"ends its process with code {self.code}"


@dataclass(frozen=True, slots=True)
class TimedOut:
    """Event: the worker was killed because it exceeded this limit."""

    limit: Limit


Event = Message | Returned | Raised | Exited | TimedOut


class Parent:
    """The connection of a worker to the process that started it; used in the worker."""

    def __init__(self, pipe: Connection, beats: Any, output: int | None) -> None:
        self._pipe, self._beats, self._output = pipe, beats, output

    def itself(self) -> Parent:
        """This object, for workers whose functions need no other state."""
        return self

    def send(self, value: object) -> None:
        """Send a message, which also counts as a heartbeat."""
        self._send(Message(value))

    def limit(self, limit: Limit) -> None:
        """Set the limit of the running function, counted from now on."""
        self._send(limit)

    def beat(self, index: int = 0) -> None:
        """Heartbeat through shared memory, cheap enough between timed launches. `index` tells the
        parent which of several parts is running."""
        self._beats[1] = index
        self._beats[0] = monotonic_ns()

    @property
    def beat_index(self) -> int:
        """The index of the last heartbeat."""
        return int(self._beats[1])

    def take_output(self) -> list[str]:
        """Lines printed since the last call, which are removed from the log."""
        if self._output is None:
            return []
        ctypes.CDLL(None).fflush(None)
        text = os.pread(self._output, _OUTPUT_BYTES, 0).decode(errors="replace")
        os.truncate(self._output, 0)
        return text.splitlines()

    def _send(self, event: object) -> None:
        self._pipe.send((_printed_bytes() if self._output is not None else 0, event))


@dataclass(frozen=True, slots=True)
class _Started:
    """A worker is ready for its first function."""


class Worker(Generic[State]):
    """A child process that runs functions of (state, argument) one after the other. `state` is made
    once in the child, from its connection to the parent, and is kept between functions.

    A worker is forked from a server that has loaded the package, or is a `fresh` interpreter, which
    libraries need that create threads or load another CUDA runtime. Its output goes to a log, or to
    the terminal if it is `shown`; only such a worker may start workers of its own.
    """

    def __init__(
        self, state: Callable[[Parent], State], *, fresh: bool = False, shown: bool = False
    ) -> None:
        context = get_context("spawn") if fresh else fork_server()
        resource_tracker.ensure_running()  # outlives workers, so it bears no mark of one
        with held():
            self._folder = temporary_folder()
            self._log = Path(self._folder.name, "output.log")
            self._log.touch()
            self._mark = str(self._log) if fresh else ""
            self._beats = RawArray("q", 2)
            self._pipe, theirs = context.Pipe()
            process = context.Process(
                target=_serve, args=(theirs, self._beats, "" if shown else self._log, state, fresh),
                daemon=not shown,
            )  # fmt: skip
            self._process: BaseProcess = process
            try:
                with _environment(PYTHONSAFEPATH="1", **({_MARK: self._mark} if fresh else {})):
                    process.start()
            except (OSError, EOFError) as error:  # the fork server has ended
                self._folder.cleanup()
                raise EnvironmentProblem(f"{NOT_STARTED}: {error}") from None
            theirs.close()
        with socket.socket(fileno=os.dup(self._pipe.fileno())) as ours:
            seconds = struct.pack("ll", _MESSAGE_S, 0)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, seconds)
        self.alive, self.busy = True, False
        self._started = self._garbled = False
        self._printed = 0
        self._watchdog: _Watchdog | None = None
        self._limit: Limit | None = None
        self._last_message = monotonic()

    def submit(
        self,
        function: Callable[[State, Argument], object],
        argument: Argument,
        limit: Limit | None = None,
    ) -> None:
        """Start a function in the worker without waiting; `events` yields its messages and its
        end."""
        self.busy = True
        self.set_limit(limit)
        with suppress(BrokenPipeError, ConnectionResetError):  # the next event tells its end
            self._pipe.send((function, argument))

    def call(
        self,
        function: Callable[[State, Argument], object],
        argument: Argument,
        limit: Limit | None = None,
    ) -> Returned | Raised | Exited | TimedOut:
        """Run a function in the worker and wait for its end. Messages are discarded."""
        self.submit(function, argument, limit)
        while True:
            for _, event in events([self]):
                if not isinstance(event, Message):
                    return event

    def set_limit(self, limit: Limit | None) -> None:
        """Set the limit of the running function, counted from now on; None is no limit."""
        self._limit, self._last_message = limit, monotonic()
        self._watchdog = _Watchdog(self._process.pid or 0, limit) if limit else None

    @property
    def silent_s(self) -> float:
        """Seconds since the last message or heartbeat."""
        return monotonic() - max(self._last_message, float(self._beats[0]) / 1e9)

    @property
    def beat_index(self) -> int:
        """The index of the last heartbeat."""
        return int(self._beats[1])

    def end(self) -> None:
        """Kill the worker and all processes that it has started."""
        if not self.alive:
            return
        with held():
            self.alive = self.busy = False
            self._kill()
            if self._mark:
                _kill_marked(self._mark)
            self._pipe.close()
            self._folder.cleanup()

    def _kill(self) -> None:
        if self._process.pid is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):  # gone, or not yet a group of its own
                self._process.kill()
        self._process.join(_KILL_WAIT_S)

    def _next_check(self) -> float:
        """When to check for a timeout, on the monotonic clock."""
        return self._watchdog.next_check if self._watchdog else inf

    def _timed_out(self) -> TimedOut | None:
        if self._watchdog is None or not self._watchdog.overdue(self._beats[0] / 1e9):
            return None
        limit = self._watchdog.limit
        self.end()
        return TimedOut(limit)

    def _read(self) -> Event | None:
        """The next event; None for internal messages."""
        try:
            received = pickle.loads(self._pipe.recv_bytes(_MESSAGE_BYTES))
            self._printed, event = received
        except (EOFError, ConnectionError):
            return self._exited()
        except Exception:
            self._garbled = True
            self._kill()
            return self._exited()
        self._last_message = monotonic()
        if isinstance(event, Limit):
            self.set_limit(event)
            return None
        if isinstance(event, _Started):
            self._started = True
            self.set_limit(self._limit)
            return None
        if isinstance(event, Returned | Raised):
            self.busy = False
            self.set_limit(None)
        elif self._limit and self._limit.clock == "wall":
            self.set_limit(self._limit)
        assert isinstance(event, Event)
        return event

    def _exited(self) -> Exited:
        self._process.join(_EXIT_WAIT_S)
        code = None if self._garbled else self._process.exitcode
        last_line = "" if code is None else self._last_line()
        self.end()
        return Exited(code, last_line, self._started)

    def _last_line(self) -> str:
        """The last line that the worker has printed since its last message."""
        with self._log.open("rb") as log:
            log.seek(max(self._printed, log.seek(0, os.SEEK_END) - _LAST_BYTES))
            lines = log.read().decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""


def events(
    workers: Iterable[Worker[Any]], timeout_s: float = inf
) -> Iterator[tuple[Worker[Any], Event]]:
    """Wait for the next events of busy workers, at most for `timeout_s`; there may be none yet. A
    worker that the caller ends meanwhile has no more."""
    waiting = list(workers)
    first_check = min(worker._next_check() for worker in waiting)
    wait_s = min(max(0.0, first_check - monotonic()), timeout_s)
    pipes = [worker._pipe for worker in waiting]
    ready = connection.wait(pipes, None if wait_s == inf else wait_s)
    for worker, pipe in zip(waiting, pipes, strict=True):
        if not worker.alive:
            continue
        event = worker._read() if pipe in ready else worker._timed_out()
        if event is not None:
            yield worker, event


class WorkerPool(Generic[State]):
    """Workers that are reused, and replaced when they die. A worker is of a `kind`: functions that
    must not share a process are submitted to workers of different kinds."""

    def __init__(self, state: Callable[[Parent], State], *, fresh: bool = False) -> None:
        self._state, self._fresh = state, fresh
        self._workers: list[tuple[Hashable, Worker[State]]] = []

    def __enter__(self) -> WorkerPool[State]:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __len__(self) -> int:
        return sum(worker.alive for _, worker in self._workers)

    def worker(self, kind: Hashable = None) -> Worker[State]:
        """An idle worker of this kind; a new one is started if all are busy."""
        self._workers = [(k, worker) for k, worker in self._workers if worker.alive]
        idle = (worker for k, worker in self._workers if k == kind and not worker.busy)
        found = next(idle, None)
        if found is None:
            with held():
                found = Worker(self._state, fresh=self._fresh)
                self._workers.append((kind, found))
        return found

    def close(self) -> None:
        """Kill all workers, including busy ones."""
        with held():
            for _, worker in self._workers:
                worker.end()
            self._workers = []


class _Watchdog:
    """Decides whether a process has exceeded its limit, counted from now on."""

    def __init__(self, pid: int, limit: Limit) -> None:
        self._pid, self.limit = pid, limit
        self._start = self._checked = monotonic()
        self._start_cpu_s = self._checked_cpu_s = cpu_seconds(pid) or 0.0
        self.next_check = self._start + limit.seconds

    def overdue(self, last_beat: float = 0.0) -> bool:
        """True if the limit is exceeded; otherwise sets the time of the next check."""
        now = monotonic()
        if now < self.next_check:
            return False
        if self.limit.clock == "wall":
            self.next_check = max(self._start, last_beat) + self.limit.seconds
            return now >= self.next_check
        spent_s = cpu_seconds(self._pid)
        if spent_s is None:
            return True
        left_s = self.limit.seconds - (spent_s - self._start_cpu_s)
        passed_s, self.next_check = now - self._checked, now + max(left_s, _CHECK_S)
        if passed_s < _IDLE_S:
            return left_s <= 0
        is_idle = spent_s - self._checked_cpu_s < _IDLE_SHARE * passed_s
        self._checked_cpu_s, self._checked = spent_s, now
        return left_s <= 0 or is_idle


def cpu_seconds(pid: int) -> float | None:
    """Processor time of all threads of a process; None if there is no such process (proc(5), fields
    14 and 15 of stat)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def fork_server() -> ForkServerContext | SpawnContext:
    """The context from which workers are forked: a process that has loaded what they need, started
    if it does not run. If its socket cannot be made, as in a temporary folder with a long name,
    each worker is a fresh interpreter."""
    forkserver.set_forkserver_preload(_PRELOADED)
    with _environment(PYTHONSAFEPATH="1"):
        resource_tracker.ensure_running()  # before signals are held: it unblocks them
        try:
            with held():  # the server inherits the mask: it ends with this process, not by a signal
                forkserver.ensure_running()
        except OSError:
            return get_context("spawn")
    return get_context("forkserver")


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Environment variables for processes that are started meanwhile. PYTHONSAFEPATH keeps Python
    from importing a user's file of the current folder that is named like a module."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _kill_marked(mark: str) -> None:
    """Kill the processes with this mark in their environment."""
    sought = f"{_MARK}={mark}".encode()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # another user's process, or one that has ended
            if sought in environment.read_bytes().split(b"\0"):
                os.kill(int(environment.parent.name), signal.SIGKILL)


def _serve(
    pipe: Connection,
    beats: Any,
    log: Path | Literal[""],
    make_state: Callable[[Parent], Any],
    fresh: bool,
) -> None:
    """Main loop of a worker: runs functions until the parent closes the pipe."""
    ignore_endings()  # the parent receives the same signals, and ends the worker
    os.setpgid(0, 0)  # so that compilers end with it
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if fresh:
        # A process that a library forks must neither keep the pipe open nor answer.
        os.register_at_fork(after_in_child=pipe.close)
        # Semaphores of spawned processes are reported as leaked when the worker is killed.
        set_start_method("fork", force=True)
    else:
        _end_with_parent(pipe)
    output = None
    if log:
        try:
            output = os.open(log, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:  # the run is over
            return
        for standard in (1, 2):
            os.dup2(output, standard)
        if not fresh:  # libraries keep caches in the temporary folder
            os.environ["TMPDIR"] = tempfile.tempdir = str(log.parent)
    parent = Parent(pipe, beats, output)
    state = make_state(parent)
    with suppress(BrokenPipeError):
        parent._send(_Started())
    while True:
        try:
            function, argument = pipe.recv()
        except EOFError:
            return
        try:
            parent._send(Returned(function(state, argument)))
        except CudareduceError as error:
            parent._send(Raised(error))
        except Exception as error:
            text = f"internal error: {type(error).__name__}: {error}"
            parent._send(Raised(CudareduceError(text)))


def _end_with_parent(pipe: Connection) -> None:
    """Kill this process, with all that it has started, when the other end of its pipe is closed:
    the fork server, its parent, may outlive the run."""

    def wait() -> None:
        hangup = select.poll()
        hangup.register(pipe.fileno(), 0)  # no event but the end of the pipe
        hangup.poll()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def _printed_bytes() -> int:
    """Bytes printed so far by this process; 0 if a library has closed its standard output."""
    with suppress(AttributeError, OSError, ValueError):
        sys.stdout.flush()
        ctypes.CDLL(None).fflush(None)
        return os.fstat(1).st_size
    return 0


def python_command(
    function: Callable[[Argument], object], argument: Argument, task: Path
) -> list[str]:
    """The command that calls a function in a fresh interpreter, for tools that watch a whole
    process; `task` is the file that will hold the call."""
    task.write_bytes(pickle.dumps((function, argument)))
    return [sys.executable, "-m", __name__, str(task)]


@contextmanager
def running_tool(
    command: Sequence[str], stdout: IO[bytes] | int, stderr: IO[bytes] | int, **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a tool that may run `python_command`; it is killed, with all that it has started, when
    the block is left."""
    package = str(Path(__file__).parent.parent)
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONSAFEPATH": "1", "PYTHONPATH": path} | variables
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=environment,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main(task: str) -> None:
    """Call the function of a file that `python_command` has written."""
    function, argument = pickle.loads(Path(task).read_bytes())
    function(argument)


if __name__ == "__main__":
    main(sys.argv[1])
