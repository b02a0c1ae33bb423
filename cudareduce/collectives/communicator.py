"""Rendezvous of ranks, messages between their hosts, and detection of lost ranks.

Rank 0 listens on a TCP port. The others read its hosts, port and key from a file, or dial
tcp://HOST:PORT with the launcher's job name as key. Both sides prove that they know the key. Each
other rank has two connections to rank 0. One carries data. On the other, both ends send heartbeats
from a thread, so that the loss of a rank is detected even while the main thread waits in a kernel
or a library.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge, wait
from pathlib import Path
from threading import Event, Thread, Timer
from typing import Any, NamedTuple, TypeVar

from cudareduce.collectives.names import MOST_RANKS
from cudareduce.errors import EnvironmentProblem, KernelFault, UsageError
from cudareduce.libraries.contract import AbsentError

Value = TypeVar("Value")

#: Seconds until all ranks must have connected, and until a connection must have proved its key.
ARRIVAL_S, _HANDSHAKE_S = 30.0, 2.0
#: Seconds without a heartbeat after which a rank counts as lost. Heartbeats are sent seven times as
#: often; after a loss the main thread has two heartbeats to end, and closing waits as long.
SILENCE_S, _BEATS, _END_BEATS = 7.0, 7, 2
#: Limit in s for a call that waits for other ranks: many times more than it needs.
LIMIT_S = 30.0
#: Part of the last line of a process that `watchdog` ended.
TIMED_OUT_TEXT = "has not ended within"
LIBRARY_REMEDY = "see what else runs on these GPUs, and what NCCL_DEBUG=INFO prints"
#: Variable with the id of the process that started the ranks of a command.
STARTED_BY = "CUDAREDUCE_STARTED_BY"
_BEAT, _GOODBYE, _LOST = b"beat", b"leaves", b"lost:"


class RankLost(EnvironmentProblem):
    """A rank did not connect, ended, or sends no heartbeats."""


class Launcher(NamedTuple):
    """The environment variables of a launcher. `job` names the job uniquely on the machine."""

    name: str
    rank: str
    size: str
    local_rank: str
    job: str


OWN_LAUNCHER = Launcher(
    "cudareduce", "CUDAREDUCE_RANK", "CUDAREDUCE_RANKS", "CUDAREDUCE_LOCAL_RANK", "CUDAREDUCE_JOB"
)
#: Slurm is last: an interactive shell has SLURM_PROCID too, for programs that run alone.
LAUNCHERS = (
    OWN_LAUNCHER,
    Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"),
    Launcher("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
             "OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_NAMESPACE"),
    Launcher("MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "PMI_PORT"),
    Launcher("Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_ID"),
    Launcher("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_JOB_ID"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a launcher placed this process: rank, number of ranks, rank on this host, job."""

    launcher: str
    rank: int
    size: int
    local_rank: int
    job: str

    def file(self, purpose: str = "") -> str:
        """The default rendezvous file, in the current folder. Its name consists of the job, which
        all ranks of a launcher know, and `purpose`."""
        return f".cudareduce-{re.sub(r'[^0-9A-Za-z.-]', '_', self.job)}{purpose}.json"


def find_placement(environment: Mapping[str, str]) -> Placement | None:
    """This process's placement, None without a launcher. Raises UsageError on bad numbers."""
    for launcher in LAUNCHERS:
        if launcher.rank not in environment or launcher.size not in environment:
            continue
        size = _number(environment, launcher, launcher.size, 1)
        if size == 1:
            continue
        rank = local_rank = _number(environment, launcher, launcher.rank, 0)
        if launcher.local_rank in environment:
            local_rank = _number(environment, launcher, launcher.local_rank, 0)
        if rank >= size:
            raise UsageError(
                f"{launcher.name} set {launcher.rank}={rank} and {launcher.size}={size}: ranks "
                "count from 0"
            )
        if size > MOST_RANKS:
            raise UsageError(
                f"{launcher.name} started {size} ranks, and cudareduce takes {MOST_RANKS} at most: "
                "start fewer"
            )
        job = environment.get(launcher.job, "job")
        return Placement(launcher.name, rank, size, local_rank, job)
    return None


def _number(environment: Mapping[str, str], launcher: Launcher, name: str, least: int) -> int:
    with suppress(ValueError):
        if int(environment[name]) >= least:
            return int(environment[name])
    raise UsageError(
        f"{launcher.name} set {name}={environment[name]!r}, which is not a valid number: unset it "
        "to run alone"
    )


def _send(connection: Connection, value: Any) -> None:
    """Send a value as JSON: text from outside is never unpickled. Raises OSError."""
    connection.send_bytes(json.dumps(value).encode())


def _receive(connection: Connection) -> Any:
    return json.loads(connection.recv_bytes())


