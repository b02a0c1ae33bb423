"""What ranks exchange on the host, and the watchdog that names a rank that is lost.

Rank 0 has two connections to each other rank. One carries data. On the other, both ends send a
heartbeat every second, so that a rank that ended or stands still is found while the main thread
waits in a kernel or in a library.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from threading import Event, Thread, Timer
from typing import Any, TypeVar

from cudareduce.errors import EnvironmentProblem, KernelFault, UsageError
from cudareduce.libraries.contract import AbsentError

Value = TypeVar("Value")

#: Seconds between heartbeats, and of silence after which a rank counts as lost.
BEAT_S, SILENCE_S = 1.0, 7.0
#: Seconds that the main thread has to end after a loss, and that closing waits for the other end.
_END_S = 2.0
#: Seconds that a call which waits for other ranks may take: many times more than it needs.
LIMIT_S = 30.0
#: Part of the last line of a process that `watchdog` ended.
GAVE_UP = "has not ended within"
LIBRARY_REMEDY = "see what else runs on these GPUs, and what NCCL_DEBUG=INFO prints"
_BEAT, _LEAVES, _LOST = b"beat", b"leaves", b"lost:"


class RankLost(EnvironmentProblem):
    """A rank did not come, ended, or stands still."""


def send(connection: Connection, value: Any) -> None:
    """Send a value as JSON: text from outside is never unpickled. Raises OSError."""
    connection.send_bytes(json.dumps(value).encode())


def receive(connection: Connection) -> Any:
    """The next value. Raises OSError and EOFError."""
    return json.loads(connection.recv_bytes())


@dataclass(frozen=True, slots=True)
class Peer:
    """The connections to another rank."""

    rank: int
    host: str
    data: Connection
    watch: Connection

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}"

    def shut_down(self) -> None:
        """Wake a thread that waits for data."""
        with suppress(OSError), socket.socket(fileno=os.dup(self.data.fileno())) as sock:
            sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close both connections. Reads heartbeats until the other end closes: closing a socket
        with unread bytes would discard what was sent last."""
        deadline = time.monotonic() + _END_S
        with suppress(OSError, EOFError):
            with socket.socket(fileno=os.dup(self.watch.fileno())) as sock:
                sock.shutdown(socket.SHUT_WR)
            while self.watch.poll(max(0.0, deadline - time.monotonic())):
                self.watch.recv_bytes()
        self.watch.close()
        self.data.close()


