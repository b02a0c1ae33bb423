"""How ranks find each other.

Rank 0 listens, and leaves a note of its hosts, port and a token in a file that all can read; or it
listens at an address that all were told, and the launcher's word for the job is the token.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cudareduce.errors import UsageError
from cudareduce.several.meet.link import SILENCE_S, Link, RankLost
from cudareduce.several.meet.meeting import Meeting
from cudareduce.several.meet.place import OWN, Place

#: How long ranks wait for each other to come, in s: launchers start them together.
ARRIVAL_S = 8.0
#: A greeting is short, and quick: whoever sends more, or nothing, is nobody of ours.
_GREETING_BYTES, _GREETING_S = 4096, 2.0
#: What comes of greetings and notes that are none: strangers' text may be anything.
_RUBBISH = (OSError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError)


@dataclass(frozen=True, slots=True)
class Note:
    """Where rank 0 listens, and what those say who may come."""

    hosts: list[str]
    port: int
    token: str


def meet(place: Place, where: str) -> Meeting:
    """Find the other ranks: `where` is a file that all can read, or tcp://HOST:PORT of rank 0. A
    rank that does not come is a RankLost, a place that cannot be had a UsageError."""
    address = _address(where)
    if place.rank > 0:
        links = [_dial(place, where, address)]
    elif address is not None:
        with _server(where, address) as server:
            links = _accept(place, server, place.job)
    else:
        links = _by_note(place, Path(where))
    parent = os.getppid() if place.launcher == OWN.name else None
    return Meeting(place.rank, place.size, links, parent)


def _address(where: str) -> tuple[str, int] | None:
    """Host and port of tcp://HOST:PORT; None for a file."""
    if not where.startswith("tcp://"):
        if not where or "://" in where:
            raise UsageError(f"--meet {where!r}: give a file, or rank 0's host as tcp://HOST:PORT")
        return None
    host, _, port = where.removeprefix("tcp://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UsageError(f"--meet {where}: give rank 0's host and a free port, tcp://HOST:PORT")
    return host.strip("[]"), int(port)


def _server(where: str, address: tuple[str, int]) -> socket.socket:
    try:
        return socket.create_server(address)
    except OSError as error:
        raise UsageError(
            f"--meet {where}: rank 0 cannot listen there ({error.strerror}): give a host that is "
            "this one, and another port"
        ) from None


def _by_note(place: Place, path: Path) -> list[Link]:
    """Listen on any port, and leave a note of it for as long as ranks are waited for."""
    own = place.launcher == OWN.name  # all on this host
    with _server(str(path), ("127.0.0.1" if own else "", 0)) as server:
        hosts = ["127.0.0.1"] if own else [socket.gethostname(), socket.getfqdn()]
        if path.exists() and _note_in(path) is None:
            raise UsageError(f"--meet {path}: is a file already: name one that is not there")
        note = Note(hosts, server.getsockname()[1], secrets.token_hex(16))
        part = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            part.touch(mode=0o600)
            part.write_text(json.dumps([note.hosts, note.port, note.token]))
            part.replace(path)
        except OSError as error:
            raise UsageError(
                f"--meet {path}: cannot be written ({error.strerror}): name a file in a folder "
                "that all ranks can read"
            ) from None
        try:
            return _accept(place, server, note.token)
        finally:
            path.unlink(missing_ok=True)


def _note_in(path: Path) -> Note | None:
    """What a file says of where rank 0 listens; None if it is none of ours, or is not there."""
    with suppress(*_RUBBISH):
        return Note(*json.loads(path.read_text()))
    return None


def _accept(place: Place, server: socket.socket, token: str) -> list[Link]:
    """Wait for all other ranks."""
    found: dict[int, Link] = {}
    until = time.monotonic() + ARRIVAL_S
    while len(found) < place.size - 1:
        server.settimeout(max(0.01, until - time.monotonic()))
        try:
            connection, _ = server.accept()
        except TimeoutError:
            missing = sorted(set(range(1, place.size)) - set(found))
            names = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {str(missing)[1:-1]}"
            raise RankLost(
                f"{names} of {place.size} did not come within {ARRIVAL_S:.0f} s: see that all were "
                "started, and what they printed"
            ) from None
        link = _greeted(connection, token, place.size, found.values())
        if link is None or link.rank in found:
            connection.close()
        else:
            found[link.rank] = link
    links = [found[rank] for rank in sorted(found)]
    for link in links:
        link.send(host=socket.gethostname())
    return links


def _greeted(
    connection: socket.socket, token: str, size: int, others: Iterable[Link]
) -> Link | None:
    """The rank at the other end; None if that is nobody of ours. One that was told of more or fewer
    ranks is a UsageError, which it and the `others` get to know."""
    try:
        greeting = _line(connection, time.monotonic() + _GREETING_S)
        rank, host, told = int(greeting["rank"]), str(greeting["host"]), int(greeting["size"])
        if rank < 1 or not hmac.compare_digest(str(greeting["token"]).encode(), token.encode()):
            return None
        link = _linked(rank, host, connection)
    except _RUBBISH:
        return None
    if told == size:
        return link
    why = (
        f"rank {rank} on {host} is one of {told}, and rank 0 one of {size}: start all ranks with "
        "the same number of them"
    )
    for one in (link, *others):
        one.beat(lost=why)
        one.end()
    raise UsageError(why)


def _dial(place: Place, where: str, address: tuple[str, int] | None) -> Link:
    """A connection to rank 0, as soon as it listens."""
    until = time.monotonic() + ARRIVAL_S
    greeting = {"rank": place.rank, "host": socket.gethostname(), "size": place.size}
    while time.monotonic() < until:
        with suppress(*_RUBBISH):
            note = Note([address[0]], address[1], place.job) if address else _note_in(Path(where))
            if note is not None:
                return _taken(note, greeting, until)
        time.sleep(0.05)
    raise RankLost(
        f"rank 0 did not appear at {where} within {ARRIVAL_S:.0f} s, or all others did not: see "
        "that all were started, with the same --meet"
    )


def _taken(note: Note, greeting: dict[str, Any], until: float) -> Link:
    """A connection to the rank 0 that left this note. Raises UsageError if it takes no such rank,
    and one of what is no answer of its."""
    connection = _connected(note)
    connection.sendall(json.dumps(greeting | {"token": note.token}).encode() + b"\n")
    answer = _line(connection, until)
    if "lost" not in answer:
        return _linked(0, str(answer["host"]), connection)
    connection.close()
    raise UsageError(answer["lost"])


def _connected(note: Note) -> socket.socket:
    """To the first of its hosts that answers. Raises OSError."""
    for host in note.hosts[:-1]:
        with suppress(OSError):
            return socket.create_connection((host, note.port), _GREETING_S)
    return socket.create_connection((note.hosts[-1], note.port), _GREETING_S)


def _line(connection: socket.socket, until: float) -> dict[str, Any]:
    """The first line that comes, and nothing behind it, if all of it does in time. Raises what is
    in `_RUBBISH`."""
    data = b""
    while not data.endswith(b"\n"):
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        byte = connection.recv(1)
        if not byte or len(data) > _GREETING_BYTES:
            raise ValueError("no greeting")
        data += byte
    found = json.loads(data)
    if not isinstance(found, dict):
        raise TypeError("no greeting")
    return found


def _linked(rank: int, host: str, connection: socket.socket) -> Link:
    connection.settimeout(SILENCE_S)  # sending to one that stands still must end
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Link(rank, host, connection)