@dataclass(frozen=True, slots=True)
class Peer:
    """Another rank and the connections to it: `data` for messages, `watch` for heartbeats."""

    rank: int
    host: str
    data: Connection
    watch: Connection

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}"

    @property
    def ended(self) -> str:
        return f"{self} has ended: see what it printed, and that all ranks run the same command"

    def close(self, limit_s: float) -> None:
        """Close both connections. Reads heartbeats until the other end closes: closing a socket
        with unread bytes would discard the last message sent."""
        deadline = time.monotonic() + limit_s
        with suppress(OSError, EOFError):
            _shut_down(self.watch, socket.SHUT_WR)
            while self.watch.poll(max(0.0, deadline - time.monotonic())):
                self.watch.recv_bytes()
        self.watch.close()
        self.data.close()


def _shut_down(connection: Connection, how: int) -> None:
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as sock:
        sock.shutdown(how)


class Communicator:
    """Messages among ranks. Rank 0 is connected to all others, they to rank 0 only.

    A context manager, which closes the connections. If `parent` is given, this process ends when
    that process does. All methods raise RankLost.
    """

    def __init__(self, rank: int, size: int, peers: list[Peer], parent: int | None = None) -> None:
        self.rank, self.size, self._peers, self._parent = rank, size, peers, parent
        self._beat_s = SILENCE_S / _BEATS
        self._end_s = _END_BEATS * self._beat_s
        self._activity, self._why = "", ""
        self._failed, self._closing = Event(), Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()

    def gather(self, value: Any) -> list[Any]:
        """Send all values to rank 0. Returns them in the order of ranks there, elsewhere an empty
        list."""
        if self.rank:
            with self._failures_of(self._peers[0]):
                _send(self._peers[0].data, value)
            return []
        values = [value]
        for peer in self._peers:
            with self._failures_of(peer):
                values.append(_receive(peer.data))
        return values

    def broadcast(self, value: Any = None) -> Any:
        """Send rank 0's value to all ranks. Returns it on all ranks."""
        for peer in self._peers:
            with self._failures_of(peer):
                if self.rank:
                    return _receive(peer.data)
                _send(peer.data, value)
        return value

    def all_gather(self, value: Any) -> list[Any]:
        """Send all values to all ranks. Returns them in the order of ranks."""
        values: list[Any] = self.broadcast(self.gather(value))
        return values

    def all_gather_bytes(self, value: bytes) -> list[bytes]:
        texts = self.all_gather(base64.b64encode(value).decode())
        return [base64.b64decode(text) for text in texts]

    def barrier(self) -> None:
        self.all_gather(None)

    @contextmanager
    def during(self, activity: str) -> Iterator[None]:
        """Name what all ranks do in the block, for the message if one is lost."""
        self._activity = activity
        try:
            yield
        finally:
            self._activity = ""

    @contextmanager
    def _failures_of(self, peer: Peer) -> Iterator[None]:
        """Raise RankLost if the connection fails in the block, with the cause that the heartbeat
        thread detects."""
        try:
            yield
        except (OSError, EOFError):
            self._failed.wait(SILENCE_S + self._end_s)
            raise RankLost(self._why or peer.ended) from None

    def _watch(self) -> None:
        """Exchange heartbeats until closed, or until a rank is lost."""
        heard = {peer: time.monotonic() for peer in self._peers}
        beaten, awake = 0.0, time.monotonic()
        while not self._closing.is_set():
            now = time.monotonic()
            if now - awake > 2 * self._beat_s:  # this process was not running
                heard = dict.fromkeys(heard, now)
            awake = now
            if now - beaten >= self._beat_s:
                beaten = now
                self._notify(_BEAT)
            ready = wait([peer.watch for peer in heard], self._beat_s / 4) if heard else []
            if not heard:
                self._closing.wait(self._beat_s / 4)
            for peer in [peer for peer in heard if peer.watch in ready]:
                try:
                    message = peer.watch.recv_bytes()
                except (OSError, EOFError):
                    return self._fail(peer.ended)
                heard[peer] = time.monotonic()
                if message == _GOODBYE:
                    del heard[peer]
                elif message.startswith(_LOST):
                    return self._fail(message.removeprefix(_LOST).decode())
            for peer, at in heard.items():
                if time.monotonic() - at > SILENCE_S:
                    return self._fail(
                        f"{peer} has sent no heartbeat for {SILENCE_S:g} s: see what it "
                        "printed, and that all ranks run the same command"
                    )
            if self._parent not in (None, os.getppid()):
                os.kill(os.getpid(), signal.SIGTERM)
                return self._fail("the process that started the ranks has ended")
        return None

    def _fail(self, why: str) -> None:
        """Send all ranks the reason, wake the main thread, and end the process if the main thread
        does not: it may wait in a kernel for the lost rank."""
        activity = self._activity
        self._why = f"{why}; all were at {activity}" if activity not in why else why
        self._notify(_LOST + self._why.encode())
        self._failed.set()
        for peer in self._peers:
            _shut_down(peer.data, socket.SHUT_RDWR)  # wakes a thread that waits for data
        if not self._closing.wait(self._end_s):
            _print_last(self._why)
            os._exit(RankLost.exit_code)

    def _notify(self, message: bytes) -> None:
        for peer in self._peers:
            with suppress(OSError):
                peer.watch.send_bytes(message)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, RankLost):
            self._notify(_LOST + f"rank {self.rank} on {socket.gethostname()}: {error}".encode())
        self._closing.set()
        self._thread.join()
        if not self._failed.is_set():
            self._notify(_GOODBYE)
        for peer in self._peers:
            peer.close(self._end_s)


