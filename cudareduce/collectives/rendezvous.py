"""How ranks find each other: the launcher's environment, then connections to rank 0.

Rank 0 listens on a TCP port. The others read its hosts, port and key from a file, or dial
tcp://HOST:PORT with the launcher's job name as key. Both sides prove that they know the key.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any, NamedTuple

from cudareduce.collectives.communicator import Communicator, Peer, RankLost, receive, send
from cudareduce.collectives.names import MOST_RANKS
from cudareduce.errors import UsageError

#: Seconds until all ranks must have come, and until a connection must have proved its key.
ARRIVAL_S, _HANDSHAKE_S = 30.0, 2
#: Errors of connections and files that are not from a rank of this job.
_NOT_A_RANK = (OSError, EOFError, ValueError, TypeError, LookupError, ArithmeticError,
               AssertionError, RecursionError, AuthenticationError)  # fmt: skip


class Launcher(NamedTuple):
    """The environment variables of a launcher. `job` names the job uniquely on the machine."""

    name: str
    rank: str
    size: str
    local_rank: str
    job: str


OWN = Launcher("cudareduce", "CUDAREDUCE_RANK", "CUDAREDUCE_RANKS", "CUDAREDUCE_LOCAL_RANK",
               "CUDAREDUCE_JOB")  # fmt: skip
#: Slurm is last: an interactive shell has SLURM_PROCID too, for programs that run alone.
LAUNCHERS = (
    OWN,
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
        """The default rendezvous file: in this folder, named after the job and a `purpose`."""
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


def connect(placement: Placement, where: str | None = None) -> Communicator:
    """Connect to the other ranks. `where` is a file that all can read, named after the job unless
    given, or tcp://HOST:PORT of rank 0. Raises RankLost if one does not come, and UsageError for an
    unusable `where`."""
    if where is None:
        where = placement.job if placement.launcher == OWN.name else placement.file()
    address = _address(where)
    if placement.rank:
        peers = [_dial(placement, where, address)]
    elif address:
        with _listen(where, address) as server:
            peers = _accept(placement, server, placement.job.encode())
    else:
        peers = _accept_by_file(placement, Path(where))
    parent = os.getppid() if placement.launcher == OWN.name else None
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
            f"--meet {where}: rank 0 cannot listen there ({error.strerror}): give this host, and "
            "another port"
        ) from None


def _accept_by_file(placement: Placement, path: Path) -> list[Peer]:
    """Listen on a free port and publish it in a file while the other ranks come."""
    own = placement.launcher == OWN.name  # all ranks are on this host
    with _listen(str(path), ("127.0.0.1" if own else "", 0)) as server:
        hosts = ["127.0.0.1"] if own else [socket.gethostname(), socket.getfqdn()]
        if path.exists() and _read_file(path) is None:
            raise UsageError(f"--meet {path} is another file: name one that does not exist")
        key = secrets.token_hex(16)
        part = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            part.touch(mode=0o600)
            part.write_text(json.dumps([hosts, server.getsockname()[1], key]))
            part.replace(path)
        except OSError as error:
            raise UsageError(
                f"--meet {path}: cannot be written ({error.strerror}): name a file in a folder "
                "that all ranks can read"
            ) from None
        try:
            return _accept(placement, server, key.encode())
        finally:
            path.unlink(missing_ok=True)


def _read_file(path: Path) -> tuple[list[str], int, bytes] | None:
    """Hosts, port and key of rank 0; None if the file is missing or holds something else."""
    with suppress(*_NOT_A_RANK):
        hosts, port, key = json.loads(path.read_text())
        return [str(host) for host in hosts], int(port), str(key).encode()
    return None


def _accept(placement: Placement, server: socket.socket, key: bytes) -> list[Peer]:
    """Wait for two connections of every other rank: one for data, one for the watchdog."""
    known: dict[tuple[int, str], tuple[Connection, str]] = {}
    size, deadline = placement.size, time.monotonic() + ARRIVAL_S
    while len(known) < 2 * (size - 1):
        server.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            connection = _open(server.accept()[0])
        except TimeoutError:
            missing = [str(rank) for rank in range(1, size) if (rank, "data") not in known]
            names = f"rank{'s' * (len(missing) > 1)} {', '.join(missing)}"
            raise RankLost(
                f"{names} of {size} did not come within {ARRIVAL_S:.0f} s: see that all were "
                "started, and what they printed"
            ) from None
        with suppress(*_NOT_A_RANK):
            deliver_challenge(connection, key)
            answer_challenge(connection, key)
            greeting = receive(connection)
            rank, channel, host = int(greeting["rank"]), greeting["channel"], str(greeting["host"])
            if greeting["size"] != size:
                why = (
                    f"rank {rank} on {host} is one of {greeting['size']}, and rank 0 one of {size}:"
                    " start all ranks with the same number of them"
                )
                for other in (connection, *(one for one, _ in known.values())):
                    with suppress(OSError):
                        send(other, {"error": why})
                raise UsageError(why)
            if 0 < rank < size and channel in ("data", "watch") and (rank, channel) not in known:
                send(connection, {"host": socket.gethostname()})
                _limit_reads(connection, 0)
                known[rank, channel] = connection, host
                continue
        connection.close()
    peers = []
    for rank in range(1, size):
        data, host = known[rank, "data"]
        peers.append(Peer(rank, host, data, known[rank, "watch"][0]))
    for peer in peers:
        send(peer.data, {})  # all have come
    return peers


def _dial(placement: Placement, where: str, address: tuple[str, int] | None) -> Peer:
    """Connections to rank 0, as soon as it listens."""
    deadline = time.monotonic() + ARRIVAL_S
    while time.monotonic() < deadline:
        with suppress(*_NOT_A_RANK):
            published = _read_file(Path(where)) if address is None else None
            if address is not None:
                published = [address[0]], address[1], placement.job.encode()
            if published:
                data, host = _greet(placement, *published, "data")
                watch, _ = _greet(placement, *published, "watch")
                if data.poll(max(0.0, deadline - time.monotonic())):
                    _checked(receive(data))
                    return Peer(0, host, data, watch)
        time.sleep(0.05)
    raise RankLost(
        f"rank 0 did not appear at {where} within {ARRIVAL_S:.0f} s, or not all others did: see "
        "that all were started, with the same --meet"
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
    connection = _open(sock)
    answer_challenge(connection, key)
    deliver_challenge(connection, key)
    send(connection, {"rank": placement.rank, "size": placement.size,
                      "host": socket.gethostname(), "channel": channel})  # fmt: skip
    host = str(_checked(receive(connection))["host"])
    _limit_reads(connection, 0)
    return connection, host


def _checked(reply: dict[str, Any]) -> dict[str, Any]:
    """Rank 0's reply. Raises UsageError if it refuses this rank."""
    if "error" in reply:
        raise UsageError(reply["error"])
    return reply


def _open(sock: socket.socket) -> Connection:
    """A connection whose reads fail after `_HANDSHAKE_S`."""
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = Connection(sock.detach())
    _limit_reads(connection, _HANDSHAKE_S)
    return connection


def _limit_reads(connection: Connection, seconds: int) -> None:
    """Make reads fail after so many seconds; 0 is no limit."""
    with socket.socket(fileno=os.dup(connection.fileno())) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))