class Communicator:
    """The connections of one rank: on rank 0 to all others in order, elsewhere to rank 0. A context
    manager, which closes them. The process also ends with the `parent` that started it."""

    def __init__(self, rank: int, size: int, peers: list[Peer], parent: int | None = None) -> None:
        self.rank, self.size, self._peers, self._parent = rank, size, peers, parent
        self._activity, self._why = "", ""
        self._failed, self._closing = Event(), Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()

    def gather(self, value: Any) -> list[Any]:
        """On rank 0 the values of all ranks in order, elsewhere an empty list. Raises RankLost."""
        if self.rank:
            self._send(self._peers[0], value)
            return []
        return [value, *map(self._receive, self._peers)]

    def broadcast(self, value: Any = None) -> Any:
        """Rank 0's value, on all ranks. Raises RankLost."""
        if self.rank:
            return self._receive(self._peers[0])
        for peer in self._peers:
            self._send(peer, value)
        return value

    def all_gather(self, value: Any) -> list[Any]:
        """The values of all ranks in order, on all ranks. Raises RankLost."""
        values: list[Any] = self.broadcast(self.gather(value))
        return values

    def all_gather_bytes(self, value: bytes) -> list[bytes]:
        """The same for bytes."""
        texts = self.all_gather(base64.b64encode(value).decode())
        return [base64.b64decode(text) for text in texts]

    def barrier(self) -> None:
        """Wait until all ranks are here. Raises RankLost."""
        self.all_gather(None)

    @contextmanager
    def doing(self, activity: str) -> Iterator[None]:
        """Name what all ranks do inside, for the message if one is lost."""
        self._activity = activity
        try:
            yield
        finally:
            self._activity = ""

    def _send(self, peer: Peer, value: Any) -> None:
        try:
            send(peer.data, value)
        except OSError:
            raise self._lost(peer) from None

    def _receive(self, peer: Peer) -> Any:
        try:
            return receive(peer.data)
        except (OSError, EOFError):
            raise self._lost(peer) from None

    def _lost(self, peer: Peer) -> RankLost:
        """The error to raise when a connection fails: the watchdog knows which rank is the cause,
        once its own connection has told it."""
        self._failed.wait(SILENCE_S + _END_S)
        return RankLost(self._why or _ended(peer))

    def _watch(self) -> None:
        """Exchange heartbeats until closed, or until a rank is lost."""
        heard = {peer: time.monotonic() for peer in self._peers}
        beaten, awake = 0.0, time.monotonic()
        while not self._closing.is_set():
            if time.monotonic() - awake > 2 * BEAT_S:  # this process was not running
                heard = dict.fromkeys(heard, time.monotonic())
            awake = time.monotonic()
            if time.monotonic() - beaten >= BEAT_S:
                beaten = time.monotonic()
                self._tell(_BEAT)
            ready = wait([peer.watch for peer in heard], BEAT_S / 4) if heard else []
            if not heard:
                self._closing.wait(BEAT_S / 4)
            for peer in [peer for peer in heard if peer.watch in ready]:
                try:
                    message = peer.watch.recv_bytes()
                except (OSError, EOFError):
                    return self._fail(_ended(peer))
                heard[peer] = time.monotonic()
                if message == _LEAVES:
                    del heard[peer]
                elif message.startswith(_LOST):
                    return self._fail(message.removeprefix(_LOST).decode())
            silent = [peer for peer, at in heard.items() if time.monotonic() - at > SILENCE_S]
            if silent:
                return self._fail(
                    f"{silent[0]} has not been heard of for {SILENCE_S:.0f} s: see what it "
                    "printed, and that all ranks run the same command"
                )
            if self._parent not in (None, os.getppid()):
                os.kill(os.getpid(), signal.SIGTERM)
                return self._fail("the process that started the ranks has ended")
        return None

    def _fail(self, why: str) -> None:
        """Tell all ranks why the run ends, wake the main thread, and end the process if that does
        not: it may wait in a kernel for the rank that is lost."""
        doing = self._activity
        self._why = why if not doing or doing in why else f"{why}; all were at {doing}"
        self._tell(_LOST + self._why.encode())
        self._failed.set()
        for peer in self._peers:
            peer.shut_down()
        if not self._closing.wait(_END_S):
            print_last(self._why)
            os._exit(RankLost.exit_code)

    def _tell(self, message: bytes) -> None:
        for peer in self._peers:
            with suppress(OSError):
                peer.watch.send_bytes(message)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, RankLost):
            self._tell(_LOST + f"rank {self.rank} on {socket.gethostname()}: {error}".encode())
        self._closing.set()
        self._thread.join()
        if not self._failed.is_set():
            self._tell(_LEAVES)
        for peer in self._peers:
            peer.close()


def _ended(peer: Peer) -> str:
    return f"{peer} has ended: see what it printed, and that all ranks run the same command"


def agree(comm: Communicator, make: Callable[[], Value]) -> Value:
    """What this rank makes, once all ranks have made theirs. Raises AbsentError on all ranks, with
    the first one's reason, if one cannot, and RankLost."""
    made: list[Value] = []
    why = None
    try:
        made.append(make())
    except RankLost:
        raise
    except (AbsentError, UsageError, EnvironmentProblem, KernelFault) as error:
        why = str(error)
    for reason in comm.all_gather(why):
        if reason:
            raise AbsentError(reason)
    return made[0]


def print_last(why: str) -> None:
    """Print why this process ends, from a thread that nothing waits for."""
    print(f"cudareduce: {why}", file=sys.stderr, flush=True)


@contextmanager
def watchdog(
    call: str, limit_s: float = LIMIT_S, remedy: str = LIBRARY_REMEDY,
    code: int = EnvironmentProblem.exit_code,
) -> Iterator[None]:  # fmt: skip
    """End this process with `code` if the block takes longer: a library or kernel that waits for
    another rank can only be ended so. The other ranks notice the end."""

    def end() -> None:
        print_last(f"{call} {GAVE_UP} {limit_s:g} s: {remedy}")
        os._exit(code)

    timer = Timer(limit_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