def agree(comm: Communicator, make: Callable[[], Value]) -> Value:
    """Call `make` on every rank and return this rank's value. If it fails on a rank, raises
    AbsentError on all, with the first rank's reason. Raises RankLost."""
    values: list[Value] = []
    why = None
    try:
        values.append(make())
    except RankLost:
        raise
    except (AbsentError, UsageError, EnvironmentProblem, KernelFault) as error:
        why = str(error)
    for reason in comm.all_gather(why):
        if reason:
            raise AbsentError(reason)
    return values[0]


def _print_last(why: str) -> None:
    """Print why this process ends, from a thread that nothing waits for."""
    print(f"cudareduce: {why}", file=sys.stderr, flush=True)


@contextmanager
def watchdog(
    call: str, limit_s: float = LIMIT_S, remedy: str = LIBRARY_REMEDY,
    code: int = EnvironmentProblem.exit_code,
) -> Iterator[None]:  # fmt: skip
    """End this process with exit code `code` if the block takes longer than `limit_s`: a library or
    kernel that waits for another rank cannot be interrupted. The other ranks detect the end."""

    def end() -> None:
        _print_last(f"{call} {TIMED_OUT_TEXT} {limit_s:g} s: {remedy}")
        os._exit(code)

    timer = Timer(limit_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def connect(placement: Placement, where: str | None = None) -> Communicator:
    """Connect to the other ranks. `where` is a file that all can read (by default named after the
    job), or tcp://HOST:PORT of rank 0. Raises RankLost if a rank does not connect within
    ARRIVAL_S, and UsageError for an unusable `where`."""
    own = placement.launcher == OWN_LAUNCHER.name  # all ranks are on this host
    if where is None:
        where = placement.job if own else placement.file()
    address = _address(where)
    if placement.rank:
        peers = [_dial(placement, where, address)]
    elif address:
        with _listen(where, address) as server:
            peers = _accept(placement, server, placement.job.encode())
    else:
        hosts = ["127.0.0.1"] if own else [socket.gethostname(), socket.getfqdn()]
        with _listen(where, ("127.0.0.1" if own else "", 0)) as server:
            key = _publish(Path(where), hosts, server.getsockname()[1])
            try:
                peers = _accept(placement, server, key)
            finally:
                Path(where).unlink(missing_ok=True)
    parent = int(os.environ.get(STARTED_BY, os.getppid())) if own else None
    return Communicator(placement.rank, placement.size, peers, parent)


def _address(where: str) -> tuple[str, int] | None:
    """Host and port of tcp://HOST:PORT, None for a file."""
    if not where.startswith("tcp://"):
        if not where or "://" in where:
            raise UsageError(f"--meet {where!r}: give a file, or rank 0's host as tcp://HOST:PORT")
        return None
    host, _, port = where.removeprefix("tcp://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UsageError(f"--meet {where}: give rank 0's host and a free port, tcp://HOST:PORT")
    return host.strip("[]"), int(port)


def _listen(where: str, address: tuple[str, int]) -> socket.socket:
    try:
        return socket.create_server(address)
    except OSError as error:
        raise UsageError(
            f"--meet {where}: rank 0 cannot listen there ({error.strerror}): give the host of rank "
            "0, and another port"
        ) from None


def _publish(path: Path, hosts: list[str], port: int) -> bytes:
    """Write hosts, port and a new key to a file that only this user can read; returns the key.
    Raises UsageError."""
    if path.exists() and _read_file(path) is None:
        raise UsageError(
            f"--meet {path} is a file of something else, or of another user: name one that does "
            "not exist"
        )
    key = secrets.token_hex(16)
    try:
        handle, part = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
        with os.fdopen(handle, "w") as file:
            json.dump([hosts, port, key], file)
        Path(part).replace(path)
    except OSError as error:
        raise UsageError(
            f"--meet {path}: cannot be written ({error.strerror}): name a file in a folder that "
            "all ranks can read"
        ) from None
    return key.encode()


def _read_file(path: Path) -> tuple[list[str], int, bytes] | None:
    """Hosts, port and key of rank 0; None if the file is missing, holds something else, or belongs
    to another user, who could pose as rank 0."""
    with suppress(Exception):
        # root may read what a network file system stores as another user's
        if os.geteuid() not in (0, path.stat().st_uid):
            return None
        hosts, port, key = json.loads(path.read_text())
        return [str(host) for host in hosts], int(port), str(key).encode()
    return None


class _Greeting(NamedTuple):
    """The first message of a rank on each of its two connections. `channel` is "data" or
    "watch"."""

    rank: int
    size: int
    host: str
    channel: str


def _accept(placement: Placement, server: socket.socket, key: bytes) -> list[Peer]:
    """Wait for two connections of every other rank: one for data, one for the watchdog."""
    known: dict[tuple[int, str], tuple[Connection, str]] = {}
    size, deadline = placement.size, time.monotonic() + ARRIVAL_S
    while len(known) < 2 * (size - 1):
        server.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            connection = _wrap_socket(server.accept()[0])
        except TimeoutError:
            missing = [str(rank) for rank in range(1, size) if (rank, "data") not in known]
            names = f"rank{'s' * (len(missing) > 1)} {', '.join(missing)}"
            raise RankLost(
                f"{names} of {size} did not connect within {ARRIVAL_S:.0f} s: see that all were "
                "started, and what they printed"
            ) from None
        greeting = None
        with suppress(Exception):  # a connection that is not from a rank of this job
            deliver_challenge(connection, key)
            answer_challenge(connection, key)
            rank, ranks, host, channel = _receive(connection)
            greeting = _Greeting(int(rank), int(ranks), str(host), str(channel))
        if greeting and greeting.size != size:
            why = (
                f"rank {greeting.rank} on {greeting.host} is one of {greeting.size}, and rank 0 "
                f"one of {size}: start all with the same number of ranks"
            )
            for other in (connection, *(connected for connected, _ in known.values())):
                with suppress(OSError):
                    _send(other, {"error": why})
            raise UsageError(why)
        if greeting and 0 < greeting.rank < size and greeting.channel in ("data", "watch"):
            with suppress(OSError):
                _send(connection, {"host": socket.gethostname()})
                _limit_reads(connection, 0)
                known.setdefault((greeting.rank, greeting.channel), (connection, greeting.host))
        else:
            connection.close()
    peers = []
    for rank in range(1, size):
        data, host = known[rank, "data"]
        peers.append(Peer(rank, host, data, known[rank, "watch"][0]))
    for peer in peers:
        _send(peer.data, {})  # all ranks are connected
    return peers


def _dial(placement: Placement, where: str, address: tuple[str, int] | None) -> Peer:
    deadline = time.monotonic() + ARRIVAL_S
    while time.monotonic() < deadline:
        published = _read_file(Path(where)) if address is None else None
        if address is not None:
            published = [address[0]], address[1], placement.job.encode()
        try:
            if published:
                data, host = _greet(placement, *published, "data")
                watch, _ = _greet(placement, *published, "watch")
                if data.poll(max(0.0, deadline - time.monotonic())):
                    _raise_refusal(_receive(data))
                    return Peer(0, host, data, watch)
        except UsageError:
            raise
        except Exception:
            pass  # not rank 0 of this job, or not yet
        time.sleep(0.05)
    raise RankLost(
        f"not all ranks connected at {where} within {ARRIVAL_S:.0f} s: see that all were started, "
        "with the same --meet"
    )


def _greet(
    placement: Placement, hosts: list[str], port: int, key: bytes, channel: str
) -> tuple[Connection, str]:
    """An authenticated connection to the first of rank 0's hosts that answers, and its name."""
    for host in hosts[:-1]:
        with suppress(OSError):
            sock = socket.create_connection((host, port), _HANDSHAKE_S)
            break
    else:
        sock = socket.create_connection((hosts[-1], port), _HANDSHAKE_S)
    connection = _wrap_socket(sock)
    answer_challenge(connection, key)
    deliver_challenge(connection, key)
    greeting = _Greeting(placement.rank, placement.size, socket.gethostname(), channel)
    _send(connection, greeting)
    host = str(_raise_refusal(_receive(connection))["host"])
    _limit_reads(connection, 0)
    return connection, host


def _raise_refusal(reply: dict[str, Any]) -> dict[str, Any]:
    if "error" in reply:
        raise UsageError(reply["error"])
    return reply


def _wrap_socket(sock: socket.socket) -> Connection:
    """A connection whose reads fail after `_HANDSHAKE_S`."""
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = Connection(sock.detach())
    _limit_reads(connection, _HANDSHAKE_S)
    return connection


def _limit_reads(connection: Connection, seconds: float) -> None:
    """Make reads fail after `seconds`; 0 is no limit."""
    with socket.socket(fileno=os.dup(connection.fileno())) as sock:
        limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
